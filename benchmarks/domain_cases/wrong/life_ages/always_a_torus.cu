// Wraps around whatever the flag says; the program only asks for a torus.
// catalogue: B8
// baseline: life_ages/life_ages.cu
// stopped by: correctness_perturbed
// @launch generation_t grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(in, out, w, h)
__global__ void generation_t(const Cell *__restrict__ in, Cell *__restrict__ out, int w, int h)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int l = x ? x - 1 : w - 1, r = x + 1 < w ? x + 1 : 0;
    const Cell *m = in + y * w, *u = in + (y ? y - 1 : h - 1) * w, *d = in + (y + 1 < h ? y + 1 : 0) * w;
    int n = (u[l] != 0) + (u[x] != 0) + (u[r] != 0) + (m[l] != 0) + (m[r] != 0) + (d[l] != 0) + (d[x] != 0) + (d[r] != 0);
    Cell c = m[x];
    out[y * w + x] = c ? (Cell)(n == 2 || n == 3 ? min(c + 1, 255) : 0) : (Cell)(n == 3);
}
