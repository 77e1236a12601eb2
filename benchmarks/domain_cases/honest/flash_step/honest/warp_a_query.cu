// A warp a query: lane d owns dimension d, scores come once per key by butterflies, and sums are rescaled online where the maximum grows.
// baseline: flash_step/flash_step.cu
// @requires n_queries > 0 && n_keys > 0 && gridDim.x * blockDim.x >= n_queries && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n_queries, 4)) block=(128) args=(Q, K, V, O, l, m, n_queries, first_key, n_keys, scale)
__global__ void fast(const float* __restrict__ Q, const float* __restrict__ K, const float* __restrict__ V, float* O, float* l, float* m,
                     int n_queries, int first_key, int n_keys, float scale)
{
    const int q = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (q >= n_queries) return;
    const float mine = Q[q * HEAD + lane], m_old = m[q], l_old = l[q], o_old = O[q * HEAD + lane];
    float m_new = m_old;                                        // what is written; -inf as long as nothing else was seen
    float top = fmaxf(m_old, -3.402823466e38f);                 // what is subtracted: finite from below, so a score of -inf weighs nothing
    float sum = 0.f, acc = 0.f;
    for (int k = first_key; k < first_key + n_keys; ++k) {
        float s = mine * K[k * HEAD + lane];
        for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
        s *= scale;
        m_new = fmaxf(m_new, s);
        if (m_new > top) {                                      // uniform in the warp
            const float shrink = expf(top - m_new);
            sum *= shrink;
            acc *= shrink;
            top = m_new;
        }
        const float p = expf(s - top);
        sum += p;
        acc = fmaf(p, V[k * HEAD + lane], acc);
    }
    const float keep = l_old * expf(m_old - m_new), l_new = keep + sum;
    O[q * HEAD + lane] = (keep * o_old + acc) / l_new;
    __syncwarp();
    if (lane == 0) { m[q] = m_new; l[q] = l_new; }
}
