// Coalesced both ways through a padded 32 x 32 tile of shared memory, four rows a thread.
// baseline: transpose4/transpose4.cu
// @requires width > 0 && height > 0 && gridDim.x * blockDim.x >= width && gridDim.y * blockDim.y >= height && gridDim.z * blockDim.z == 1
// @launch fast<T> grid=(ceil_div(width, 32), ceil_div(height, 32)) block=(32, 8) args=(odata, idata, width, height)
template <typename U>
__global__ void fast(U* __restrict__ odata, const U* __restrict__ idata, int width, int height)
{
    __shared__ U tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(size_t)(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width) odata[(size_t)(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
