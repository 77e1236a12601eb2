// Written for cudaops: what eight-bit floats and complex numbers are on the host, as digests.
#include <cstdio>
#include <cstring>
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

static unsigned long long digest = 1469598103934665603ull;
static void eat(unsigned v) { digest = (digest ^ v) * 1099511628211ull; }
static void say(const char* what) { printf("%s %llx\n", what, digest); }

int main() {
    for (int i = 0; i < 256; i++) {
        __nv_fp8_e4m3 a;
        __nv_fp8_e5m2 b;
        a.__x = b.__x = (unsigned char)i;
        for (float x : {float(a), float(b)}) {
            unsigned bits;
            memcpy(&bits, &x, 4);
            eat(x == x ? bits : 1);
        }
    }
    say("values");
    for (unsigned long long i = 0; i < (1ull << 32); i += 9973) {
        unsigned bits = (unsigned)i;
        float x;
        memcpy(&x, &bits, 4);
        if (x == x) eat(__nv_fp8_e4m3(x).__x), eat(__nv_fp8_e5m2(x).__x);
    }
    say("floats");
    for (int i = 0; i < 65536; i++) {
        unsigned short bits = (unsigned short)i;
        __half h;
        __nv_bfloat16 b;
        memcpy(&h, &bits, 2), memcpy(&b, &bits, 2);
        float x = __half2float(h), y = __bfloat162float(b);
        if (x == x) eat(__nv_fp8_e4m3(h).__x), eat(__nv_fp8_e5m2(h).__x);
        if (y == y) eat(__nv_fp8_e4m3(b).__x), eat(__nv_fp8_e5m2(b).__x);
    }
    say("halves");
    eat(__nv_fp8x4_e4m3(float4{1, -2.3f, 300, 4e9f}).__x);
    eat(__nv_fp8x2_e5m2(float2{0.1f, -7}).__x);
    eat(__nv_fp8_e4m3(0.1).__x);
    for (float x : {1e9f, -465.0f, 464.0f, 61440.0f, 61439.0f}) {
        eat(__nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3));
        eat(__nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2));
    }
    say("packed");
    cuFloatComplex a = make_cuFloatComplex(1.5f, -2.25f), b = make_cuFloatComplex(3e30f, 7e29f);
    cuFloatComplex c = cuCaddf(cuCdivf(a, b), cuCmulf(a, cuConjf(a)));
    printf("complex %.6g %.6g %.6g %.6g\n", cuCrealf(c), cuCimagf(c), cuCabsf(b), cuCabs(make_cuDoubleComplex(3, 4)));
}
