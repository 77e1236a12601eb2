// Written for cudaops: a rewrite of `block_sums` in programs/reduction.cu; it need not compute anything.
// @launch sums grid=(gridDim.x) block=(blockDim.x) smem=smem args=(data, sums, n)
__global__ void sums(const float* d, float* s, int n) { s[0] = warp_sum(d[0]); }
