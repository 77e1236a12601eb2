// Writes the Gauss-Seidel value itself, which over-relaxation is for omega == 1, the captured value.
// catalogue: B8
// baseline: redblack/redblack.cu
// stopped by: correctness_perturbed
// @launch seidel grid=(ceil_div(w - 2, 64), ceil_div(h - 2, 4)) block=(32, 4) args=(u, rhs, fixed, w, h, color)
__global__ void seidel(float *u, const float *__restrict__ rhs, const unsigned char *__restrict__ fixed, int w, int h, int color)
{
    int y = blockIdx.y * 4 + threadIdx.y + 1;
    int x = 2 * (blockIdx.x * 32 + threadIdx.x) + 1;
    x += (x + y + color) & 1;
    if (x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    if (!fixed[i]) u[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - rhs[i]);
}
