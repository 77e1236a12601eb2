// Written for cudaops: structures passed by value that hold pointers, typed and `void*`, nested, in
// an array, one null, one that nothing was stored in.
#include <cstdio>
#include <cuda_runtime.h>

struct View {
    const float* data;
    int          rows, columns;
};
struct Layer {
    View        input;
    const void* weights;  // float
    float*      partial[2];
    const float* bias;    // may be null
    float*      unused;
    float       scale;
};

__global__ void forward(Layer layer, int* rows_done) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= layer.input.rows) return;
    const float* weights = reinterpret_cast<const float*>(layer.weights);
    for (int part = 0; part < 2; part++) {
        float sum = layer.bias ? layer.bias[row] : 0.0f;
        for (int k = part; k < layer.input.columns; k += 2)
            sum += layer.scale * layer.input.data[row * layer.input.columns + k] * weights[k];
        layer.partial[part][row] = sum;
    }
    rows_done[row] = row;
}

int main() {
    const int rows = 512, columns = 256;
    static float host[rows * columns];
    for (int i = 0; i < rows * columns; i++) host[i] = (i * 37 % 101) / 50.0f - 1.0f;
    float *data, *weights, *partial;
    int* done;
    cudaMalloc(&data, sizeof(host));
    cudaMalloc(&weights, columns * sizeof(float));
    cudaMalloc(&partial, 2 * rows * sizeof(float));
    cudaMalloc(&done, rows * sizeof(int));
    cudaMemcpy(data, host, sizeof(host), cudaMemcpyHostToDevice);
    cudaMemcpy(weights, host, columns * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(partial, 0, 2 * rows * sizeof(float));
    Layer layer{{data, rows, columns}, weights, {partial, partial + rows}, nullptr, host, 0.5f};
    for (int i = 0; i < 3; i++) forward<<<(rows + 63) / 64, 64>>>(layer, done);
    cudaMemcpy(host, partial, 2 * rows * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (int i = 0; i < 2 * rows; i++) sum += host[i];
    printf("checksum %.6e\n", sum);
    return 0;
}
