// Explicit heat equation in a box, walls insulated or joined (periodic). All parameters go by value in one structure.
#include <cstdio>
#include <vector>
#include <utility>
#include <cuda_runtime.h>

struct Box {
    int nx, ny, nz;
    float ax, ay, az;    // diffusivity * dt / h^2 along each axis
    bool periodic;
    __host__ __device__ int at(int x, int y, int z) const { return (z * ny + y) * nx + x; }
};

__device__ inline int neighbour(int i, int d, int n, bool periodic)
{
    int j = i + d;
    if (j < 0) return periodic ? n - 1 : 0;
    if (j >= n) return periodic ? 0 : n - 1;
    return j;
}

__global__ void heat_step(const float *u, float *v, Box b)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= b.nx || y >= b.ny || z >= b.nz) return;
    float c = u[b.at(x, y, z)];
    float r = c;
    r += b.ax * (u[b.at(neighbour(x, -1, b.nx, b.periodic), y, z)] - 2 * c + u[b.at(neighbour(x, 1, b.nx, b.periodic), y, z)]);
    r += b.ay * (u[b.at(x, neighbour(y, -1, b.ny, b.periodic), z)] - 2 * c + u[b.at(x, neighbour(y, 1, b.ny, b.periodic), z)]);
    r += b.az * (u[b.at(x, y, neighbour(z, -1, b.nz, b.periodic))] - 2 * c + u[b.at(x, y, neighbour(z, 1, b.nz, b.periodic))]);
    v[b.at(x, y, z)] = r;
}

int main()
{
    Box b = {32, 32, 24, 0.125f, 0.125f, 0.125f, false};
    int n = b.nx * b.ny * b.nz;
    std::vector<float> h(n, 0.f);
    for (int z = 8; z < 16; ++z) for (int y = 10; y < 22; ++y) for (int x = 12; x < 20; ++x) h[b.at(x, y, z)] = 1.f + 0.1f * ((x * y + z) % 7);
    float *u, *v;
    cudaMalloc(&u, n * sizeof(float));
    cudaMalloc(&v, n * sizeof(float));
    cudaMemcpy(u, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(8, 8, 4), grid(b.nx / 8, b.ny / 8, b.nz / 4);
    for (int s = 0; s < 4; ++s) {
        heat_step<<<grid, block>>>(u, v, b);
        std::swap(u, v);
    }
    cudaMemcpy(h.data(), u, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0, sq = 0;
    for (float f : h) { sum += f; sq += f * f; }
    printf("heat %.5f  squares %.5f\n", sum, sq);
    return 0;
}
