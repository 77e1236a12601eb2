#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <cuda_bf16.h>

// dbias[oc] += sum over batch and time of dout[b, t, oc]
__global__ void bias_backward(__nv_bfloat16 *dbias, const __nv_bfloat16 *dout, int B, int T, int OC) {
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= OC) return;
    double sum = 0.0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            sum += (double)__bfloat162float(dout[b * T * OC + t * OC + o]);
        }
    }
    dbias[o] = __float2bfloat16(__bfloat162float(dbias[o]) + (float)sum);
}

int main() {
    const int B = 8, T = 512, OC = 2304;
    size_t n = (size_t)B * T * OC;
    __nv_bfloat16 *h = (__nv_bfloat16 *)malloc(n * 2), *d, *db;
    srand(7);
    for (size_t i = 0; i < n; i++) h[i] = __float2bfloat16((rand() % 2001 - 1000) / 1000.0f);
    cudaMalloc(&d, n * 2);
    cudaMalloc(&db, OC * 2);
    cudaMemset(db, 0, OC * 2);
    cudaMemcpy(d, h, n * 2, cudaMemcpyHostToDevice);
    bias_backward<<<(OC + 127) / 128, 128>>>(db, d, B, T, OC);
    __nv_bfloat16 *r = (__nv_bfloat16 *)malloc(OC * 2);
    cudaMemcpy(r, db, OC * 2, cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < OC; i++) s += fabs(__bfloat162float(r[i]));
    printf("checksum %.3f\n", s);
}
