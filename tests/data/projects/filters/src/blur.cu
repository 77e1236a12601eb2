#include "blur.cuh"

__global__ void blur_kernel(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -RADIUS; dx <= RADIUS; dx++)
            sum += in[clamp(y + dy, 0, height - 1) * width + clamp(x + dx, 0, width - 1)];
    out[y * width + x] = sum / ((2 * RADIUS + 1) * (2 * RADIUS + 1));
}

void blur(const float* in, float* out, int width, int height) {
    dim3 block(8, 8);
    dim3 grid((width + 7) / 8, (height + 7) / 8);
    blur_kernel<<<grid, block>>>(in, out, width, height);
}
