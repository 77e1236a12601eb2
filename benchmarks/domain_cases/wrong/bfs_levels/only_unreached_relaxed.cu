// Relaxes only vertices that were never reached; distances that are too large (from another source before) stay, which no captured launch has.
// catalogue: C7
// baseline: bfs_levels/bfs_levels.cu
// stopped by: correctness_perturbed
// @launch relax_new grid=(ceil_div(n, 128)) block=(128) args=(row, adj, dist, grew, level, n)
__global__ void relax_new(const int *__restrict__ row, const int *__restrict__ adj, int *dist, int *grew, int level, int n)
{
    int v = blockIdx.x * 128 + threadIdx.x;
    if (v >= n || dist[v] != level) return;
    bool any = false;
    for (int e = row[v], end = row[v + 1]; e < end; ++e)
        if (dist[adj[e]] == INT_MAX) {
            dist[adj[e]] = level + 1;
            any = true;
        }
    if (any) *grew = 1;
}
