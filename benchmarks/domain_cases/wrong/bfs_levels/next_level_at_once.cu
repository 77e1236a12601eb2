// Relaxes the neighbours' neighbours too where a vertex has a single successor, without waiting: in a chain it goes two levels in one launch; captured vertices with one edge lead back to where they came from.
// catalogue: C7 F2
// baseline: bfs_levels/bfs_levels.cu
// stopped by: correctness_perturbed
// @launch relax_chain grid=(ceil_div(n, 128)) block=(128) args=(row, adj, dist, grew, level, n)
__global__ void relax_chain(const int *__restrict__ row, const int *__restrict__ adj, int *dist, int *grew, int level, int n)
{
    int v = blockIdx.x * 128 + threadIdx.x;
    if (v >= n || dist[v] != level) return;
    for (int e = row[v], end = row[v + 1]; e < end; ++e) {
        int u = adj[e];
        if (dist[u] <= level + 1) continue;
        dist[u] = level + 1;
        *grew = 1;
        if (row[u + 1] - row[u] == 1) {
            int t = adj[row[u]];
            if (dist[t] > level + 2) dist[t] = level + 2;
        }
    }
}
