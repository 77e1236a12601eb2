// A tensor core product by inline PTX, accumulators as read-write operands.
#include <cstdio>
__global__ void tile(float *c, unsigned one) {
    unsigned a0 = one, a1 = one, a2 = one, a3 = one, b0 = one, b1 = one;
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    int at = threadIdx.x * 4;
    c[at] = c0; c[at + 1] = c1; c[at + 2] = c2; c[at + 3] = c3;
}
int main() {
    float *d, h = 0;
    cudaMalloc(&d, 128 * sizeof(float));
    tile<<<1, 32>>>(d, 0x3c003c00u);
    cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
