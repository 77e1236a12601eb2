// Attention in the manner of FlashAttention-1: the kernel takes up one block of keys per launch and carries the
// running maximum m (starts at -inf), the running sum l (starts at 0) and the normalised output O in global memory.
#include <cstdio>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

#define HEAD 32

__global__ void flash_step(const float* Q, const float* K, const float* V, float* O, float* l, float* m,
                           int n_queries, int first_key, int n_keys, float scale)
{
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= n_queries) return;
    const float m_old = m[q], l_old = l[q];
    float m_new = m_old;
    for (int k = first_key; k < first_key + n_keys; ++k) {
        float s = 0.f;
        for (int d = 0; d < HEAD; ++d) s += Q[q * HEAD + d] * K[k * HEAD + d];
        m_new = fmaxf(m_new, s * scale);
    }
    float acc[HEAD];
    for (int d = 0; d < HEAD; ++d) acc[d] = 0.f;
    float sum = 0.f;
    for (int k = first_key; k < first_key + n_keys; ++k) {
        float s = 0.f;
        for (int d = 0; d < HEAD; ++d) s += Q[q * HEAD + d] * K[k * HEAD + d];
        const float p = expf(s * scale - m_new);
        sum += p;
        for (int d = 0; d < HEAD; ++d) acc[d] += p * V[k * HEAD + d];
    }
    const float keep = l_old * expf(m_old - m_new);
    const float l_new = keep + sum;
    for (int d = 0; d < HEAD; ++d) O[q * HEAD + d] = (keep * O[q * HEAD + d] + acc[d]) / l_new;
    m[q] = m_new;
    l[q] = l_new;
}

int main()
{
    const int nq = 128, nk = 96, step = 48;
    std::vector<float> Q(nq * HEAD), K(nk * HEAD), V(nk * HEAD), O(nq * HEAD, 0.f), l(nq, 0.f), m(nq, -INFINITY);
    unsigned s = 9;
    auto rnd = [&]() { s = s * 1664525u + 1013904223u; return (s >> 8) / 8388608.0f - 1.0f; };
    for (float& v : Q) v = rnd();
    for (float& v : K) v = rnd();
    for (float& v : V) v = rnd();
    float *dq, *dk, *dv, *dout, *dl, *dm;
    cudaMalloc(&dq, Q.size() * 4); cudaMalloc(&dk, K.size() * 4); cudaMalloc(&dv, V.size() * 4);
    cudaMalloc(&dout, O.size() * 4); cudaMalloc(&dl, nq * 4); cudaMalloc(&dm, nq * 4);
    cudaMemcpy(dq, Q.data(), Q.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dk, K.data(), K.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dv, V.data(), V.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dout, O.data(), O.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dl, l.data(), nq * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dm, m.data(), nq * 4, cudaMemcpyHostToDevice);
    for (int k = 0; k < nk; k += step)
        flash_step<<<nq / 32, 32>>>(dq, dk, dv, dout, dl, dm, nq, k, step, 1.0f / sqrtf((float)HEAD));
    cudaMemcpy(O.data(), dout, O.size() * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(l.data(), dl, nq * 4, cudaMemcpyDeviceToHost);
    double a = 0, b = 0;
    for (float v : O) a += fabs(v);
    for (float v : l) b += v;
    printf("|O| %.5f l %.4f\n", a, b);
    return 0;
}
