// Computes the upper rows and mirrors them (y -> -y); the captured view begins at y0 = -1.25 with as many rows on either side, a shifted one is not symmetric.
// catalogue: B8 C1
// baseline: escape_time/escape_time.cu
// stopped by: correctness_perturbed
// @launch escape_s grid=(ceil_div(w, 32), ceil_div(h / 2 + 1, 4)) block=(32, 4) args=(out, w, h, v, julia, cr, ci, limit, bail)
__global__ void escape_s(unsigned short *out, int w, int h, View v, bool julia, double cr, double ci, int limit, double bail)
{
    int px = blockIdx.x * 32 + threadIdx.x, py = blockIdx.y * 4 + threadIdx.y;
    if (px >= w || py > h / 2 || py >= h) return;
    double x = v.x0 + px * v.dx, y = v.y0 + py * v.dy;
    double zr = x, zi = y, kr = julia ? cr : x, ki = julia ? ci : y;
    int it = 0;
    while (it < limit && zr * zr + zi * zi <= bail) {
        double t = zr * zr - zi * zi + kr;
        zi = 2 * zr * zi + ki;
        zr = t;
        ++it;
    }
    out[py * w + px] = (unsigned short)it;
    if (py > 0 && py < h - py) out[(h - py) * w + px] = (unsigned short)it;
}
