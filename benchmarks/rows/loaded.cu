#include <torch/extension.h>

template <typename scalar_t>
__global__ void transpose_kernel(const scalar_t* in, scalar_t* out, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) out[column * n + row] = in[row * n + column];
}

torch::Tensor transpose(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2, "a contiguous matrix on a GPU");
    auto y = torch::empty_like(x);
    const int n = x.size(0);
    const dim3 block(32, 8), grid((n + 31) / 32, (n + 7) / 8);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose", [&] {
        transpose_kernel<scalar_t><<<grid, block>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
    });
    return y;
}
