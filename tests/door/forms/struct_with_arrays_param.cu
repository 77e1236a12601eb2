// kernel parameter is a struct passed by value with arrays inside
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define MAX_BODIES 8

struct Scene {
    int count;
    float mass[MAX_BODIES];
    float pos[MAX_BODIES][2];
    struct { float soft, g; } k;
};

// gravitational potential of a few heavy bodies on a grid of test points
__global__ void potential(Scene sc, float *phi, int nx, int ny)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny)
        return;
    float v = 0.0f;
    for (int b = 0; b < sc.count; ++b) {
        float dx = sc.pos[b][0] - x;
        float dy = sc.pos[b][1] - y;
        v -= sc.k.g * sc.mass[b] / sqrtf(dx * dx + dy * dy + sc.k.soft);
    }
    phi[y * nx + x] = v;
}

int main()
{
    const int nx = 96, ny = 80;
    Scene sc = {};
    sc.count = 5;
    sc.k.soft = 0.5f;
    sc.k.g = 1.0f;
    for (int b = 0; b < sc.count; ++b) {
        sc.mass[b] = 10.0f + b;
        sc.pos[b][0] = 15.0f * b + 4.0f;
        sc.pos[b][1] = 70.0f - 12.0f * b;
    }

    float *d_phi;
    cudaMalloc(&d_phi, nx * ny * sizeof(float));
    dim3 block(16, 16);
    dim3 grid((nx + block.x - 1) / block.x, (ny + block.y - 1) / block.y);
    potential<<<grid, block>>>(sc, d_phi, nx, ny);

    std::vector<float> phi(nx * ny);
    cudaMemcpy(phi.data(), d_phi, phi.size() * sizeof(float), cudaMemcpyDeviceToHost);
    int best = 0;
    for (int i = 1; i < nx * ny; ++i)
        if (phi[i] < phi[best])
            best = i;
    std::printf("deepest point (%d, %d), phi = %.3f\n", best % nx, best / nx, phi[best]);
    cudaFree(d_phi);
    return 0;
}
