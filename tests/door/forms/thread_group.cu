// Sums by a function of any group of cooperative groups: blocks, tiles of a size that is known when
// it is compiled or when it runs, tiles of tiles, coalesced threads, parts by a label.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
namespace cg = cooperative_groups;

__device__ int sum(cg::thread_group group, int *room, int value) {
    int rank = group.thread_rank();
    for (int half = group.size() / 2; half > 0; half /= 2) {
        room[rank] = value;
        group.sync();
        if (rank < half) value += room[rank + half];
        group.sync();
    }
    return rank == 0 ? value : 0;
}

__device__ int members(cg::thread_group &group) { return group.size(); }

// What each thread finds, one digit more a check: 0 where all is right.
__device__ int wrong(const cg::thread_block &block, int t) {
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    auto quarter = cg::tiled_partition<8>(warp);
    cg::thread_group eight = cg::tiled_partition(block, 8), four = cg::tiled_partition(eight, 4);
    auto third = cg::labeled_partition(warp, t % 3);
    auto odd = cg::binary_partition(warp, t % 2);
    int found = 0;
    found += warp.meta_group_rank() != t / 32 || warp.meta_group_size() != block.size() / 32;
    found += 10 * (quarter.meta_group_rank() != t % 32 / 8 || quarter.meta_group_size() != 4);
    found += 100 * (members(eight) != 8 || eight.thread_rank() != t % 8 || four.size() != 4);
    found += 1000 * (four.thread_rank() != t % 4 || cg::this_thread().size() != 1);
    found += 10000 * (third.meta_group_size() != 3 || odd.meta_group_size() != 2);
    found += 100000 * (odd.meta_group_rank() != t % 2 || cg::group_size(odd) != 16);
    if (t % 32 < 20) {
        cg::coalesced_group some = cg::coalesced_threads();
        cg::coalesced_group part = cg::tiled_partition(some, 16);
        found += 1000000 * (part.meta_group_size() != 2 || part.size() != (t % 32 < 16 ? 16 : 4));
        found += 10000000 * (cg::thread_rank(part) != t % 16);
    }
    return found;
}

__global__ void sums(const int *in, int *out, int tile) {
    extern __shared__ int room[];
    cg::thread_block block = cg::this_thread_block();
    int t = block.thread_rank(), value = in[blockIdx.x * blockDim.x + t];
    int whole = sum(block, room, value);
    block.sync();
    auto sixteen = cg::tiled_partition<16>(block);
    int part = sum(sixteen, room + t - sixteen.thread_rank(), value);
    block.sync();
    cg::thread_group asked = cg::tiled_partition(block, tile);
    int other = sum(asked, room + t - asked.thread_rank(), value);
    if (t == 0) out[0] = whole;
    atomicAdd(&out[1], part);
    atomicAdd(&out[2], other);
    atomicAdd(&out[3], wrong(block, t));
}

int main(int argc, char **argv) {
    const int n = 128, tile = argc > 1 ? atoi(argv[1]) : 4;
    int h[n], got[4] = {}, expected = 0, *in, *out;
    for (int i = 0; i < n; ++i) expected += h[i] = i % 11;
    cudaMalloc(&in, sizeof h);
    cudaMalloc(&out, sizeof got);
    cudaMemcpy(in, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, sizeof got);
    sums<<<1, n, sizeof h>>>(in, out, tile);
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    printf("%d: %d %d %d, wrong %d\n", expected, got[0], got[1], got[2], got[3]);
    return got[0] != expected || got[1] != expected || got[2] != expected || got[3] != 0;
}
