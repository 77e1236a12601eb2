#pragma once
template <typename T>
__global__ void normalise_rows(const T* in, T* out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    T sum = 0;
    for (int c = 0; c < columns; c++) sum += in[row * columns + c] * in[row * columns + c];
    T by = rsqrtf(sum / columns + T(EPS));
    for (int c = 0; c < columns; c++) out[row * columns + c] = in[row * columns + c] * by;
}
