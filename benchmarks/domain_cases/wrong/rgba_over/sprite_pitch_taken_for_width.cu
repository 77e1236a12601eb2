// Goes through both images as one array, with w for both pitches, which are equal in the captured launch.
// catalogue: C6 B8
// baseline: rgba_over/rgba_over.cu
// stopped by: correctness_perturbed
// @launch over_flat grid=(ceil_div(w * h, 256)) block=(256) args=(fg, bg, w * h)
__global__ void over_flat(const uchar4 *__restrict__ fg, uchar4 *bg, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    uchar4 f = fg[i], b = bg[i];
    bg[i] = make_uchar4(blend(f.x, b.x, f.w), blend(f.y, b.y, f.w), blend(f.z, b.z, f.w), blend(255, b.w, f.w));
}
