// A thread takes sixteen characters as four words, compares bytes by __vcmpeq4, and the block adds once to each counter; a scalar tail.
// baseline: word_count/word_count.cu
// @requires length > 0 && aligned(text, 16) && gridDim.x * blockDim.x >= length && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(length, 2048)) block=(128) args=(text, length, words, lines)
__device__ __forceinline__ unsigned one_bit_a_byte(unsigned m)         // 0xff or 0 a byte -> four bits
{
    m &= 0x08040201u;
    return (m | m >> 8 | m >> 16 | m >> 24) & 15u;
}
__global__ void fast(const char* __restrict__ text, int length, unsigned* words, unsigned* lines)
{
    __shared__ unsigned sums[2];
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    const int first = (blockIdx.x * 128 + threadIdx.x) * 16;
    unsigned w = 0, l = 0;
    if (first < length) {
        unsigned gap = first == 0 || blank(text[first - 1]);            // bit 0: the character before
        if (length - first >= 16) {
            const uint4 v = *reinterpret_cast<const uint4*>(text + first);
            const unsigned part[4] = {v.x, v.y, v.z, v.w};
            unsigned ends = 0;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const unsigned nl = __vcmpeq4(part[k], 0x0a0a0a0au);
                const unsigned bl = nl | __vcmpeq4(part[k], 0x20202020u) | __vcmpeq4(part[k], 0x09090909u);
                ends |= one_bit_a_byte(nl) << 4 * k;
                gap |= one_bit_a_byte(bl) << (4 * k + 1);
            }
            w = __popc(~(gap >> 1) & gap & 0xffffu);
            l = __popc(ends);
        } else {
            bool before = gap;
            for (int i = first; i < length; ++i) {
                const bool now = blank(text[i]);
                w += before && !now;
                l += text[i] == '\n';
                before = now;
            }
        }
    }
    w = __reduce_add_sync(0xffffffffu, w);
    l = __reduce_add_sync(0xffffffffu, l);
    if ((threadIdx.x & 31) == 0) { atomicAdd(&sums[0], w); atomicAdd(&sums[1], l); }
    __syncthreads();
    if (threadIdx.x == 0 && sums[0]) atomicAdd(words, sums[0]);
    if (threadIdx.x == 1 && sums[1]) atomicAdd(lines, sums[1]);
}
