// Written for cudaops: a rewrite of `forward` in programs/struct_pointers.cu: a warp a row.
// @launch forward_warp grid=(gridDim.x * blockDim.x / 4) block=(128) args=(layer, rows_done)
__global__ void forward_warp(Layer layer, int* rows_done) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= layer.input.rows) return;
    const float* weights = reinterpret_cast<const float*>(layer.weights);
    float sums[2] = {0.0f, 0.0f};
    for (int k = lane; k < layer.input.columns; k += 32)
        sums[k & 1] += layer.scale * layer.input.data[row * layer.input.columns + k] * weights[k];
    for (int part = 0; part < 2; part++) {
        for (int step = 16; step > 0; step /= 2)
            sums[part] += __shfl_down_sync(0xffffffffu, sums[part], step);
        if (lane == 0) layer.partial[part][row] = sums[part] + (layer.bias ? layer.bias[row] : 0.0f);
    }
    if (lane == 0) rows_done[row] = row;
}
