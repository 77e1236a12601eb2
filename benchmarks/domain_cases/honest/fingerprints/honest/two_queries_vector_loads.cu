// Two queries a thread against a tile of the database in shared memory, read as 16-byte vectors; a candidate is given up half-way if too far.
// baseline: fingerprints/fingerprints.cu
// @requires nq > 0 && nq % 2 == 0 && gridDim.x * blockDim.x >= nq && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @requires aligned(query, 16) && aligned(db, 16)
// @launch fast grid=(ceil_div(nq, 128)) block=(64) args=(query, db, who, how_far, nq, nd)
__global__ void fast(const uint64_t* __restrict__ query, const uint64_t* __restrict__ db, int* __restrict__ who, int* __restrict__ how_far, int nq, int nd)
{
    __shared__ ulonglong2 tile[64][2];
    const int q = (blockIdx.x * 64 + threadIdx.x) * 2, safe = min(q, nq - 2);
    const ulonglong2* from = reinterpret_cast<const ulonglong2*>(query) + safe * 2;
    const ulonglong2 a0 = from[0], a1 = from[1], b0 = from[2], b1 = from[3];
    int best_a = 1 << 30, best_b = 1 << 30, arg_a = -1, arg_b = -1;
    for (int first = 0; first < nd; first += 64) {
        const int count = min(64, nd - first);
        for (int e = threadIdx.x; e < count * 2; e += 64) tile[e >> 1][e & 1] = reinterpret_cast<const ulonglong2*>(db)[first * 2 + e];
        __syncthreads();
        for (int j = 0; j < count; ++j) {
            const ulonglong2 lo = tile[j][0];
            int da = __popcll(a0.x ^ lo.x) + __popcll(a0.y ^ lo.y), db_ = __popcll(b0.x ^ lo.x) + __popcll(b0.y ^ lo.y);
            if (da >= best_a && db_ >= best_b) continue;     // distances only grow
            const ulonglong2 hi = tile[j][1];
            da += __popcll(a1.x ^ hi.x) + __popcll(a1.y ^ hi.y);
            db_ += __popcll(b1.x ^ hi.x) + __popcll(b1.y ^ hi.y);
            if (da < best_a) { best_a = da; arg_a = first + j; }
            if (db_ < best_b) { best_b = db_; arg_b = first + j; }
        }
        __syncthreads();
    }
    if (q < nq) {
        who[q] = arg_a; who[q + 1] = arg_b;
        how_far[q] = best_a; how_far[q + 1] = best_b;
    }
}
