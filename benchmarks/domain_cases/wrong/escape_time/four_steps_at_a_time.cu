// Makes whole groups of four steps, so that a limit that is no multiple of four is overrun by up to three; the captured limit is 64.
// catalogue: C6 B8
// baseline: escape_time/escape_time.cu
// stopped by: correctness_perturbed
// @launch escape_4 grid=(ceil_div(w, 32), ceil_div(h, 4)) block=(32, 4) args=(out, w, h, v, julia, cr, ci, limit, bail)
__global__ void escape_4(unsigned short *out, int w, int h, View v, bool julia, double cr, double ci, int limit, double bail)
{
    int px = blockIdx.x * 32 + threadIdx.x, py = blockIdx.y * 4 + threadIdx.y;
    if (px >= w || py >= h) return;
    double zr = v.x0 + px * v.dx, zi = v.y0 + py * v.dy, kr = julia ? cr : zr, ki = julia ? ci : zi;
    int it = 0;
    bool in = true;
    while (in && it < limit) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            double rr = zr * zr, ii = zi * zi;
            in = in && rr + ii <= bail;
            if (in) {
                zi = 2 * zr * zi + ki;
                zr = rr - ii + kr;
                ++it;
            }
        }
    }
    out[py * w + px] = (unsigned short)it;
}
