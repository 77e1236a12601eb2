// Compares ages as signed bytes, so that neighbours of 128 generations and more count as dead; captured ages stay below ten.
// catalogue: C7
// baseline: life_ages/life_ages.cu
// stopped by: correctness_perturbed
// @launch generation_s grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(in, out, w, h, torus)
__global__ void generation_s(const Cell *__restrict__ in, Cell *__restrict__ out, int w, int h, bool torus)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    const signed char *g = reinterpret_cast<const signed char *>(in);
    int n = 0;
#pragma unroll
    for (int k = 0; k < 9; k++) {
        if (k == 4) continue;
        int xx = x + k % 3 - 1, yy = y + k / 3 - 1;
        if (torus) {
            xx = xx < 0 ? w - 1 : xx == w ? 0 : xx;
            yy = yy < 0 ? h - 1 : yy == h ? 0 : yy;
        } else if (xx < 0 || yy < 0 || xx >= w || yy >= h) continue;
        n += g[yy * w + xx] > 0;
    }
    int c = in[y * w + x];
    out[y * w + x] = c ? (n == 2 || n == 3 ? min(c + 1, 255) : 0) : n == 3;
}
