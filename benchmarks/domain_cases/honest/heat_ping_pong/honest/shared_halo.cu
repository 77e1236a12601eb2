// A 32 x 8 tile and its halo in shared memory; out-of-range places are never read.
// baseline: heat_ping_pong/heat_ping_pong.cu
// @requires nx > 0 && ny > 0 && gridDim.x * blockDim.x >= nx && gridDim.y * blockDim.y >= ny && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(nx, 32), ceil_div(ny, 8)) block=(32, 8) args=(now, then, nx, ny, k)
__global__ void fast(const float* __restrict__ now, float* __restrict__ then, int nx, int ny, float k)
{
    __shared__ float s[10][34];
    const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    const int i = threadIdx.x + 1, j = threadIdx.y + 1;
    const bool here = c < nx && r < ny;
    if (here) {
        s[j][i] = now[r * nx + c];
        if (i == 1 && c > 0) s[j][0] = now[r * nx + c - 1];
        if (i == 32 && c + 1 < nx) s[j][33] = now[r * nx + c + 1];
        if (j == 1 && r > 0) s[0][i] = now[(r - 1) * nx + c];
        if (j == 8 && r + 1 < ny) s[9][i] = now[(r + 1) * nx + c];
    }
    __syncthreads();
    if (!here) return;
    float v = s[j][i];
    if (c > 0 && r > 0 && c < nx - 1 && r < ny - 1)
        v = fmaf(k, s[j][i - 1] + s[j][i + 1] + s[j - 1][i] + s[j + 1][i] - 4.0f * v, v);
    then[r * nx + c] = v;
}
