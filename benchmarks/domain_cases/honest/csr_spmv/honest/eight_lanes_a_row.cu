// Vector CSR: tiles of eight lanes by cooperative groups take a row each, summed by cg::reduce.
// baseline: csr_spmv/csr_spmv.cu
// @requires num_rows > 0 && gridDim.x * blockDim.x >= num_rows && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(num_rows, 16)) block=(128) args=(num_rows, row_ptr, col_idx, vals, x, y, alpha, beta)
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void fast(int num_rows, const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const float* __restrict__ vals,
                     const float* __restrict__ x, float* y, float alpha, float beta)
{
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const int row = blockIdx.x * 16 + threadIdx.x / 8;
    int begin = 0, end = 0;
    if (row < num_rows) { begin = row_ptr[row]; end = row_ptr[row + 1]; }
    if (begin >= end) begin = end = 0;
    float dot = 0.f;
    for (int j = begin + (int)tile.thread_rank(); j < end; j += 8) dot = fmaf(vals[j], __ldg(x + col_idx[j]), dot);
    dot = cg::reduce(tile, dot, cg::plus<float>());
    if (row < num_rows && tile.thread_rank() == 0) y[row] = alpha * dot + beta * y[row];
}
