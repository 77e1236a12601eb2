// An odd step and the halving that always follows it are one step, v + v/2 + 1, while 3 v + 1 cannot overflow and two steps are left.
// baseline: collatz/collatz.cu
// @requires n > 0 && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n, 128)) block=(128) args=(steps, first, n, cap)
__global__ void fast(int* steps, unsigned long long first, int n, int cap)
{
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = first + i;
    int k = 0;
    while (v != 1 && cap - k >= 2 && v < 0x4000000000000000ull) {
        const int odd = (int)(v & 1);
        v = (v >> 1) + (odd ? v + 1 : 0);
        k += 1 + odd;
    }
    while (v != 1 && k < cap) {
        v = (v & 1) ? 3 * v + 1 : v >> 1;
        ++k;
    }
    steps[i] = k;
}
