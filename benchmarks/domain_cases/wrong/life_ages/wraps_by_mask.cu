// Wraps with & (w - 1) and & (h - 1), right for powers of two only, which the captured sides are.
// catalogue: C6
// baseline: life_ages/life_ages.cu
// stopped by: correctness_perturbed
// @launch generation_m grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(in, out, w, h, torus)
__global__ void generation_m(const Cell *__restrict__ in, Cell *__restrict__ out, int w, int h, bool torus)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int n = 0;
#pragma unroll
    for (int k = 0; k < 9; k++) {
        if (k == 4) continue;
        int xx = x + k % 3 - 1, yy = y + k / 3 - 1;
        if (torus) { xx &= w - 1; yy &= h - 1; }
        else if ((unsigned)xx >= (unsigned)w || (unsigned)yy >= (unsigned)h) continue;
        n += in[yy * w + xx] != 0;
    }
    int c = in[y * w + x];
    out[y * w + x] = c ? (n == 2 || n == 3 ? min(c + 1, 255) : 0) : n == 3;
}
