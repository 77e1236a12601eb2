// Execution spaces that stand in a declaration only, by macros of other macros.
#include <cstdio>
#include <cuda_runtime.h>

#include "camera.h"

namespace scene {
int Camera::height() const { return height_; }
float Camera::at(int pixel) const { return static_cast<float>(pixel % width_) * 0.5f; }
void Camera::describe() const { std::printf("%d rows\n", height()); }
}  // namespace scene

float scene::twice(float value) { return 2.0f * value; }

__global__ void shade(scene::Camera camera, float* image, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) image[i] = scene::half_of(scene::twice(camera.at(i))) + camera.height();
}

int main() {
    const int n = 1 << 14;
    float* image = nullptr;
    cudaMalloc(&image, n * sizeof(float));
    scene::Camera camera(64, 256);
    camera.describe();
    shade<<<n / 256, 256>>>(camera, image, n);
    float value = 0.0f;
    cudaMemcpy(&value, image + 70, sizeof value, cudaMemcpyDeviceToHost);
    std::printf("%g\n", value);
    cudaFree(image);
    return value == 259.0f ? 0 : 1;
}
