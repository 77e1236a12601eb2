// The structures of a block come and go as consecutive floats through shared memory, so that every access to global memory is coalesced.
// baseline: particles/particles.cu
// @requires count > 0 && gridDim.x * blockDim.x >= count && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(count, 64)) block=(64) args=(particles, count, ex, ey, ez, drag, dt)
__global__ void fast(Particle* particles, int count, float ex, float ey, float ez, float drag, float dt)
{
    __shared__ float s[64 * 9];                              // one float of padding a structure
    float* words = reinterpret_cast<float*>(particles + blockIdx.x * 64);
    const int mine = min(64, count - (int)blockIdx.x * 64);
    for (int e = threadIdx.x; e < mine * 8; e += 64) s[e / 8 * 9 + e % 8] = words[e];
    __syncthreads();
    if (threadIdx.x < mine) {
        float* p = s + threadIdx.x * 9;
        const float a = p[7] / p[3];
        const float field[3] = {ex, ey, ez};
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            p[4 + k] += dt * (a * field[k] - drag * p[4 + k]);
            p[k] += dt * p[4 + k];
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < mine * 8; e += 64) words[e] = s[e / 8 * 9 + e % 8];
}
