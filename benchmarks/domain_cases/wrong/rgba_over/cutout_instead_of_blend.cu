// Chooses one of the two pixels by the top bit of alpha: the captured sprite is opaque or clear everywhere.
// catalogue: C7
// baseline: rgba_over/rgba_over.cu
// stopped by: correctness_perturbed
// @launch cutout grid=(ceil_div(w, 32), ceil_div(h, 8)) block=(32, 8) args=(fg, fg_pitch, bg, bg_pitch, w, h)
__global__ void cutout(const uchar4 *__restrict__ fg, int fg_pitch, uchar4 *bg, int bg_pitch, int w, int h)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= w || y >= h) return;
    uchar4 f = fg[y * fg_pitch + x];
    if (f.w & 128) bg[y * bg_pitch + x] = make_uchar4(f.x, f.y, f.z, 255);
}
