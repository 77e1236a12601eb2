// Particles as structures of mixed fields, advanced in place.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Body {
    float pos[3];
    float vel[3];
    float inv_mass;            // 0: cannot be moved
    unsigned short flags;      // PINNED, GHOST
    unsigned char idle;        // steps without motion, stays at 255
    signed char layer;         // below 0: not simulated
};
enum { PINNED = 1, GHOST = 2 };
struct World { float3 gravity; float dt, floor, bounce, sleep; };

__global__ void advance(Body *bodies, int n, World w)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Body b = bodies[i];
    if (b.layer < 0) return;
    if (b.inv_mass > 0.f && !(b.flags & PINNED)) {
        b.vel[0] += w.gravity.x * w.dt;
        b.vel[1] += w.gravity.y * w.dt;
        b.vel[2] += w.gravity.z * w.dt;
        for (int k = 0; k < 3; ++k) b.pos[k] += b.vel[k] * w.dt;
        if (b.pos[1] < w.floor && !(b.flags & GHOST)) {
            b.pos[1] = w.floor;
            if (b.vel[1] < 0.f) b.vel[1] = -w.bounce * b.vel[1];
        }
    }
    float v2 = b.vel[0] * b.vel[0] + b.vel[1] * b.vel[1] + b.vel[2] * b.vel[2];
    if (v2 < w.sleep) b.idle = b.idle < 255 ? b.idle + 1 : 255;
    else b.idle = 0;
    bodies[i] = b;
}

int main()
{
    const int n = 4096;
    std::vector<Body> h(n);
    for (int i = 0; i < n; ++i) {
        Body &b = h[i];
        for (int k = 0; k < 3; ++k) { b.pos[k] = (i * (k + 3) % 101) * 0.02f; b.vel[k] = ((i * (k + 7)) % 41 - 20) * 0.05f; }
        b.inv_mass = 0.5f + (i % 4) * 0.25f;
        b.flags = 0; b.idle = 0; b.layer = (signed char)(i % 3);
    }
    Body *d;
    cudaMalloc(&d, n * sizeof(Body));
    cudaMemcpy(d, h.data(), n * sizeof(Body), cudaMemcpyHostToDevice);
    World w{make_float3(0.f, -9.81f, 0.f), 0.01f, 0.f, 0.6f, 0.04f};
    for (int s = 0; s < 5; ++s) advance<<<n / 128, 128>>>(d, n, w);
    cudaMemcpy(h.data(), d, n * sizeof(Body), cudaMemcpyDeviceToHost);
    double p = 0, v = 0; int idle = 0;
    for (auto &b : h) { p += b.pos[0] + 2 * b.pos[1] + 3 * b.pos[2]; v += b.vel[1]; idle += b.idle; }
    printf("positions %.4f falling %.4f idle %d\n", p, v, idle);
}
