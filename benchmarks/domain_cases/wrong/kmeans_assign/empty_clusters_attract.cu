// Does not skip centres without members; every captured centre has some.
// catalogue: C7
// baseline: kmeans_assign/kmeans_assign.cu
// stopped by: correctness_perturbed
// @launch assign_all grid=(ceil_div(n, 128)) block=(128) args=(points, centres, label, distance, n, k, dim)
__global__ void assign_all(const float *__restrict__ points, const float *__restrict__ centres, int *label, float *distance, int n, int k, int dim)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    const float *p = points + i * dim;
    auto squared = [&](int c) {
        float s = 0.f;
        for (int d = 0; d < dim; ++d) {
            float t = p[d] - centres[c * dim + d];
            s = fmaf(t, t, s);
        }
        return s;
    };
    int best = label[i];
    float near = best >= 0 && best < k ? squared(best) : 3.4e38f;
    for (int c = 0; c < k; ++c) {
        float s = squared(c);
        if (s < near) { near = s; best = c; }
    }
    label[i] = best;
    distance[i] = near;
}
