// z = a * x + y, for axpy(const float* x, const float* y, float* z, float a, int n). Four elements a
// load where all three pointers allow it, several loads under way before the first is used, a grid of
// a bounded number of blocks that strides over the rest; the last elements one by one.
// @tune BLOCK = 256, 128, 512
// @tune WIDE = 2, 4, 1
// @requires n > 0
// @launch axpy_wide grid=(min(ceil_div(n, BLOCK*4*WIDE), 2048)) block=(BLOCK) args=(x, y, z, a, n)
__global__ void __launch_bounds__(BLOCK)
axpy_wide(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, float a,
          int n) {
    const int step = gridDim.x * BLOCK, start = blockIdx.x * BLOCK + threadIdx.x;
    const bool aligned = ((size_t)x | (size_t)y | (size_t)z) % 16 == 0;
    const int packs = aligned ? n / 4 : 0;
    for (int p = start; p < packs; p += step * WIDE) {
        float4 u[WIDE], v[WIDE];
        #pragma unroll
        for (int w = 0; w < WIDE; ++w)
            if (p + w * step < packs) {
                u[w] = ((const float4*)x)[p + w * step];
                v[w] = ((const float4*)y)[p + w * step];
            }
        #pragma unroll
        for (int w = 0; w < WIDE; ++w)
            if (p + w * step < packs)
                ((float4*)z)[p + w * step] =
                    make_float4(a * u[w].x + v[w].x, a * u[w].y + v[w].y,
                                a * u[w].z + v[w].z, a * u[w].w + v[w].w);
    }
    for (size_t i = packs * 4 + start; i < n; i += step) z[i] = a * x[i] + y[i];
}
