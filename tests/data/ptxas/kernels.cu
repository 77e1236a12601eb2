// Written for cudaops: what makes ptxas fill every column. See README.md.
__device__ __noinline__ float helper(float x, int n) {
    float t[64];
    for (int i = 0; i < 64; i++) t[i] = x * i;
    return t[n & 63];
}
__device__ __noinline__ int recursive(int n) { return n < 2 ? 1 : recursive(n - 1) * recursive(n - 2); }
__global__ void __launch_bounds__(1024) stacked(float* p, int n) {
    __shared__ float s[100];
    s[threadIdx.x % 100] = p[0];
    __syncthreads();
    p[0] = s[5] + helper(p[1], n) + recursive(n);
}
__global__ void textured(double* p, cudaTextureObject_t t) { p[0] = sin(p[1]) + tex1D<float>(t, 1.0f); }
template <int N>
__global__ void __launch_bounds__(1024) spilled(float* p) {
    float a[N];
    for (int i = 0; i < N; i++) a[i] = p[i * 32 + threadIdx.x];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N; i++) a[i] = a[i] * a[(i + 7) % N] + a[(i + 3 * k) % N];
    for (int i = 0; i < N; i++) p[i * 32 + threadIdx.x] = a[i];
}
template __global__ void spilled<96>(float*);
__global__ void empty() {}
