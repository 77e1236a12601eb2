// Four cells a 32-bit word: neighbours are bytes shifted across word borders, added as packed bytes; the rule is bit logic on the sums.
// baseline: life/life.cu
// @requires w > 0 && h > 0 && w % 4 == 0 && aligned(from, 4) && aligned(to, 4) && gridDim.x * blockDim.x >= w && gridDim.y * blockDim.y >= h && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(w / 4, 32), ceil_div(h, 4)) block=(32, 4) args=(from, to, w, h)
__global__ void fast(const cell* __restrict__ from, cell* __restrict__ to, int w, int h)
{
    const int words = w / 4, x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= words || y >= h) return;
    const unsigned* in = reinterpret_cast<const unsigned*>(from);
    const int left = x == 0 ? words - 1 : x - 1, right = x == words - 1 ? 0 : x + 1;
    unsigned sum = 0, mine = 0;
#pragma unroll
    for (int dy = -1; dy <= 1; ++dy) {
        const int yy = y + dy < 0 ? h - 1 : y + dy == h ? 0 : y + dy;
        const unsigned* row = in + yy * words;
        const unsigned c = row[x] & 0x01010101u;
        sum += (c << 8 | (row[left] >> 24 & 1u)) + (c >> 8 | (row[right] & 1u) << 24);
        if (dy == 0) mine = c; else sum += c;
    }
    // Each byte is 0..8: alive when it is 3, or 2 with the cell alive, that is (sum | mine) == 3.
    const unsigned v = sum | mine;
    reinterpret_cast<unsigned*>(to)[y * words + x] = v & (v >> 1) & ~(v >> 2) & ~(v >> 3) & 0x01010101u;
}
