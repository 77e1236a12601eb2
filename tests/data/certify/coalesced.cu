// Written for cudaops: the same sums, each warp on neighbouring elements.
// @launch rows grid=(gridDim.x) block=(blockDim.x) args=(x, y, n)
__global__ void rows(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < 32; ++k) sum += x[(i + k * 64) % n] * x[(i + k * 96) % n];
    y[i] = sum;
}
