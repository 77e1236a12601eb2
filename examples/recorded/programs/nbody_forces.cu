// Gravitational accelerations of n bodies, all pairs: one thread a body.
// nbody_forces [bodies [repeats]]
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>

struct Body { float x, y, z, mass; };

__global__ void nbody_forces(const Body* bodies, float* ax, float* ay, float* az, int n, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float fx = 0.0f, fy = 0.0f, fz = 0.0f;
    for (int j = 0; j < n; ++j) {
        float dx = bodies[j].x - bodies[i].x;
        float dy = bodies[j].y - bodies[i].y;
        float dz = bodies[j].z - bodies[i].z;
        float r = sqrtf(dx * dx + dy * dy + dz * dz + eps);
        fx += bodies[j].mass * dx / (r * r * r);
        fy += bodies[j].mass * dy / (r * r * r);
        fz += bodies[j].mass * dz / (r * r * r);
    }
    ax[i] = fx;
    ay[i] = fy;
    az[i] = fz;
}

int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    int repeats = argc > 2 ? atoi(argv[2]) : 2;
    std::vector<Body> bodies(n);
    unsigned state = 31u;
    auto draw = [&]() {
        state = state * 1664525u + 1013904223u;
        return (float)(state >> 8) / (1 << 24);
    };
    for (auto& b : bodies) {
        b.x = draw() * 2.0f - 1.0f;
        b.y = draw() * 2.0f - 1.0f;
        b.z = draw() * 2.0f - 1.0f;
        b.mass = 0.5f + draw();
    }
    Body* d_bodies;
    float* d_a[3];
    cudaMalloc(&d_bodies, n * sizeof(Body));
    for (auto& p : d_a) cudaMalloc(&p, n * sizeof(float));
    cudaMemcpy(d_bodies, bodies.data(), n * sizeof(Body), cudaMemcpyHostToDevice);
    int block = 256, grid = (n + block - 1) / block;
    nbody_forces<<<grid, block>>>(d_bodies, d_a[0], d_a[1], d_a[2], n, 0.01f);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r)
        nbody_forces<<<grid, block>>>(d_bodies, d_a[0], d_a[1], d_a[2], n, 0.01f);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    double check = 0.0;
    std::vector<float> a(n);
    for (auto& p : d_a) {
        cudaMemcpy(a.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost);
        for (int i = 0; i < n; ++i) check += fabs((double)a[i]);
        cudaFree(p);
    }
    printf("checksum %.6e\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_bodies);
    return 0;
}
