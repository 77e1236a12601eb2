// args: 128 64
// A product on tensor cores as people write it: macros for ldmatrix, mma and cp.async, two stages.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_fp16.h>

#define CP_ASYNC_CG(dst, src, bytes) \
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(dst), "l"(src), "n"(bytes))
#define CP_ASYNC_COMMIT_GROUP() asm volatile("cp.async.commit_group;\n" ::)
#define CP_ASYNC_WAIT_GROUP(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n))
#define LDMATRIX_X4(R0, R1, R2, R3, addr)                                             \
    asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n" \
                 : "=r"(R0), "=r"(R1), "=r"(R2), "=r"(R3)                             \
                 : "r"(addr))
#define LDMATRIX_X2_T(R0, R1, addr)                                                   \
    asm volatile("ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, %1}, [%2];\n"   \
                 : "=r"(R0), "=r"(R1)                                                 \
                 : "r"(addr))
#define HMMA16816(RD0, RD1, RA0, RA1, RA2, RA3, RB0, RB1, RC0, RC1)                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};\n" \
                 : "=r"(RD0), "=r"(RD1)                                               \
                 : "r"(RA0), "r"(RA1), "r"(RA2), "r"(RA3), "r"(RB0), "r"(RB1), "r"(RC0), "r"(RC1))

// A warp makes 16 rows and 8 columns of C.
__global__ void hgemm(const half *A, const half *B, half *C, int N, int K) {
    __shared__ alignas(16) half As[2][16][16];
    __shared__ alignas(16) half Bs[2][16][8];
    const int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    auto fetch = [&](int stage, int k) {
        unsigned a = static_cast<unsigned>(__cvta_generic_to_shared(&As[stage][lane / 2][lane % 2 * 8]));
        CP_ASYNC_CG(a, A + (row + lane / 2) * K + k + lane % 2 * 8, 16);
        if (lane < 16) {
            unsigned b = static_cast<unsigned>(__cvta_generic_to_shared(&Bs[stage][lane][0]));
            CP_ASYNC_CG(b, B + (k + lane) * N + column, 16);
        }
        CP_ASYNC_COMMIT_GROUP();
    };
    unsigned c0 = 0, c1 = 0;
    fetch(0, 0);
    for (int k = 0; k < K; k += 16) {
        const int stage = k / 16 % 2;
        if (k + 16 < K) {
            fetch(stage ^ 1, k + 16);
            CP_ASYNC_WAIT_GROUP(1);
        } else {
            CP_ASYNC_WAIT_GROUP(0);
        }
        __syncthreads();
        unsigned ra[4], rb[2];
        unsigned a = static_cast<unsigned>(__cvta_generic_to_shared(&As[stage][lane % 16][lane / 16 * 8]));
        unsigned b = static_cast<unsigned>(__cvta_generic_to_shared(&Bs[stage][lane % 16][0]));
        LDMATRIX_X4(ra[0], ra[1], ra[2], ra[3], a);
        LDMATRIX_X2_T(rb[0], rb[1], b);
        HMMA16816(c0, c1, ra[0], ra[1], ra[2], ra[3], rb[0], rb[1], c0, c1);
        __syncthreads();
    }
    *reinterpret_cast<unsigned *>(&C[(row + lane / 4) * N + column + lane % 4 * 2]) = c0;
    *reinterpret_cast<unsigned *>(&C[(row + lane / 4 + 8) * N + column + lane % 4 * 2]) = c1;
}

int main(int argc, char **argv) {
    int N = argc > 1 ? atoi(argv[1]) : 128, K = argc > 2 ? atoi(argv[2]) : 64, M = 64;
    std::vector<half> a(M * K), b(K * N), c(M * N);
    for (int i = 0; i < M * K; ++i) a[i] = __float2half(float(i % 5) - 2);
    for (int i = 0; i < K * N; ++i) b[i] = __float2half(float(i % 7) - 3);
    half *A, *B, *C;
    cudaMalloc(&A, a.size() * 2);
    cudaMalloc(&B, b.size() * 2);
    cudaMalloc(&C, c.size() * 2);
    cudaMemcpy(A, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
    hgemm<<<dim3(N / 8, M / 16), 32>>>(A, B, C, N, K);
    cudaMemcpy(c.data(), C, c.size() * 2, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            float sum = 0;
            for (int k = 0; k < K; ++k) sum += __half2float(a[i * K + k]) * __half2float(b[k * N + j]);
            wrong += sum != __half2float(c[i * N + j]);
        }
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
