// Always repeats the nearest pixel outside, whichever border is asked for; this program asks for that one and never looks outside.
// catalogue: B8
// baseline: remap/remap.cu
// stopped by: correctness_perturbed
// @launch remap_edge grid=(ceil_div(n, 256)) block=(256) args=(src, w, h, map, dst, n)
__global__ void remap_edge(const float *__restrict__ src, int w, int h, const float2 *__restrict__ map, float *__restrict__ dst, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 m = map[i];
    float px = fminf(fmaxf(m.x, 0.f), w - 1.f), py = fminf(fmaxf(m.y, 0.f), h - 1.f);
    int x = (int)px, y = (int)py, x1 = min(x + 1, w - 1), y1 = min(y + 1, h - 1);
    float ax = px - x, ay = py - y;
    const float *r0 = src + y * w, *r1 = src + y1 * w;
    float top = (1.f - ax) * r0[x] + ax * r0[x1], bottom = (1.f - ax) * r1[x] + ax * r1[x1];
    dst[i] = (1.f - ay) * top + ay * bottom;
}
