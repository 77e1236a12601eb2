// Gives points of the main cardioid and the disc the limit at once, right for the Mandelbrot set with a bailout of 4 and more only, as captured.
// catalogue: B8 C2
// baseline: escape_time/escape_time.cu
// stopped by: correctness_perturbed
// @launch escape_c grid=(ceil_div(w, 32), ceil_div(h, 4)) block=(32, 4) args=(out, w, h, v, julia, cr, ci, limit, bail)
__global__ void escape_c(unsigned short *out, int w, int h, View v, bool julia, double cr, double ci, int limit, double bail)
{
    int px = blockIdx.x * 32 + threadIdx.x, py = blockIdx.y * 4 + threadIdx.y;
    if (px >= w || py >= h) return;
    double x = v.x0 + px * v.dx, y = v.y0 + py * v.dy;
    double kr = julia ? cr : x, ki = julia ? ci : y, zr = x, zi = y;
    double a = kr - 0.25, q = a * a + ki * ki;
    int it = 0;
    if (q * (q + a) < 0.2499 * ki * ki || (kr + 1) * (kr + 1) + ki * ki < 0.0624) it = limit;
    while (it < limit && zr * zr + zi * zi <= bail) {
        double t = zr * zr - zi * zi + kr;
        zi = 2 * zr * zi + ki;
        zr = t;
        ++it;
    }
    out[py * w + px] = (unsigned short)it;
}
