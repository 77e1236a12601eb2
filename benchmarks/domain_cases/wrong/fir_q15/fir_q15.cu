// FIR filter in Q15 fixed point with rounding and saturation, taps in constant memory.
#include <cstdio>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

constexpr int MAX_TAPS = 64;
__constant__ short c_taps[MAX_TAPS];

template <int TAPS>
__global__ void fir(const short *__restrict__ x, short *__restrict__ y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long acc = 0;
    for (int k = 0; k < TAPS; ++k) {
        const int j = i - k;
        if (j >= 0) acc += (long long)c_taps[k] * x[j];
    }
    acc = (acc + (1 << 14)) >> 15;
    if (acc > 32767) acc = 32767;
    if (acc < -32768) acc = -32768;
    y[i] = (short)acc;
}

int main()
{
    const int n = 20000;
    std::vector<short> x(n), y(n), taps(MAX_TAPS, 0);
    for (int i = 0; i < n; ++i) x[i] = (short)(2048 + 1500 * std::sin(0.01 * i) + 400 * std::sin(1.7 * i));   // a 12-bit converter
    for (int k = 0; k < 16; ++k) {
        const double t = (k - 7.5) * 0.35;
        taps[k] = taps[15 - k] = (short)(9000 * std::sin(t) / t * (0.54 + 0.46 * std::cos(M_PI * (k - 7.5) / 8)));
    }
    short *dx, *dy;
    cudaMalloc(&dx, n * sizeof(short));
    cudaMalloc(&dy, n * sizeof(short));
    cudaMemcpy(dx, x.data(), n * sizeof(short), cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(c_taps, taps.data(), MAX_TAPS * sizeof(short));
    fir<32><<<(n + 255) / 256, 256>>>(dx, dy, n);
    cudaMemcpy(y.data(), dy, n * sizeof(short), cudaMemcpyDeviceToHost);
    long long s = 0; int top = -40000, low = 40000;
    for (short v : y) { s += v; top = v > top ? v : top; low = v < low ? v : low; }
    printf("sum %lld range %d %d\n", s, low, top);
    return 0;
}
