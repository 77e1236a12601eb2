// sqrtf under a condition that holds for few threads, in a loop over constant memory.
#include <cstdio>
#include <cstdlib>
__constant__ float4 balls[10];
__global__ void draw(int *out, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float shade = 0, far = -2e10f;
    for (int k = 0; k < 10; ++k) {
        float4 b = balls[k];
        float dx = i % w - w / 2.0f - b.x, dy = i / w - w / 2.0f - b.y;
        if (dx * dx + dy * dy < b.w * b.w) {
            float dz = sqrtf(b.w * b.w - dx * dx - dy * dy);
            if (dz + b.z > far) shade = dz;
        }
    }
    out[i] = (int)(255 * shade);
}
int main() {
    const int w = 1024;
    float4 h[10];
    for (float4 &b : h) b = {rand() % 1000 - 500.0f, rand() % 1000 - 500.0f, 1.0f * (rand() % 1000), 20.0f + rand() % 100};
    cudaMemcpyToSymbol(balls, h, sizeof h);
    int *d;
    cudaMalloc(&d, w * w * sizeof(int));
    draw<<<w * w / 256, 256>>>(d, w);
    cudaDeviceSynchronize();
}
