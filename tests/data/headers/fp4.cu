// Digests of what cuda_fp4.h computes on the host: g++ with our header and nvcc with CUDA's say the same.
#include <cstdio>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>

static unsigned long long digest = 1469598103934665603ull;
static void eat(unsigned v) { digest = (digest ^ v) * 1099511628211ull; }
static void say(const char* what) { printf("%s %llx\n", what, digest); }

int main() {
    for (int i = 0; i < 256; i++) {
        __nv_fp4x2_e2m1 two;
        two.__x = (unsigned char)i;
        float2 f = float2(two);
        __half2 h = __half2(two);
        __nv_fp4_e2m1 one;
        one.__x = (unsigned char)(i & 15);
        unsigned bits[2];
        memcpy(bits, &f, 8), eat(bits[0]), eat(bits[1]);
        memcpy(bits, &h, 4), eat(bits[0]);
        eat((unsigned)(int)float(one) + 99);
        eat(__nv_cvt_fp4x2_to_halfraw2((unsigned char)i, __NV_E2M1).y);
        eat(__nv_cvt_fp4_to_halfraw((unsigned char)(i & 15), __NV_E2M1).x);
    }
    say("values");
    for (unsigned long long i = 0; i < (1ull << 32); i += 9973) {
        unsigned bits = (unsigned)i;
        float x;
        memcpy(&x, &bits, 4);
        eat(__nv_fp4_e2m1(x).__x), eat(__nv_fp4_e2m1((double)x).__x);
        eat(__nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundZero));
    }
    say("floats");
    for (int i = -80000; i <= 80000; i++) {  // every tie, and what is next to it
        double x = i / 8192.0;
        eat(__nv_cvt_double_to_fp4(x, __NV_E2M1, cudaRoundNearest)), eat(__nv_cvt_double_to_fp4(x, __NV_E2M1, cudaRoundZero));
    }
    say("ties");
    for (int i = 0; i < 65536; i++) {
        unsigned short bits = (unsigned short)i;
        __half h;
        __nv_bfloat16 b;
        memcpy((void*)&h, &bits, 2), memcpy((void*)&b, &bits, 2);
        eat(__nv_fp4_e2m1(h).__x), eat(__nv_fp4_e2m1(b).__x);
        eat(__nv_fp4x2_e2m1(__half2(h, h)).__x), eat(__nv_fp4x2_e2m1(__nv_bfloat162(b, b)).__x);
        eat(__nv_cvt_halfraw_to_fp4(h, __NV_E2M1, cudaRoundNearest));
        eat(__nv_cvt_bfloat16raw_to_fp4(b, __NV_E2M1, cudaRoundZero));
    }
    say("halves");
    eat(__nv_fp4x4_e2m1(float4{1, -2.3f, 300, 4e-9f}).__x);
    eat(__nv_cvt_float2_to_fp4x2(float2{0.3f, -7}, __NV_E2M1, cudaRoundNearest));
    eat(__nv_cvt_double2_to_fp4x2(double2{2.6, -5.0}, __NV_E2M1, cudaRoundZero));
    eat(__nv_fp4_e2m1(5).__x), eat(__nv_fp4_e2m1(-3ll).__x), eat(__nv_fp4_e2m1((unsigned char)200).__x);
    float4 four = float4(__nv_fp4x4_e2m1(float4{0.5f, -6, 3, 1.5f}));
    printf("packed %llx %g %g %g %g\n", digest, four.x, four.y, four.z, four.w);
}
