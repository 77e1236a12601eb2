// Whether sincosf and sincospif give what sinf, cosf, sinpif and cospif give, for every float, and the
// functions of doubles for 2^33 of them; and how long both take.
//
//   nvcc -O3 -arch=sm_90 benchmarks/sincos.cu -o /tmp/sincos && /tmp/sincos
//
// The transformation `sincos` rests on it. A record: results/2026-11-27-h200-classes.
#include <cstdio>

__device__ unsigned long long apart[8];

__device__ bool differ(float a, float b) {
    return !(isnan(a) && isnan(b)) && __float_as_uint(a) != __float_as_uint(b);
}
__device__ bool differ(double a, double b) {
    return !(isnan(a) && isnan(b)) && __double_as_longlong(a) != __double_as_longlong(b);
}

// SplitMix64 (Steele, Lea, Flood 2014).
__device__ unsigned long long mixed(unsigned long long z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__global__ void floats() {
    const unsigned long long all = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long u = blockIdx.x * blockDim.x + threadIdx.x; u < 1ull << 32; u += all) {
        const float x = __uint_as_float((unsigned)u);
        volatile float y = x;  // or the compiler would share the work by itself
        float s, c;
        sincosf(x, &s, &c);
        if (differ(s, sinf(y))) atomicAdd(&apart[0], 1ull);
        if (differ(c, cosf(y))) atomicAdd(&apart[1], 1ull);
        sincospif(x, &s, &c);
        if (differ(s, sinpif(y))) atomicAdd(&apart[2], 1ull);
        if (differ(c, cospif(y))) atomicAdd(&apart[3], 1ull);
    }
}

// Every other one any double at all, the rest of up to 2^31.
__global__ void doubles() {
    const unsigned long long all = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long u = blockIdx.x * blockDim.x + threadIdx.x; u < 1ull << 33; u += all) {
        const unsigned long long bits = mixed(u);
        const double scale = 0x1p-63 * (double)(1u << (bits & 31));
        const double x = u & 1 ? __longlong_as_double(bits) : (double)(long long)bits * scale;
        volatile double y = x;
        double s, c;
        sincos(x, &s, &c);
        if (differ(s, sin(y))) atomicAdd(&apart[4], 1ull);
        if (differ(c, cos(y))) atomicAdd(&apart[5], 1ull);
        sincospi(x, &s, &c);
        if (differ(s, sinpi(y))) atomicAdd(&apart[6], 1ull);
        if (differ(c, cospi(y))) atomicAdd(&apart[7], 1ull);
    }
}

__device__ void both(float x, float* s, float* c) { sincosf(x, s, c); }
__device__ void both(double x, double* s, double* c) { sincos(x, s, c); }

template <class T, bool TOGETHER>
__global__ void timed(T* out, int turns, T step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    T x = 0, sum = 0;
    for (int k = 0; k < turns; ++k) {
        T s, c;
        if (TOGETHER) both(x, &s, &c);
        else s = sin(x), c = cos(x);
        sum += s - c;
        x += step;
    }
    out[i] = sum;
}

template <class T, bool TOGETHER>
float milliseconds(T* out) {
    const int threads = 132 * 2048;  // an H200 full of them
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    float found = 0;
    for (int round = 0; round < 2; ++round) {  // the first one warms up
        cudaEventRecord(begin);
        timed<T, TOGETHER><<<threads / 256, 256>>>(out, 2000, T(0.01));
        cudaEventRecord(end);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&found, begin, end);
    }
    return found;
}

int main() {
    floats<<<1056, 256>>>();
    doubles<<<1056, 256>>>();
    unsigned long long found[8];
    cudaMemcpyFromSymbol(found, apart, sizeof found);
    const char* names[] = {"sinf", "cosf", "sinpif", "cospif", "sin", "cos", "sinpi", "cospi"};
    for (int i = 0; i < 8; ++i)
        printf("%s: %llu of %s differ\n", names[i], found[i], i < 4 ? "2^32" : "2^33");
    double* out;
    cudaMalloc(&out, 132 * 2048 * sizeof(double));
    printf("sinf, cosf: %.3f ms\n", milliseconds<float, false>((float*)out));
    printf("sincosf: %.3f ms\n", milliseconds<float, true>((float*)out));
    printf("sin, cos: %.3f ms\n", milliseconds<double, false>(out));
    printf("sincos: %.3f ms\n", milliseconds<double, true>(out));
    return cudaDeviceSynchronize() != cudaSuccess;
}
