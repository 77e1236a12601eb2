/*
 * Explicit heat equation on a plate; two buffers change roles after every step.
 */
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define IDX(r, c) ((r) * nx + (c))

__global__ void heat_step(const float *now, float *then, int nx, int ny, float k)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= nx || r >= ny) return;
    if (c == 0 || r == 0 || c == nx - 1 || r == ny - 1) {
        then[IDX(r, c)] = now[IDX(r, c)];
        return;
    }
    float mid = now[IDX(r, c)];
    float lap = now[IDX(r - 1, c)] + now[IDX(r + 1, c)] + now[IDX(r, c - 1)] + now[IDX(r, c + 1)] - 4.0f * mid;
    then[IDX(r, c)] = mid + k * lap;
}

int main()
{
    const int nx = 70, ny = 61, steps = 6;
    std::vector<float> t(nx * ny, 20.f);
    for (int c = 0; c < nx; ++c) t[IDX(0, c)] = 100.f;
    for (int i = 0; i < nx * ny; i += 17) t[i] += (i % 29);
    float *a, *b;
    cudaMalloc(&a, t.size() * sizeof(float));
    cudaMalloc(&b, t.size() * sizeof(float));
    cudaMemcpy(a, t.data(), t.size() * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(32, 4), grid((nx + 31) / 32, (ny + 3) / 4);
    for (int s = 0; s < steps; ++s) {
        heat_step<<<grid, block>>>(a, b, nx, ny, 0.2f);
        std::swap(a, b);
    }
    cudaMemcpy(t.data(), a, t.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : t) sum += v;
    printf("mean %.5f centre %.5f\n", sum / t.size(), t[IDX(ny / 2, nx / 2)]);
    return 0;
}
