#pragma once
// One kernel an operator, and the function that launches it.
#define BINARY_OP(NAME, OP)                                                                   \
    namespace ops {                                                                           \
    template <typename T>                                                                     \
    __global__ void NAME(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, \
                         size_t n)                                                            \
    {                                                                                         \
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;                             \
        if (i < n) c[i] = a[i] OP b[i];                                                       \
    }                                                                                         \
    }                                                                                         \
    template <typename T>                                                                     \
    void run_##NAME(const T *a, const T *b, T *c, size_t n)                                   \
    {                                                                                         \
        const unsigned threads = 192;                                                         \
        ops::NAME<T><<<(unsigned)((n + threads - 1) / threads), threads>>>(a, b, c, n);       \
    }
