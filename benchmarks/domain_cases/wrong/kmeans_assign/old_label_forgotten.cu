// Starts without a label, so that ties go to the lowest centre and a label of a centre without members is lost; all captured labels are -1 before.
// catalogue: C7 B8
// baseline: kmeans_assign/kmeans_assign.cu
// stopped by: correctness_perturbed
// @launch assign_fresh grid=(ceil_div(n, 128)) block=(128) args=(points, centres, members, label, distance, n, k, dim)
__global__ void assign_fresh(const float *__restrict__ points, const float *__restrict__ centres, const int *__restrict__ members, int *label,
                             float *distance, int n, int k, int dim)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    const float *p = points + i * dim;
    int best = -1;
    float near = 3.4e38f;
    for (int c = 0; c < k; ++c) {
        if (members[c] == 0) continue;
        float s = 0.f;
        for (int d = 0; d < dim; ++d) {
            float t = p[d] - centres[c * dim + d];
            s += t * t;
        }
        if (s < near) { near = s; best = c; }
    }
    label[i] = best;
    distance[i] = near;
}
