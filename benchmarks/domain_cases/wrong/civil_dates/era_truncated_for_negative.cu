// Divides without the correction for days before year 0 and takes the weekday of negative days with a plain remainder; captured days are all after 1970.
// catalogue: C7
// baseline: civil_dates/civil_dates.cu
// stopped by: correctness_perturbed
// @launch unsigned_dates grid=(ceil_div(n, 256)) block=(256) args=(days, packed, weekday, n)
__global__ void unsigned_dates(const int *__restrict__ days, int *__restrict__ packed, unsigned char *__restrict__ weekday, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    unsigned day = (unsigned)days[i];
    unsigned z = day + 719468u;
    unsigned era = z / 146097u, doe = z - era * 146097u;
    unsigned yoe = (doe - doe / 1460u + doe / 36524u - doe / 146096u) / 365u;
    unsigned doy = doe - (365u * yoe + yoe / 4u - yoe / 100u);
    unsigned mp = (5u * doy + 2u) / 153u;
    unsigned d = doy - (153u * mp + 2u) / 5u + 1u;
    unsigned m = mp < 10u ? mp + 3u : mp - 9u;
    unsigned y = yoe + era * 400u + (m <= 2u);
    packed[i] = (int)(y * 10000u + m * 100u + d);
    weekday[i] = (unsigned char)((day + 4u) % 7u);
}
