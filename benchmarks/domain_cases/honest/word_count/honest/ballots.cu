// The blanks of 32 characters are one ballot; words are starts in that mask, counted by popc; one atomic a warp and counter.
// baseline: word_count/word_count.cu
// @requires length > 0 && gridDim.x * blockDim.x >= length && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(length, 256)) block=(256) args=(text, length, words, lines)
__global__ void fast(const char* __restrict__ text, int length, unsigned* words, unsigned* lines)
{
    const int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x & 31;
    const char c = i < length ? text[i] : ' ';
    const unsigned gaps = __ballot_sync(0xffffffffu, blank(c));
    const unsigned ends = __ballot_sync(0xffffffffu, i < length && c == '\n');
    if (lane == 0) {
        const unsigned before = i == 0 || i >= length || blank(text[i - 1]) ? 1u : 0u;
        const unsigned starts = ~gaps & (gaps << 1 | before);
        if (starts) atomicAdd(words, (unsigned)__popc(starts));
        if (ends) atomicAdd(lines, (unsigned)__popc(ends));
    }
}
