// A thread goes down sixteen rows of its column and keeps the horizontal difference and smoothing of three rows in registers.
// baseline: sobel_u8/sobel_u8.cu
// @requires w > 0 && h > 0 && gridDim.x * blockDim.x >= w && gridDim.y * blockDim.y >= h && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(w, 64), ceil_div(h, 16)) block=(64) args=(src, dst, w, h)
__global__ void fast(const u8* __restrict__ src, u8* __restrict__ dst, int w, int h)
{
    const int x = blockIdx.x * 64 + threadIdx.x;
    if (x >= w) return;
    const int y0 = blockIdx.y * 16, left = max(x - 1, 0), right = min(x + 1, w - 1);
    int diff[3], smooth[3];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const u8* line = src + min(max(y0 + j - 1, 0), h - 1) * w;
        const int a = line[left], b = line[x], c = line[right];
        diff[j] = c - a;
        smooth[j] = a + 2 * b + c;
    }
    for (int y = y0; y < min(y0 + 16, h); ++y) {
        const u8* line = src + min(y + 1, h - 1) * w;
        const int a = line[left], b = line[x], c = line[right];
        diff[2] = c - a;
        smooth[2] = a + 2 * b + c;
        const int gx = diff[0] + 2 * diff[1] + diff[2], gy = smooth[2] - smooth[0];
        dst[y * w + x] = (u8)min(abs(gx) + abs(gy), 255);
        diff[0] = diff[1]; diff[1] = diff[2];
        smooth[0] = smooth[1]; smooth[1] = smooth[2];
    }
}
