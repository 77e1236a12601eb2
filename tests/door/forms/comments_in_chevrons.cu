// launch split over many lines with comments between the <<< >>>
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

int main()
{
    // ------------------------------------------------------------------
    // Step 1: allocate
    // ------------------------------------------------------------------
    int rows = 64, cols = 512;
    size_t bytes = (size_t)rows * cols * sizeof(float);
    float *h_a = (float *)malloc(bytes);
    float *h_s = (float *)malloc(rows * sizeof(float));
    float *d_a, *d_s;
    cudaMalloc(&d_a, bytes);
    cudaMalloc(&d_s, rows * sizeof(float));

    // ------------------------------------------------------------------
    // Step 2: fill the matrix and copy it to the GPU
    // ------------------------------------------------------------------
    for (int i = 0; i < rows * cols; i++) h_a[i] = (float)(i % 10) / 2;
    cudaMemcpy(d_a, h_a, bytes, cudaMemcpyHostToDevice);

    // ------------------------------------------------------------------
    // Step 3: run it.  (old version was rowsum<<<1, 64>>>(d_a, d_s, 64, 512);)
    // ------------------------------------------------------------------
    rowsum
        <<<
            (rows + 31) / 32,   // blocks, rounded up (was: rows / 32)
            /* threads per block; >>> must be a multiple of the warp */ 32,
            0                   // no shared memory, (yet)
        >>>
        (
            d_a,                // input, row major
            d_s,                /* output */
            rows,
            cols                // one thread walks a whole row :(
        );

    // ------------------------------------------------------------------
    // Step 4: get the result back
    // ------------------------------------------------------------------
    cudaMemcpy(h_s, d_s, rows * sizeof(float), cudaMemcpyDeviceToHost);
    printf("h_s[0] = %f, h_s[1] = %f, h_s[63] = %f\n", h_s[0], h_s[1], h_s[63]);

    cudaFree(d_a);
    cudaFree(d_s);
    free(h_a);
    free(h_s);
    return 0;
}
