// Decimal numbers in fixed-width text columns (blanks, a sign, digits, blanks) to integers; ok is 0 and the value 0 for anything else.
#include <cstdio>
#include <string>
#include <vector>
#include <cuda_runtime.h>

__global__ void parse(const char *text, int width, int *value, unsigned char *ok, int rows)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const char *p = text + r * width, *end = p + width;
    while (p < end && *p == ' ') ++p;
    bool minus = false;
    if (p < end && (*p == '-' || *p == '+')) { minus = *p == '-'; ++p; }
    unsigned v = 0;
    int digits = 0;
    for (; p < end && *p >= '0' && *p <= '9'; ++p, ++digits) v = v * 10u + (unsigned)(*p - '0');
    while (p < end && *p == ' ') ++p;
    bool good = p == end && digits > 0;
    value[r] = good ? (int)(minus ? 0u - v : v) : 0;
    ok[r] = good;
}

int main()
{
    const int rows = 4096, width = 8;
    std::string text;
    char field[16];
    for (int i = 0; i < rows; ++i) {
        snprintf(field, sizeof field, "%8d", (int)((i * 7919u) % 200001u) - 100000);
        text += field;
    }
    char *dt; int *dv; unsigned char *dok;
    cudaMalloc(&dt, rows * width); cudaMalloc(&dv, rows * sizeof(int)); cudaMalloc(&dok, rows);
    cudaMemcpy(dt, text.data(), rows * width, cudaMemcpyHostToDevice);
    parse<<<rows / 128, 128>>>(dt, width, dv, dok, rows);
    std::vector<int> v(rows); std::vector<unsigned char> ok(rows);
    cudaMemcpy(v.data(), dv, rows * sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpy(ok.data(), dok, rows, cudaMemcpyDeviceToHost);
    long long s = 0; int good = 0;
    for (int i = 0; i < rows; ++i) { s += v[i]; good += ok[i]; }
    printf("sum %lld good %d of %d\n", s, good, rows);
}
