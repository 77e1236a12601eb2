// A layer of 3 x 3 convolutions over an image of several channels, stride 1, zeros around it:
// one thread an output.
// conv3x3 [height [width [channels in [channels out [repeats]]]]]
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void conv3x3(const float* image, const float* weights, const float* bias, float* out,
                        int height, int width, int in, int filters) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int f = blockIdx.z;
    if (x >= width || y >= height) return;
    float sum = bias[f];
    for (int c = 0; c < in; ++c)
        for (int dy = -1; dy <= 1; ++dy)
            for (int dx = -1; dx <= 1; ++dx) {
                int yy = y + dy, xx = x + dx;
                if (yy < 0 || yy >= height || xx < 0 || xx >= width) continue;
                sum += image[(c * height + yy) * width + xx] *
                       weights[((f * in + c) * 3 + dy + 1) * 3 + dx + 1];
            }
    out[(f * height + y) * width + x] = sum > 0.0f ? sum : 0.0f;
}

int main(int argc, char** argv) {
    int height = argc > 1 ? atoi(argv[1]) : 37;
    int width = argc > 2 ? atoi(argv[2]) : 41;
    int in = argc > 3 ? atoi(argv[3]) : 5;
    int filters = argc > 4 ? atoi(argv[4]) : 6;
    int repeats = argc > 5 ? atoi(argv[5]) : 1;
    size_t image_n = (size_t)in * height * width, out_n = (size_t)filters * height * width;
    size_t weight_n = (size_t)filters * in * 9;
    std::vector<float> image(image_n), weights(weight_n), bias(filters), out(out_n);
    unsigned state = 88172645u;
    auto next = [&state] {
        state = state * 1664525u + 1013904223u;
        return (float)(state >> 8) / (1 << 24) - 0.5f;
    };
    for (float& v : image) v = next();
    for (float& v : weights) v = next();
    for (float& v : bias) v = next();
    float *di, *dw, *db, *dout;
    cudaMalloc(&di, image_n * sizeof(float));
    cudaMalloc(&dw, weight_n * sizeof(float));
    cudaMalloc(&db, filters * sizeof(float));
    cudaMalloc(&dout, out_n * sizeof(float));
    cudaMemcpy(di, image.data(), image_n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dw, weights.data(), weight_n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(db, bias.data(), filters * sizeof(float), cudaMemcpyHostToDevice);
    dim3 block(16, 16), grid((width + 15) / 16, (height + 15) / 16, filters);
    conv3x3<<<grid, block>>>(di, dw, db, dout, height, width, in, filters);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r)
        conv3x3<<<grid, block>>>(di, dw, db, dout, height, width, in, filters);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(out.data(), dout, out_n * sizeof(float), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (size_t i = 0; i < out_n; ++i) check += out[i] * (double)(i % 7 + 1);
    printf("checksum %.6f\n", check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(di);
    cudaFree(dw);
    cudaFree(db);
    cudaFree(dout);
    return 0;
}
