// Steps along z by nx * nx, right only where nx == ny as captured.
// catalogue: C6
// baseline: heat3d/heat3d.cu
// stopped by: correctness_perturbed
// @launch heat_square grid=(gridDim.x, gridDim.y, gridDim.z) block=(blockDim.x, blockDim.y, blockDim.z) args=(u, v, b)
__global__ void heat_square(const float *__restrict__ u, float *__restrict__ v, const Box b)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    const int m = b.nx;
    if (x >= m || y >= m || z >= b.nz) return;
    const int i = (z * m + y) * m + x;
    bool p = b.periodic;
    float c = u[i], r = c;
    r += b.ax * (u[i - x + neighbour(x, -1, m, p)] - 2 * c + u[i - x + neighbour(x, 1, m, p)]);
    r += b.ay * (u[i + m * (neighbour(y, -1, m, p) - y)] - 2 * c + u[i + m * (neighbour(y, 1, m, p) - y)]);
    r += b.az * (u[i + m * m * (neighbour(z, -1, b.nz, p) - z)] - 2 * c + u[i + m * m * (neighbour(z, 1, b.nz, p) - z)]);
    v[i] = r;
}
