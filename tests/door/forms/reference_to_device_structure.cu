// parameters that are references to what cudaMalloc gave: dereferenced on the host, read on the device
#include <cstdio>
#include <vector>

struct Grid { int w, h; float scale; };

__global__ void shade(const Grid& grid, unsigned& counted, float* image)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= grid.w || y >= grid.h) return;
    image[y * grid.w + x] = grid.scale * float((x * 31 + y * 17) % 101);
    if ((x ^ y) % 8 == 0) atomicAdd(&counted, 1u);
}

int main()
{
    Grid grid{100, 60, 0.5f}, *dgrid;
    unsigned counted = 0, *dcounted;
    std::vector<float> image(grid.w * grid.h);
    float* dimage;
    cudaMalloc(&dgrid, sizeof grid);
    cudaMalloc(&dcounted, sizeof counted);
    cudaMalloc(&dimage, image.size() * sizeof(float));
    cudaMemcpy(dgrid, &grid, sizeof grid, cudaMemcpyHostToDevice);
    cudaMemset(dcounted, 0, sizeof counted);
    dim3 block(16, 16), blocks((grid.w + 15) / 16, (grid.h + 15) / 16);
    shade<<<blocks, block>>>(*dgrid, *dcounted, dimage);
    cudaMemcpy(image.data(), dimage, image.size() * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(&counted, dcounted, sizeof counted, cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : image) sum += v;
    std::printf("counted %u sum %.1f\n", counted, sum);
    cudaFree(dgrid), cudaFree(dcounted), cudaFree(dimage);
}
