// Takes the parity of the colour, so that a launch with colour 2 (of no cell, for the author) relaxes the red ones; captured colours are 0 and 1.
// catalogue: C7 B8
// baseline: redblack/redblack.cu
// stopped by: correctness_perturbed
// @launch relax_parity grid=(ceil_div(w - 2, 64), ceil_div(h - 2, 8)) block=(32, 8) args=(u, rhs, fixed, w, h, omega, color)
__global__ void relax_parity(float *u, const float *__restrict__ rhs, const unsigned char *__restrict__ fixed, int w, int h, float omega, int color)
{
    int y = blockIdx.y * 8 + threadIdx.y + 1;
    int x = 2 * (blockIdx.x * 32 + threadIdx.x) + 1;
    x += (x ^ y ^ color) & 1;
    if (x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    if (fixed[i]) return;
    float old = u[i];
    u[i] = old + omega * (0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - rhs[i]) - old);
}
