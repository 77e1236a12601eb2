// Written for cudaops: a matrix product in a header, one-dimensional blocks, a template parameter.
#pragma once

template <int THREADS>
__global__ void __launch_bounds__(THREADS) dense_layer(const float *__restrict__ weights,
                                                       const float *__restrict__ inputs,
                                                       float *__restrict__ outputs, int rows,
                                                       int cols, int inner) {
    const int index = blockIdx.x * THREADS + threadIdx.x;
    if (index >= rows * cols) return;
    const int r = index / cols;
    const int c = index % cols;
    float sum = 0.0f;
    for (int i = 0; i < inner; ++i) sum += weights[r * inner + i] * inputs[i * cols + c];
    outputs[index] = sum;
}
