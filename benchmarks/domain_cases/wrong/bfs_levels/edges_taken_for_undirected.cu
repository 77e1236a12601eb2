// Pulls: an unreached vertex looks whether one that it points to is at the level, the same only where each edge has its reverse, as captured.
// catalogue: C7
// baseline: bfs_levels/bfs_levels.cu
// stopped by: correctness_perturbed
// @launch pull_level grid=(ceil_div(n, 128)) block=(128) args=(row, adj, dist, grew, level, n)
__global__ void pull_level(const int *__restrict__ row, const int *__restrict__ adj, int *dist, int *grew, int level, int n)
{
    int v = blockIdx.x * 128 + threadIdx.x;
    if (v >= n || dist[v] <= level + 1) return;
    for (int e = row[v], end = row[v + 1]; e < end; ++e)
        if (dist[adj[e]] == level) {
            dist[v] = level + 1;
            *grew = 1;
            break;
        }
}
