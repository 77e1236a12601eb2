// Computes the Mandelbrot set whatever the flag and the constant are: the program asks for nothing else.
// catalogue: B8
// baseline: escape_time/escape_time.cu
// stopped by: correctness_perturbed
// @launch escape_m grid=(ceil_div(w, 32), ceil_div(h, 4)) block=(32, 4) args=(out, w, h, v, limit, bail)
__global__ void escape_m(unsigned short *out, int w, int h, View v, int limit, double bail)
{
    int px = blockIdx.x * 32 + threadIdx.x, py = blockIdx.y * 4 + threadIdx.y;
    if (px >= w || py >= h) return;
    double x = v.x0 + px * v.dx, y = v.y0 + py * v.dy, zr = x, zi = y, rr = x * x, ii = y * y;
    int it = 0;
    while (it < limit && rr + ii <= bail) {
        zi = 2 * zr * zi + y;
        zr = rr - ii + x;
        rr = zr * zr;
        ii = zi * zi;
        ++it;
    }
    out[py * w + px] = (unsigned short)it;
}
