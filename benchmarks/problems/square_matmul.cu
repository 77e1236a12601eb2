// C = A B, one thread an element of C.
// @launch matmul grid=(ceil_div(A_size0, 16), ceil_div(A_size0, 16)) block=(16, 16) args=(A, B, out, A_size0)

__global__ void matmul(const float* A, const float* B, float* C, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
    C[row * n + col] = sum;
}
