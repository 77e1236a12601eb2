// Reads the centre of the old label without asking whether there is one above k - 1, out of bounds for stale labels; captured labels are -1.
// catalogue: F4 C7
// baseline: kmeans_assign/kmeans_assign.cu
// stopped by: checker
// @launch assign_stale grid=(ceil_div(n, 128)) block=(128) args=(points, centres, members, label, distance, n, k, dim)
__global__ void assign_stale(const float *__restrict__ points, const float *__restrict__ centres, const int *__restrict__ members, int *label,
                             float *distance, int n, int k, int dim)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    const float *p = points + i * dim;
    int best = label[i];
    float near = 3.4e38f;
    for (int c = best >= 0 ? -1 : 0; c < k; ++c) {
        int at = c < 0 ? best : c;
        if (c >= 0 && members[c] == 0) continue;
        float s = 0.f;
        for (int d = 0; d < dim; ++d) {
            float t = p[d] - centres[at * dim + d];
            s = fmaf(t, t, s);
        }
        if (s < near) { near = s; best = at; }
    }
    label[i] = best;
    distance[i] = near;
}
