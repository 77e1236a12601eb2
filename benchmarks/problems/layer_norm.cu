// Layer norm, one block a row: mean, then variance, then the row itself.
// @launch layer_norm grid=(x_size0) block=(THREADS) args=(x, weight, bias, out, features, eps)

#define THREADS 256

__device__ float block_sum(float value) {
    __shared__ float partial[THREADS];
    int t = threadIdx.x;
    __syncthreads();
    partial[t] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    return partial[0];
}

__global__ void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                           int features, float eps) {
    const float* row = x + blockIdx.x * features;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) sum += row[i];
    float mean = block_sum(sum) / features;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) {
        squares += (row[i] - mean) * (row[i] - mean);
    }
    float variance = block_sum(squares) / features;
    for (int i = threadIdx.x; i < features; i += THREADS) {
        y[blockIdx.x * features + i] =
            (row[i] - mean) / sqrtf(variance + eps) * weight[i] + bias[i];
    }
}
