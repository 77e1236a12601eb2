// Day numbers (days since 1970-01-01, either side of it) to packed yyyymmdd and the day of the week.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(e_)); exit(1); } } while (0)

// Howard Hinnant's algorithm.
__global__ void civil_from_days(const int *days, int *packed, unsigned char *weekday, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long z = (long long)days[i] + 719468;
    long long era = (z >= 0 ? z : z - 146096) / 146097;
    unsigned doe = (unsigned)(z - era * 146097);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    long long y = (long long)yoe + era * 400;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    unsigned d = doy - (153 * mp + 2) / 5 + 1;
    unsigned m = mp < 10 ? mp + 3 : mp - 9;
    if (m <= 2) y++;
    packed[i] = (int)((unsigned)(int)y * 10000u + m * 100u + d);
    int w = (days[i] % 7 + 11) % 7;
    weekday[i] = (unsigned char)w;
}

int main()
{
    const int n = 16384;
    std::vector<int> days(n), packed(n);
    std::vector<unsigned char> wd(n);
    unsigned s = 12345;
    for (int i = 0; i < n; ++i) {
        s = s * 1664525u + 1013904223u;
        days[i] = (int)((s >> 8) % 46000u);      // 1970 .. 2095
    }
    int *dd, *dp; unsigned char *dw;
    CHECK(cudaMalloc(&dd, n * sizeof(int)));
    CHECK(cudaMalloc(&dp, n * sizeof(int)));
    CHECK(cudaMalloc(&dw, n));
    CHECK(cudaMemcpy(dd, days.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    civil_from_days<<<(n + 127) / 128, 128>>>(dd, dp, dw, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(packed.data(), dp, n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(wd.data(), dw, n, cudaMemcpyDeviceToHost));
    long long a = 0, b = 0;
    for (int i = 0; i < n; ++i) { a += packed[i]; b += wd[i]; }
    printf("dates %lld weekdays %lld first %d\n", a, b, packed[0]);
    return 0;
}
