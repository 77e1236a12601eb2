// RGB pixels, three bytes each, to three planes of luma and chroma: one thread a pixel.
// colour_ycc [pixels [repeats]]
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Pixel { unsigned char r, g, b; };

__device__ unsigned char to_byte(float v) {
    return (unsigned char)(v < 0.0f ? 0.0f : v > 255.0f ? 255.0f : v);
}

__global__ void colour_ycc(const Pixel* rgb, unsigned char* luma, unsigned char* cb, unsigned char* cr,
                           int pixels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    float r = rgb[i].r, g = rgb[i].g, b = rgb[i].b;
    luma[i] = to_byte(0.299f * r + 0.587f * g + 0.114f * b + 0.5f);
    cb[i] = to_byte(-0.168736f * r - 0.331264f * g + 0.5f * b + 128.5f);
    cr[i] = to_byte(0.5f * r - 0.418688f * g - 0.081312f * b + 128.5f);
}

int main(int argc, char** argv) {
    int pixels = argc > 1 ? atoi(argv[1]) : 250000;
    int repeats = argc > 2 ? atoi(argv[2]) : 3;
    std::vector<Pixel> rgb(pixels);
    unsigned state = 5u;
    for (int i = 0; i < pixels; ++i) {
        state = state * 1664525u + 1013904223u;
        rgb[i].r = (unsigned char)(state >> 24);
        rgb[i].g = (unsigned char)(state >> 16);
        rgb[i].b = (unsigned char)((i * 3) & 255);
    }
    Pixel* d_rgb;
    unsigned char* plane[3];
    cudaMalloc(&d_rgb, (size_t)pixels * sizeof(Pixel));
    for (auto& p : plane) cudaMalloc(&p, pixels);
    cudaMemcpy(d_rgb, rgb.data(), (size_t)pixels * sizeof(Pixel), cudaMemcpyHostToDevice);
    int block = 256, grid = (pixels + block - 1) / block;
    colour_ycc<<<grid, block>>>(d_rgb, plane[0], plane[1], plane[2], pixels);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r)
        colour_ycc<<<grid, block>>>(d_rgb, plane[0], plane[1], plane[2], pixels);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    unsigned long long check = 0;
    std::vector<unsigned char> out(pixels);
    for (int p = 0; p < 3; ++p) {
        cudaMemcpy(out.data(), plane[p], pixels, cudaMemcpyDeviceToHost);
        for (int i = 0; i < pixels; ++i) check += (unsigned long long)out[i] * (i % 11 + p + 1);
        cudaFree(plane[p]);
    }
    printf("checksum %llu\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_rgb);
    return 0;
}
