// Keys and values pass through shared memory and scores are computed once and kept there; the two passes over them are the author's.
// baseline: flash_step/flash_step.cu
// @requires n_queries > 0 && n_keys > 0 && n_keys <= 64 && gridDim.x * blockDim.x >= n_queries && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(n_queries, 32)) block=(32, 4) args=(Q, K, V, O, l, m, n_queries, first_key, n_keys, scale)
__global__ void fast(const float* __restrict__ Q, const float* __restrict__ K, const float* __restrict__ V, float* O, float* l, float* m,
                     int n_queries, int first_key, int n_keys, float scale)
{
    __shared__ float rows[64][HEAD + 1], score[64][33];
    const int x = threadIdx.x, y = threadIdx.y, q = blockIdx.x * 32 + x;
    const bool here = q < n_queries;
    for (int k = y; k < n_keys; k += 4) rows[k][x] = K[(first_key + k) * HEAD + x];
    __syncthreads();
    if (here) {
        float mine[HEAD];
        for (int d = 0; d < HEAD; ++d) mine[d] = Q[q * HEAD + d];
        for (int k = y; k < n_keys; k += 4) {
            float s = 0.f;
            for (int d = 0; d < HEAD; ++d) s += mine[d] * rows[k][d];
            score[k][x] = s * scale;
        }
    }
    __syncthreads();
    for (int k = y; k < n_keys; k += 4) rows[k][x] = V[(first_key + k) * HEAD + x];
    __syncthreads();
    float m_new = 0.f, l_new = 0.f;
    if (here) {
        const float m_old = m[q], l_old = l[q];
        m_new = m_old;
        for (int k = 0; k < n_keys; ++k) m_new = fmaxf(m_new, score[k][x]);
        float sum = 0.f, acc[HEAD / 4] = {};
        for (int k = 0; k < n_keys; ++k) {
            const float p = expf(score[k][x] - m_new);
            sum += p;
            for (int e = 0; e < HEAD / 4; ++e) acc[e] += p * rows[k][y * (HEAD / 4) + e];
        }
        const float keep = l_old * expf(m_old - m_new);
        l_new = keep + sum;
        float* o = O + q * HEAD + y * (HEAD / 4);
        for (int e = 0; e < HEAD / 4; ++e) o[e] = (keep * o[e] + acc[e]) / l_new;
    }
    __syncthreads();                                            // m and l have been read by all four
    if (here && y == 0) { m[q] = m_new; l[q] = l_new; }
}
