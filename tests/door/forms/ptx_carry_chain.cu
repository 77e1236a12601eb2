// Numbers of 256 bits, added and multiplied by words with carries, as cryptography on GPUs does it.
#include <cstdint>
#include <cstdio>
#include <vector>

struct uint256 {
    uint32_t v[8];
};

__device__ __forceinline__ uint256 add256(const uint256 &a, const uint256 &b) {
    uint256 r;
    asm("add.cc.u32  %0, %8, %16;\n\t"
        "addc.cc.u32 %1, %9, %17;\n\t"
        "addc.cc.u32 %2, %10, %18;\n\t"
        "addc.cc.u32 %3, %11, %19;\n\t"
        "addc.cc.u32 %4, %12, %20;\n\t"
        "addc.cc.u32 %5, %13, %21;\n\t"
        "addc.cc.u32 %6, %14, %22;\n\t"
        "addc.u32    %7, %15, %23;\n\t"
        : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]), "=r"(r.v[4]), "=r"(r.v[5]), "=r"(r.v[6]), "=r"(r.v[7])
        : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(a.v[4]), "r"(a.v[5]), "r"(a.v[6]), "r"(a.v[7]),
          "r"(b.v[0]), "r"(b.v[1]), "r"(b.v[2]), "r"(b.v[3]), "r"(b.v[4]), "r"(b.v[5]), "r"(b.v[6]), "r"(b.v[7]));
    return r;
}

__device__ __forceinline__ uint64_t mulhi(uint64_t a, uint64_t b) {
    uint64_t hi;
    asm("{\n\t"
        ".reg .u32 a0, a1, b0, b1, r1, r2, r3;\n\t"
        "mov.b64 {a0, a1}, %1;\n\t"
        "mov.b64 {b0, b1}, %2;\n\t"
        "mul.hi.u32 r1, a0, b0;\n\t"
        "mad.lo.cc.u32 r1, a0, b1, r1;\n\t"
        "madc.hi.u32 r2, a0, b1, 0;\n\t"
        "mad.lo.cc.u32 r1, a1, b0, r1;\n\t"
        "madc.hi.cc.u32 r2, a1, b0, r2;\n\t"
        "madc.hi.u32 r3, a1, b1, 0;\n\t"
        "mad.lo.cc.u32 r2, a1, b1, r2;\n\t"
        "addc.u32 r3, r3, 0;\n\t"
        "mov.b64 %0, {r2, r3};\n\t"
        "}"
        : "=l"(hi)
        : "l"(a), "l"(b));
    return hi;
}

__global__ void sums(const uint256 *a, const uint256 *b, uint256 *c, uint64_t *high, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    c[i] = add256(a[i], b[i]);
    high[i] = mulhi((uint64_t)a[i].v[1] << 32 | a[i].v[0], (uint64_t)b[i].v[1] << 32 | b[i].v[0]);
}

int main() {
    const int n = 4096;
    std::vector<uint256> a(n), b(n), c(n);
    std::vector<uint64_t> high(n);
    uint32_t x = 1;
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < 8; ++k) {
            a[i].v[k] = x = x * 1664525u + 1013904223u;
            b[i].v[k] = i % 3 ? ~x : x * 2654435761u;
        }
    uint256 *A, *B, *C;
    uint64_t *H;
    cudaMalloc(&A, n * sizeof(uint256));
    cudaMalloc(&B, n * sizeof(uint256));
    cudaMalloc(&C, n * sizeof(uint256));
    cudaMalloc(&H, n * sizeof(uint64_t));
    cudaMemcpy(A, a.data(), n * sizeof(uint256), cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), n * sizeof(uint256), cudaMemcpyHostToDevice);
    sums<<<n / 128, 128>>>(A, B, C, H, n);
    cudaMemcpy(c.data(), C, n * sizeof(uint256), cudaMemcpyDeviceToHost);
    cudaMemcpy(high.data(), H, n * sizeof(uint64_t), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < n; ++i) {
        uint64_t carry = 0;
        for (int k = 0; k < 8; ++k) {
            carry += (uint64_t)a[i].v[k] + b[i].v[k];
            wrong += c[i].v[k] != (uint32_t)carry;
            carry >>= 32;
        }
        unsigned __int128 p = (unsigned __int128)((uint64_t)a[i].v[1] << 32 | a[i].v[0]) * ((uint64_t)b[i].v[1] << 32 | b[i].v[0]);
        wrong += high[i] != (uint64_t)(p >> 64);
    }
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
