// All halvings in a row are one shift by the number of trailing zeros, cut where the cap is reached; zero is its own successor.
// baseline: collatz/collatz.cu
// @requires n > 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 64)) block=(64) args=(steps, first, n, cap)
__global__ void fast(int* steps, unsigned long long first, int n, int cap)
{
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = first + i;
    int k = 0;
    while (v != 1 && k < cap) {
        if (v & 1) { v = 3 * v + 1; ++k; }
        else if (v == 0) k = cap;
        else {
            const int shift = min(__ffsll((long long)v) - 1, cap - k);
            v >>= shift;
            k += shift;
        }
    }
    steps[i] = k;
}
