// Reads the four pixels without any look at the borders: every captured coordinate lies inside, others read out of bounds or from the next row.
// catalogue: F4 C7
// baseline: remap/remap.cu
// stopped by: checker
// @launch remap_inner grid=(ceil_div(n, 256)) block=(256) args=(src, w, h, map, dst, n)
__global__ void remap_inner(const float *__restrict__ src, int w, int h, const float2 *__restrict__ map, float *__restrict__ dst, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 m = map[i];
    float fx = floorf(m.x), fy = floorf(m.y);
    float ax = m.x - fx, ay = m.y - fy;
    const float *p = src + (int)fy * w + (int)fx;
    float top = (1.f - ax) * p[0] + ax * p[1], bottom = (1.f - ax) * p[w] + ax * p[w + 1];
    dst[i] = (1.f - ay) * top + ay * bottom;
}
