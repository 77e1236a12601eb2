// A block stages its tile and the clamped border of one pixel in shared memory, loaded in a linear loop.
// baseline: sobel_u8/sobel_u8.cu
// @requires w > 0 && h > 0 && gridDim.x * blockDim.x >= w && gridDim.y * blockDim.y >= h && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(w, 32), ceil_div(h, 8)) block=(32, 8) args=(src, dst, w, h)
__global__ void fast(const u8* __restrict__ src, u8* __restrict__ dst, int w, int h)
{
    __shared__ int tile[10][35];
    const int x0 = blockIdx.x * 32 - 1, y0 = blockIdx.y * 8 - 1;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 10 * 34; k += 256) {
        const int i = k % 34, j = k / 34;
        tile[j][i] = src[min(max(y0 + j, 0), h - 1) * w + min(max(x0 + i, 0), w - 1)];
    }
    __syncthreads();
    const int x = x0 + 1 + threadIdx.x, y = y0 + 1 + threadIdx.y;
    if (x >= w || y >= h) return;
    const int i = threadIdx.x, j = threadIdx.y;
    const int a = tile[j][i], c = tile[j][i + 2], g = tile[j + 2][i], k = tile[j + 2][i + 2];
    const int gx = c - a + k - g + 2 * (tile[j + 1][i + 2] - tile[j + 1][i]);
    const int gy = g - a + k - c + 2 * (tile[j + 2][i + 1] - tile[j][i + 1]);
    dst[y * w + x] = (u8)min(abs(gx) + abs(gy), 255);
}
