// one dynamic extern __shared__ block carved into arrays of two types
#include <cstdio>
#include <vector>

// per block: best value and the place it came from
__global__ void block_argmin(const double *x, int n, double *best, int *where)
{
    extern __shared__ __align__(16) unsigned char smem[];
    double *val = reinterpret_cast<double *>(smem);
    int *idx = reinterpret_cast<int *>(val + blockDim.x);

    const int t = threadIdx.x;
    double v = 1e300;
    int p = -1;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x)
        if (x[i] < v) {
            v = x[i];
            p = i;
        }
    val[t] = v;
    idx[t] = p;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s && (val[t + s] < val[t] || (val[t + s] == val[t] && idx[t + s] < idx[t]))) {
            val[t] = val[t + s];
            idx[t] = idx[t + s];
        }
        __syncthreads();
    }
    if (t == 0) {
        best[blockIdx.x] = val[0];
        where[blockIdx.x] = idx[0];
    }
}

int main()
{
    const int n = 20000, threads = 256, blocks = 8;
    std::vector<double> x(n);
    for (int i = 0; i < n; ++i)
        x[i] = (i - 12345.0) * (i - 12345.0) + (i % 10);

    double *dx, *dbest;
    int *dwhere;
    cudaMalloc(&dx, n * sizeof(double));
    cudaMalloc(&dbest, blocks * sizeof(double));
    cudaMalloc(&dwhere, blocks * sizeof(int));
    cudaMemcpy(dx, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);

    const size_t shmem = threads * (sizeof(double) + sizeof(int));
    block_argmin<<<blocks, threads, shmem>>>(dx, n, dbest, dwhere);

    double best[blocks];
    int where[blocks];
    cudaMemcpy(best, dbest, sizeof best, cudaMemcpyDeviceToHost);
    cudaMemcpy(where, dwhere, sizeof where, cudaMemcpyDeviceToHost);
    int b = 0;
    for (int k = 1; k < blocks; ++k)
        if (best[k] < best[b]) b = k;
    std::printf("min %.1f at %d (block %d)\n", best[b], where[b], b);
    cudaFree(dx);
    cudaFree(dbest);
    cudaFree(dwhere);
    return 0;
}
