// Heat on a plate: five-point stencil, fixed border, two buffers in turn.
// stencil5 [width [height [steps]]]
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void stencil5(const double* in, double* out, int width, int height, double alpha) {
    int y = blockIdx.x * blockDim.x + threadIdx.x;
    int x = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int at = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[at] = in[at];
        return;
    }
    out[at] = in[at] + alpha * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width] - 4.0 * in[at]);
}

int main(int argc, char** argv) {
    int width = argc > 1 ? atoi(argv[1]) : 500;
    int height = argc > 2 ? atoi(argv[2]) : 300;
    int steps = argc > 3 ? atoi(argv[3]) : 4;
    size_t n = (size_t)width * height;
    std::vector<double> plate(n, 20.0);
    for (int x = 0; x < width; ++x) plate[x] = 100.0;
    for (int y = height / 4; y < height / 2; ++y)
        for (int x = width / 4; x < width / 2; ++x) plate[(size_t)y * width + x] = 400.0 + (x * y) % 17;
    double *a, *b;
    cudaMalloc(&a, n * sizeof(double));
    cudaMalloc(&b, n * sizeof(double));
    cudaMemcpy(a, plate.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    dim3 block(16, 16), grid((height + 15) / 16, (width + 15) / 16);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int s = 0; s < steps; ++s) {
        stencil5<<<grid, block>>>(a, b, width, height, 0.2);
        double* t = a; a = b; b = t;
    }
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(plate.data(), a, n * sizeof(double), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (size_t i = 0; i < n; ++i) check += plate[i] * (double)(i % 5 + 1);
    printf("checksum %.6f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / steps);
    cudaFree(a);
    cudaFree(b);
    return 0;
}
