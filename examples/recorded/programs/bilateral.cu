// Bilateral filter of a grey image: weights by distance and by difference of brightness.
// bilateral [width [height [radius [repeats]]]]
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>

__global__ void bilateral(const float* in, float* out, int width, int height, int radius, float sigma_s,
                          float sigma_r) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float centre = in[y * width + x];
    float sum = 0.0f, weights = 0.0f;
    for (int dy = -radius; dy <= radius; ++dy) {
        for (int dx = -radius; dx <= radius; ++dx) {
            int u = min(max(x + dx, 0), width - 1);
            int v = min(max(y + dy, 0), height - 1);
            float value = in[v * width + u];
            float far = (float)(dx * dx + dy * dy) / (2.0f * sigma_s * sigma_s);
            float differ = (value - centre) * (value - centre) / (2.0f * sigma_r * sigma_r);
            float weight = expf(-far) * expf(-differ);
            sum += weight * value;
            weights += weight;
        }
    }
    out[y * width + x] = sum / weights;
}

int main(int argc, char** argv) {
    int width = argc > 1 ? atoi(argv[1]) : 200;
    int height = argc > 2 ? atoi(argv[2]) : 120;
    int radius = argc > 3 ? atoi(argv[3]) : 3;
    int repeats = argc > 4 ? atoi(argv[4]) : 2;
    size_t n = (size_t)width * height;
    std::vector<float> image(n);
    unsigned state = 13u;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        float noise = (float)(state >> 8) / (1 << 24) * 0.1f;
        image[i] = ((i % width) / 16 + (i / width) / 16) % 2 ? 0.8f + noise : 0.1f + noise;
    }
    float *d_in, *d_out;
    cudaMalloc(&d_in, n * sizeof(float));
    cudaMalloc(&d_out, n * sizeof(float));
    cudaMemcpy(d_in, image.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(16, 16), grid((width + 15) / 16, (height + 15) / 16);
    bilateral<<<grid, block>>>(d_in, d_out, width, height, radius, 2.0f, 0.2f);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r)
        bilateral<<<grid, block>>>(d_in, d_out, width, height, radius, 2.0f, 0.2f);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(image.data(), d_out, n * sizeof(float), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (size_t i = 0; i < n; ++i) check += image[i] * (double)(i % 5 + 1);
    printf("checksum %.4f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_in);
    cudaFree(d_out);
    return 0;
}
