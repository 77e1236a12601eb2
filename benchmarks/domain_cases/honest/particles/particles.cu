// Charged particles in structures, one explicit step in a uniform field with linear drag.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Particle {
    float x, y, z, mass;
    float vx, vy, vz, charge;
};

__global__ void advance(Particle* particles, int count, float ex, float ey, float ez, float drag, float dt)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= count) return;
    Particle& p = particles[id];
    float a = p.charge / p.mass;
    p.vx += dt * (a * ex - drag * p.vx);
    p.vy += dt * (a * ey - drag * p.vy);
    p.vz += dt * (a * ez - drag * p.vz);
    p.x += dt * p.vx;
    p.y += dt * p.vy;
    p.z += dt * p.vz;
}

int main()
{
    const int count = 3001;
    std::vector<Particle> h(count);
    for (int i = 0; i < count; ++i)
        h[i] = { i * 0.01f, (i % 50) * 0.1f, (i % 7) * 1.f, 1.f + (i % 4), (i % 11) - 5.f, (i % 3) - 1.f, 0.25f, (i % 2) ? 1.f : -1.f };
    Particle* d;
    cudaMalloc(&d, count * sizeof(Particle));
    cudaMemcpy(d, h.data(), count * sizeof(Particle), cudaMemcpyHostToDevice);
    for (int s = 0; s < 3; ++s) advance<<<(count + 127) / 128, 128>>>(d, count, 0.5f, -0.25f, 0.125f, 0.1f, 0.02f);
    cudaMemcpy(h.data(), d, count * sizeof(Particle), cudaMemcpyDeviceToHost);
    double x = 0, v = 0;
    for (auto& p : h) { x += p.x + p.y + p.z; v += p.vx * p.vx + p.vy * p.vy + p.vz * p.vz; }
    printf("positions %.4f energy %.4f\n", x, v);
    return 0;
}
