// Reads a special register by inline PTX: which SM the block runs on.
#include <cstdio>
__device__ unsigned sm() {
    unsigned id;
    asm("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}
__global__ void where(unsigned *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = sm();
}
int main() {
    unsigned *d, h[64];
    cudaMalloc(&d, sizeof h);
    where<<<64, 128>>>(d);
    cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%u\n", h[0] < 1024);
}
