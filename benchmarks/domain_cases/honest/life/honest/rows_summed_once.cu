// A thread goes down twelve rows of a column with the sums of three cells of the rows around in registers.
// baseline: life/life.cu
// @requires w > 0 && h > 0 && gridDim.x * blockDim.x >= w && gridDim.y * blockDim.y >= h && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(w, 32), ceil_div(h, 12)) block=(32) args=(from, to, w, h)
__global__ void fast(const cell* __restrict__ from, cell* __restrict__ to, int w, int h)
{
    const int x = blockIdx.x * 32 + threadIdx.x;
    if (x >= w) return;
    const int left = x == 0 ? w - 1 : x - 1, right = x == w - 1 ? 0 : x + 1;
    const int begin = blockIdx.y * 12, end = min(begin + 12, h);
    const cell* up = from + (begin == 0 ? h - 1 : begin - 1) * w;
    const cell* at = from + begin * w;
    int above = (up[left] & 1) + (up[x] & 1) + (up[right] & 1);
    int me = at[x] & 1, middle = (at[left] & 1) + me + (at[right] & 1);
    for (int y = begin; y < end; ++y) {
        const cell* down = from + (y == h - 1 ? 0 : y + 1) * w;
        const int next = down[x] & 1, below = (down[left] & 1) + next + (down[right] & 1);
        const int all = above + middle + below;               // with the cell itself
        to[y * w + x] = all == 3 || (all == 4 && me);
        above = middle;
        middle = below;
        me = next;
    }
}
