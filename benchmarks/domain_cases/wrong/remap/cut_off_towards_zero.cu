// Takes the integer part by a cast, which is the floor for positive coordinates only, as captured ones are.
// catalogue: C7
// baseline: remap/remap.cu
// stopped by: correctness_perturbed
// @launch remap_cast grid=(ceil_div(n, 256)) block=(256) args=(src, w, h, map, dst, n, border, fill)
__global__ void remap_cast(const float *__restrict__ src, int w, int h, const float2 *__restrict__ map, float *__restrict__ dst, int n,
                           int border, float fill)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 m = map[i];
    float px = fminf(fmaxf(m.x, -2.f), w + 1.f), py = fminf(fmaxf(m.y, -2.f), h + 1.f);
    int x = (int)px, y = (int)py;
    float ax = px - x, ay = py - y;
    float a = fetch(src, w, h, x, y, border, fill), b = fetch(src, w, h, x + 1, y, border, fill);
    float c = fetch(src, w, h, x, y + 1, border, fill), d = fetch(src, w, h, x + 1, y + 1, border, fill);
    float top = a + ax * (b - a), bottom = c + ax * (d - c);
    dst[i] = top + ay * (bottom - top);
}
