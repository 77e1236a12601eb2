// Eight threads a column run Welford's update over their rows and are merged by Chan's formula in shared memory; a plain sum beside it gives the mean.
// baseline: column_moments/column_moments.cu
// @requires n_rows > 0 && n_cols > 0 && gridDim.x * blockDim.x >= n_cols && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n_cols, 32)) block=(32, 8) args=(data, mean, variance, n_rows, n_cols)
__global__ void fast(const float* __restrict__ data, float* __restrict__ mean, float* __restrict__ variance, int n_rows, int n_cols)
{
    __shared__ float part_mu[8][32], part_m2[8][32], part_sum[8][32];
    const int col = blockIdx.x * 32 + threadIdx.x;
    float mu = 0.f, m2 = 0.f, sum = 0.f;
    int n = 0;
    if (col < n_cols)
        for (int r = threadIdx.y; r < n_rows; r += 8) {
            const float v = data[r * n_cols + col];
            const float d = v - mu;
            ++n;
            sum += v;
            mu += d / n;
            m2 += d * (v - mu);
        }
    part_mu[threadIdx.y][threadIdx.x] = mu;
    part_m2[threadIdx.y][threadIdx.x] = m2;
    part_sum[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= n_cols) return;
    for (int k = 1; k < 8; ++k) {
        const int other = (n_rows - k + 7) / 8;          // rows that thread k has seen; may be none
        if (n_rows <= k) break;
        const float d = part_mu[k][threadIdx.x] - mu;
        const int both = n + other;
        mu += d * ((float)other / both);
        m2 += part_m2[k][threadIdx.x] + d * d * ((float)n * other / both);
        sum += part_sum[k][threadIdx.x];
        n = both;
    }
    mean[col] = sum / n_rows;
    variance[col] = m2 / n_rows;
}
