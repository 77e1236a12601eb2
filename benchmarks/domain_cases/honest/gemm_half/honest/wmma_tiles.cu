// Tensor cores: a warp a 16 x 16 tile of C by wmma, half inputs and float accumulators as the author has them.
// baseline: gemm_half/gemm_half.cu
// @requires M > 0 && N > 0 && K > 0 && M % 16 == 0 && N % 16 == 0 && K % 16 == 0 && aligned(A, 32) && aligned(B, 32) && aligned(C, 32)
// @requires gridDim.x * blockDim.x >= N && gridDim.y * blockDim.y >= M && gridDim.z * blockDim.z == 1
// @launch fast grid=(N / 16, M / 16) block=(32) args=(A, B, C, N, K)
#include <mma.h>
__global__ void fast(const __half* A, const __half* B, float* C, int N, int K)
{
    using namespace nvcuda;
    const int row = blockIdx.y * 16, col = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + row * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + col, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C + row * N + col, c, N, wmma::mem_row_major);
}
