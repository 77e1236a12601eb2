// a small ray tracer: objects with virtual functions made on the device, and a pass over the pixels
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

struct Hit { float t, shade; };
class Body {
public:
    __device__ virtual bool hit(float x, float y, Hit &h) const = 0;
    __device__ virtual ~Body() {}
};
class Ball : public Body {
    float cx, cy, r;
public:
    __device__ Ball(float x, float y, float radius) : cx(x), cy(y), r(radius) {}
    __device__ bool hit(float x, float y, Hit &h) const override {
        float dx = x - cx, dy = y - cy, d = r * r - dx * dx - dy * dy;
        if (d < 0) return false;
        h.t = -sqrtf(d);
        h.shade = sqrtf(d) / r;
        return true;
    }
};
class Floor : public Body {
public:
    __device__ bool hit(float, float y, Hit &h) const override { h.t = 1; h.shade = 0.25f; return y > 0.5f; }
};

__global__ void make_world(Body **world) {
    world[0] = new Ball(0.0f, 0.0f, 0.5f);
    world[1] = new Ball(0.5f, 0.25f, 0.25f);
    world[2] = new Floor;
}
__global__ void trace(Body **world, int n, float *image, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    Hit best{1e9f, 0}, now;
    for (int i = 0; i < n; ++i)
        if (world[i]->hit(2.f * x / w - 1, 2.f * y / h - 1, now) && now.t < best.t) best = now;
    image[y * w + x] = best.shade;
}
__global__ void rowsum(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; }
}
__global__ void end_world(Body **world) { for (int i = 0; i < 3; ++i) delete world[i]; }

int main() {
    const int w = 256, h = 64;
    Body **world;
    float *image, *s;
    cudaMalloc(&world, 3 * sizeof(Body *));
    cudaMalloc(&image, w * h * sizeof(float));
    cudaMalloc(&s, h * sizeof(float));
    make_world<<<1, 1>>>(world);
    trace<<<dim3(w / 16, h / 16), dim3(16, 16)>>>(world, 3, image, w, h);
    rowsum<<<(h + 31) / 32, 32>>>(image, s, h, w);
    end_world<<<1, 1>>>(world);
    std::vector<float> g(h);
    cudaMemcpy(g.data(), s, g.size() * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : g) sum += v;
    printf("light %.3f middle %.3f\n", sum, g[h / 2]);
    cudaFree(world);
    cudaFree(image);
    cudaFree(s);
    return 0;
}
