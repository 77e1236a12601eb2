// Each thread takes one cell of a pair of columns and the last, unpaired column of an odd width is left out; the captured width is even.
// catalogue: C6 F9
// baseline: redblack/redblack.cu
// stopped by: correctness_perturbed
// @launch relax_pairs grid=(ceil_div(w / 2 - 1, 32), ceil_div(h - 2, 4)) block=(32, 4) args=(u, rhs, fixed, w, h, omega, color)
__global__ void relax_pairs(float *u, const float *__restrict__ rhs, const unsigned char *__restrict__ fixed, int w, int h, float omega, int color)
{
    int y = blockIdx.y * 4 + threadIdx.y + 1, pair = blockIdx.x * 32 + threadIdx.x;
    if (pair >= w / 2 - 1 || y >= h - 1) return;
    int x = 2 * pair + 1;
    x += (x + y + color) & 1;
    int i = y * w + x;
    if (fixed[i]) return;
    float gs = 0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - rhs[i]);
    u[i] = (1.0f - omega) * u[i] + omega * gs;
}
