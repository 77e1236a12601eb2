"""Kernels of a class in a form that is told less easily: trees, shuffles, selects, nested loops."""

from __future__ import annotations

import pytest

from cudaops.rag.kernel_words import kernel_words

KERNELS = {
    "argmax_tree": (
        "argmax",
        "reduction",
        """
__global__ void f(const float* x, int* out, int n) {
    __shared__ float best[256]; __shared__ int where[256];
    int t = threadIdx.x; best[t] = -1e30f; where[t] = 0;
    for (int i = t; i < n; i += 256) if (x[i] > best[t]) { best[t] = x[i]; where[t] = i; }
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s && best[t + s] > best[t]) { best[t] = best[t + s]; where[t] = where[t + s]; }
        __syncthreads();
    }
    if (t == 0) out[0] = where[0];
}
""",
    ),
    "argmax_shuffle": (
        "argmax",
        "reduction",
        """
__global__ void f(const float* x, int* out, int n) {
    float v = -INFINITY; int at = -1;
    for (int i = threadIdx.x; i < n; i += 32) { float y = x[i]; if (y > v) { v = y; at = i; } }
    for (int o = 16; o; o >>= 1) {
        float w = __shfl_down_sync(~0u, v, o); int wat = __shfl_down_sync(~0u, at, o);
        if (w > v || (w == v && wat < at)) { v = w; at = wat; }
    }
    if (threadIdx.x == 0) *out = at;
}
""",
    ),
    "argmin_ternary": (
        "argmax",
        "reduction",
        """
__global__ void f(const float* d, int* nearest, int n, int k) {
    int p = blockIdx.x * blockDim.x + threadIdx.x; if (p >= n) return;
    float lo = d[p * k]; int arg = 0;
    for (int c = 1; c < k; ++c) { float q = d[p * k + c]; arg = q < lo ? c : arg;
        lo = fminf(lo, q); }
    nearest[p] = arg;
}
""",
    ),
    "attention_scalar_online": (
        "attention",
        "scan",
        """
__global__ void f(const float* q, const float* k, const float* v, float* o, int n, int d) {
    int r = blockIdx.x, c = threadIdx.x; float m = -1e30f, l = 0.f, acc = 0.f;
    for (int j = 0; j < n; ++j) {
        float s = 0.f;
        for (int e = 0; e < d; ++e) s += q[r * d + e] * k[j * d + e];
        float mn = s > m ? s : m; float a = expf(m - mn), b = expf(s - mn);
        l = l * a + b; acc = acc * a + b * v[j * d + c]; m = mn;
    }
    o[r * d + c] = acc / l;
}
""",
    ),
    "attention_shared": (
        "attention",
        "scan",
        """
__global__ void f(const float* Q, const float* K, const float* V, float* O, int n) {
    extern __shared__ float w[];
    int i = blockIdx.x; float m = -1e30f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        float s = 0; for (int e = 0; e < 64; e++) s += Q[i*64+e] * K[j*64+e];
        w[j] = s; m = fmaxf(m, s);
    }
    __syncthreads();
    float z = 0; for (int j = 0; j < n; j++) { float p = __expf(w[j] - m); z += p; w[j] = p; }
    float a = 0; for (int j = 0; j < n; j++) a += w[j] * V[j*64+threadIdx.x];
    O[i*64+threadIdx.x] = a / z;
}
""",
    ),
    "softmax_online": (
        "softmax",
        "scan",
        """
__global__ void f(const float* x, float* y, int n) {
    const float* row = x + blockIdx.x * n; float m = -INFINITY, z = 0;
    for (int i = 0; i < n; ++i) { float v = row[i]; if (v > m) { z *= expf(m - v); m = v;
        } z += expf(v - m); }
    for (int i = threadIdx.x; i < n;
        i += blockDim.x) y[blockIdx.x * n + i] = expf(row[i] - m) / z;
}
""",
    ),
    "csr_store": (
        "sparse",
        "scan",
        """
__global__ void f(const int* p, const int* c, const float* v, const float* x, float* y, int n) {
    for (int r = blockIdx.x * blockDim.x + threadIdx.x; r < n; r += gridDim.x * blockDim.x) {
        float t = 0.f;
        for (int k = p[r]; k < p[r + 1]; ++k) t += v[k] * x[c[k]];
        y[r] = t;
    }
}
""",
    ),
    "csr_warp": (
        "sparse",
        "reduction",
        """
__global__ void f(const int* p, const int* c, const float* v, const float* x, float* y, int n) {
    int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, l = threadIdx.x & 31;
        if (r >= n) return;
    float t = 0.f;
    for (int k = p[r] + l; k < p[r + 1]; k += 32) { int j = c[k]; t = fmaf(v[k], x[j], t); }
    for (int o = 16; o; o /= 2) t += __shfl_xor_sync(0xffffffffu, t, o);
    if (l == 0) y[r] = t;
}
""",
    ),
    "scan_hillis": (
        "scan",
        "reduction",
        """
__global__ void f(const int* a, int* b, int n) {
    __shared__ int s[512]; int t = threadIdx.x; s[t] = t < n ? a[t] : 0; __syncthreads();
    for (int d = 1; d < 512; d <<= 1) { int u = t >= d ? s[t - d] : 0; __syncthreads();
        s[t] += u; __syncthreads(); }
    if (t < n) b[t] = s[t];
}
""",
    ),
    "running_max": (
        "scan",
        "reduction",
        """
__global__ void f(const float* a, float* b, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; float m = a[r * n];
    for (int i = 0; i < n; ++i) { m = fmaxf(m, a[r * n + i]); b[r * n + i] = m; }
}
""",
    ),
    "max_tree": (
        "reduction",
        "argmax",
        """
__global__ void f(const float* a, float* out, int n) {
    __shared__ float s[256]; int t = threadIdx.x; float m = -1e30f;
    for (int i = t; i < n; i += 256) m = fmaxf(m, a[i]);
    s[t] = m; __syncthreads();
    for (int h = 128; h > 0; h >>= 1) { if (t < h) s[t] = fmaxf(s[t], s[t + h]);
        __syncthreads(); }
    if (t == 0) out[blockIdx.x] = s[0];
}
""",
    ),
    "rows_of_products": (
        "gemm",
        "scan",
        """
__global__ void f(const float* a, const float* b, float* c, int n) {
    for (int i = blockIdx.x; i < n; i += gridDim.x)
        for (int j = threadIdx.x; j < n; j += blockDim.x) {
            float sum = 0.0f;
            for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
""",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_its_class_is_told_and_no_other(name: str) -> None:
    word, other, code = KERNELS[name]
    said = kernel_words(code).split()
    assert word in said
    assert other not in said
