// Sparse matrix in CSR times a vector: one thread a row; rows of very different lengths.
// spmv_csr [rows [repeats]]
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void spmv_csr(const int* row_start, const int* col, const float* val, const float* x,
                         float* y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = row_start[row]; k < row_start[row + 1]; ++k) sum += val[k] * x[col[k]];
    y[row] = sum;
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 3000;
    int repeats = argc > 2 ? atoi(argv[2]) : 3;
    std::vector<int> row_start(rows + 1, 0), col;
    std::vector<float> val, x(rows), y(rows);
    unsigned state = 99u;
    for (int r = 0; r < rows; ++r) {
        state = state * 1664525u + 1013904223u;
        int length = 8 + (state >> 16) % 48;
        if (r % 61 == 0) length += 200;
        for (int k = 0; k < length; ++k) {
            state = state * 1664525u + 1013904223u;
            col.push_back((int)((state >> 8) % (unsigned)rows));
            val.push_back((float)(state >> 20) / 4096.0f - 0.5f);
        }
        row_start[r + 1] = (int)col.size();
        x[r] = (float)(r % 17) / 17.0f;
    }
    size_t nnz = col.size();
    int *d_row, *d_col;
    float *d_val, *d_x, *d_y;
    cudaMalloc(&d_row, (rows + 1) * sizeof(int));
    cudaMalloc(&d_col, nnz * sizeof(int));
    cudaMalloc(&d_val, nnz * sizeof(float));
    cudaMalloc(&d_x, rows * sizeof(float));
    cudaMalloc(&d_y, rows * sizeof(float));
    cudaMemcpy(d_row, row_start.data(), (rows + 1) * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(d_col, col.data(), nnz * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(d_val, val.data(), nnz * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(d_x, x.data(), rows * sizeof(float), cudaMemcpyHostToDevice);
    int block = 128, grid = (rows + block - 1) / block;
    spmv_csr<<<grid, block>>>(d_row, d_col, d_val, d_x, d_y, rows);
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start);
    for (int r = 0; r < repeats; ++r) spmv_csr<<<grid, block>>>(d_row, d_col, d_val, d_x, d_y, rows);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    cudaMemcpy(y.data(), d_y, rows * sizeof(float), cudaMemcpyDeviceToHost);
    double check = 0.0;
    for (int r = 0; r < rows; ++r) check += y[r] * (double)(r % 3 + 1);
    printf("nonzeros %zu checksum %.4f\n", nnz, check);
    fprintf(stderr, "KERNEL_MS: %.6f\n", ms / repeats);
    cudaFree(d_row);
    cudaFree(d_col);
    cudaFree(d_val);
    cudaFree(d_x);
    cudaFree(d_y);
    return 0;
}
