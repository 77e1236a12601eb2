// The division by 146097 is done in float, exact for day numbers below 2^24 only; the captured ones are below 46000.
// catalogue: C4 C7
// baseline: civil_dates/civil_dates.cu
// stopped by: correctness_perturbed
// @launch float_dates grid=(ceil_div(n, 256)) block=(256) args=(days, packed, weekday, n)
__global__ void float_dates(const int *__restrict__ days, int *__restrict__ packed, unsigned char *__restrict__ weekday, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    int day = days[i];
    float z = (float)day + 719468.f;
    float era = floorf((z + 0.5f) * (1.f / 146097.f));
    unsigned doe = (unsigned)(z - era * 146097.f);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    unsigned d = doy - (153 * mp + 2) / 5 + 1;
    unsigned m = mp < 10 ? mp + 3 : mp - 9;
    int y = (int)yoe + 400 * (int)era + (m <= 2);
    packed[i] = (int)((unsigned)y * 10000u + m * 100u + d);
    weekday[i] = (unsigned char)((day % 7 + 11) % 7);
}
