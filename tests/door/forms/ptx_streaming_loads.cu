// Rows summed by hinted vector loads, a warp's shuffle with its predicate, and a store past the caches.
#include <cstdio>
#include <cstdlib>
#include <vector>

__device__ __forceinline__ float4 load_streaming(const float *p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ float add_from_above(float x, int by) {
    // The sum only where there is a lane above, as in warp scans of CUB.
    asm volatile("{ .reg .f32 r; .reg .pred p;\n\t"
                 "shfl.sync.down.b32 r|p, %0, %1, 0x1f, 0xffffffff;\n\t"
                 "@p add.f32 %0, r, %0;\n\t}"
                 : "+f"(x)
                 : "r"(by));
    return x;
}
static __device__ __inline__ unsigned lane_id() {
    unsigned ret;
    asm("mov.u32 %0, %%laneid;" : "=r"(ret));
    return ret;
}

__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    float t = 0;
    for (int c = lane_id() * 4; c < cols; c += 128) {
        float4 v = load_streaming(a + (size_t)row * cols + c);
        t += v.x + v.y + v.z + v.w;
    }
    for (int by = 16; by > 0; by /= 2) t = add_from_above(t, by);
    if (lane_id() == 0) asm volatile("st.global.cs.f32 [%0], %1;" ::"l"(s + row), "f"(t) : "memory");
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 64, cols = argc > 2 ? atoi(argv[2]) : 512;
    std::vector<float> h(rows * cols), g(rows);
    for (size_t i = 0; i < h.size(); ++i) h[i] = float(i % 7) - 2.5f;
    float *a, *s;
    cudaMalloc(&a, h.size() * sizeof(float));
    cudaMalloc(&s, g.size() * sizeof(float));
    cudaMemcpy(a, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
    rowsum<<<(rows * 32 + 127) / 128, 128>>>(a, s, rows, cols);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("sum %g first %g\n", sum, g[0]);
    return 0;
}
