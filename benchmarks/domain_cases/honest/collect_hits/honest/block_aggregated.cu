// A block gathers its hits by a counter in shared memory, reserves places with one global atomic and copies the list out as consecutive ints.
// baseline: collect_hits/collect_hits.cu
// @requires length > 0 && channels > 0 && gridDim.x * blockDim.x >= length && gridDim.y >= channels && gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(length, 256), channels) block=(128) args=(samples, hits, n_hits, length, threshold)
__global__ void fast(const short* __restrict__ samples, Hit* hits, int* n_hits, int length, short threshold)
{
    __shared__ Hit list[256];
    __shared__ int held, base;
    if (threadIdx.x == 0) held = 0;
    __syncthreads();
    const int c = blockIdx.y;
    for (int e = 0; e < 2; ++e) {
        const int t = blockIdx.x * 256 + e * 128 + threadIdx.x;
        if (t >= length) break;
        const short s = samples[c * length + t];
        if (s > threshold) list[atomicAdd(&held, 1)] = Hit{c, t, s - threshold};
    }
    __syncthreads();
    if (threadIdx.x == 0 && held) base = atomicAdd(n_hits, held);
    __syncthreads();
    for (int k = threadIdx.x; k < held * 3; k += 128) reinterpret_cast<int*>(hits + base)[k] = reinterpret_cast<const int*>(list)[k];
}
