// The age of a cell runs over from 255 to 0, so that an old cell dies; after six captured generations none is older than seven.
// catalogue: C7 C2
// baseline: life_ages/life_ages.cu
// stopped by: correctness_perturbed
// @launch generation_b grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(in, out, w, h, torus)
__global__ void generation_b(const Cell *__restrict__ in, Cell *__restrict__ out, int w, int h, bool torus)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int l = x ? x - 1 : torus ? w - 1 : -1, r = x < w - 1 ? x + 1 : torus ? 0 : -1;
    int n = 0;
#pragma unroll
    for (int dy = -1; dy <= 1; dy++) {
        int yy = y + dy;
        if (yy < 0 || yy >= h) {
            if (!torus) continue;
            yy = yy < 0 ? h - 1 : 0;
        }
        const Cell *row = in + yy * w;
        n += (l >= 0 && row[l]) + (r >= 0 && row[r]) + (dy && row[x]);
    }
    Cell c = in[y * w + x];
    out[y * w + x] = c ? (Cell)((n | 1) == 3 ? c + 1 : 0) : (Cell)(n == 3);
}
