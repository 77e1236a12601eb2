__global__ void scale_kernel(float* values, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= by;
}
void scale(float* values, float by, int n) { scale_kernel<<<(n + 255) / 256, 256>>>(values, by, n); }
