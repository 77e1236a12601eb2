// Takes dim for 4 and loads points and centres as float4; dim is an argument, 4 in this program.
// catalogue: C6 B8
// baseline: kmeans_assign/kmeans_assign.cu
// stopped by: correctness_perturbed
// @requires aligned(points, 16) && aligned(centres, 16)
// @launch assign4 grid=(ceil_div(n, 128)) block=(128) args=(points, centres, members, label, distance, n, k)
__global__ void assign4(const float *__restrict__ points, const float *__restrict__ centres, const int *__restrict__ members, int *label,
                        float *distance, int n, int k)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    const float4 p = reinterpret_cast<const float4 *>(points)[i];
    auto squared = [&](int c) {
        float4 q = reinterpret_cast<const float4 *>(centres)[c];
        float a = p.x - q.x, b = p.y - q.y, e = p.z - q.z, f = p.w - q.w;
        return a * a + b * b + e * e + f * f;
    };
    int best = label[i];
    float near = best >= 0 && best < k ? squared(best) : 3.4e38f;
    for (int c = 0; c < k; ++c) {
        if (members[c] == 0) continue;
        float s = squared(c);
        if (s < near) { near = s; best = c; }
    }
    label[i] = best;
    distance[i] = near;
}
