// Inline PTX of an author's own program: each instruction against plain C++, said by name where they differ.
#include <cstdio>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define CHECK(name, found, wanted)                                                     \
    do {                                                                               \
        if (!((found) == (wanted))) {                                                  \
            atomicAdd(wrong, 1);                                                       \
            printf("%s: lane %d\n", name, (int)(threadIdx.x % 32));                    \
        }                                                                              \
    } while (0)
#define COMMIT() asm volatile("cp.async.commit_group;\n" ::)
#define WAIT(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n))
#define COPY_CG(to, from, bytes) \
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(to), "l"(from), "n"(bytes))
#define LDMATRIX_X4(a, b, c, d, at)                                             \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                              \
                 : "r"(at))

__device__ int wrong_count;
typedef unsigned long long u64;

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__global__ void registers(int *wrong) {
    unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % 32;
    unsigned v[17];
    asm volatile("mov.u32 %0, %%laneid;\n\t"
                 "mov.u32 %1, %%tid.x;\n\t"
                 "mov.u32 %2, %%tid.y;\n\t"
                 "mov.u32 %3, %%ntid.x;\n\t"
                 "mov.u32 %4, %%ntid.z;\n\t"
                 "mov.u32 %5, %%ctaid.x;\n\t"
                 "mov.u32 %6, %%ctaid.y;\n\t"
                 "mov.u32 %7, %%nctaid.x;\n\t"
                 "mov.u32 %8, %%nctaid.y;\n\t"
                 "mov.u32 %9, %%lanemask_eq;\n\t"
                 "mov.u32 %10, %%lanemask_lt;\n\t"
                 "mov.u32 %11, %%lanemask_le;\n\t"
                 "mov.u32 %12, %%lanemask_gt;\n\t"
                 "mov.u32 %13, %%lanemask_ge;\n\t"
                 "mov.u32 %14, %%smid;\n\t"
                 "mov.u32 %15, %%nsmid;\n\t"
                 "mov.u32 %16, %%warpid;\n\t"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]), "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]), "=r"(v[16]));
    CHECK("laneid", v[0], lane);
    CHECK("tid.x", v[1], threadIdx.x);
    CHECK("tid.y", v[2], threadIdx.y);
    CHECK("ntid.x", v[3], blockDim.x);
    CHECK("ntid.z", v[4], blockDim.z);
    CHECK("ctaid.x", v[5], blockIdx.x);
    CHECK("ctaid.y", v[6], blockIdx.y);
    CHECK("nctaid.x", v[7], gridDim.x);
    CHECK("nctaid.y", v[8], gridDim.y);
    CHECK("lanemask_eq", v[9], 1u << lane);
    CHECK("lanemask_lt", v[10], (unsigned)((1ull << lane) - 1));
    CHECK("lanemask_le", v[11], (unsigned)((2ull << lane) - 1));
    CHECK("lanemask_gt", v[12], ~(unsigned)((2ull << lane) - 1));
    CHECK("lanemask_ge", v[13], ~(unsigned)((1ull << lane) - 1));
    CHECK("smid", v[14] < v[15], true);
    CHECK("warpid", v[16] < 64, true);
    u64 before, after, at, then;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(before));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(at));
    asm volatile("nanosleep.u32 2000;");
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(then)) ;
    __asm__ __volatile__("mov.u64 %0, %%clock64;" : "=l"(after) :: "memory");
    CHECK("clock64", after > before, true);
    CHECK("globaltimer", then >= at, true);
    unsigned low;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(low));
    CHECK("clock", low != (unsigned)before, true);
}

__global__ void integers(int *wrong) {
    unsigned x = mixed(threadIdx.x), y = mixed(x), z = mixed(y), w = mixed(z), got, got2, got3;
    if (threadIdx.x % 5 == 0) x = 0xffffffffu;
    if (threadIdx.x % 7 == 0) z = 0xffffffffu;
    // 128 bits by four words.
    unsigned s0, s1, s2, s3;
    asm("add.cc.u32 %0, %4, %8;\n\t"
        "addc.cc.u32 %1, %5, %9;\n\t"
        "addc.cc.u32 %2, %6, %10;\n\t"
        "addc.u32 %3, %7, %11;"
        : "=r"(s0), "=r"(s1), "=r"(s2), "=r"(s3)
        : "r"(x), "r"(y), "r"(z), "r"(w), "r"(w), "r"(~y), "r"(y), "r"(x));
    unsigned __int128 a = (unsigned __int128)((u64)w << 32 | z) << 64 | ((u64)y << 32 | x);
    unsigned __int128 b = (unsigned __int128)((u64)x << 32 | y) << 64 | ((u64)~y << 32 | w);
    unsigned __int128 sum = a + b, back = (unsigned __int128)((u64)s3 << 32 | s2) << 64 | ((u64)s1 << 32 | s0);
    CHECK("add.cc", back == sum, true);
    asm("sub.cc.u32 %0, %4, %8; subc.cc.u32 %1, %5, %9; subc.cc.u32 %2, %6, %10; subc.u32 %3, %7, %11;"
        : "=r"(s0), "=r"(s1), "=r"(s2), "=r"(s3)
        : "r"(x), "r"(y), "r"(z), "r"(w), "r"(w), "r"(~y), "r"(y), "r"(x));
    back = (unsigned __int128)((u64)s3 << 32 | s2) << 64 | ((u64)s1 << 32 | s0);
    CHECK("sub.cc", back == a - b, true);
    // 64 by 64 bits by words.
    u64 p = (u64)y << 32 | x, q = (u64)w << 32 | z;
    asm("{\n\t"
        "mul.lo.u32      %0, %4, %6;\n\t"
        "mul.hi.u32      %1, %4, %6;\n\t"
        "mad.lo.cc.u32   %1, %4, %7, %1;\n\t"
        "madc.hi.u32     %2, %4, %7, 0;\n\t"
        "mad.lo.cc.u32   %1, %5, %6, %1;\n\t"
        "madc.hi.cc.u32  %2, %5, %6, %2;\n\t"
        "madc.hi.u32     %3, %5, %7, 0;\n\t"
        "mad.lo.cc.u32   %2, %5, %7, %2;\n\t"
        "addc.u32        %3, %3, 0;\n\t"
        "}"
        : "=&r"(s0), "=&r"(s1), "=&r"(s2), "=&r"(s3)
        : "r"(x), "r"(y), "r"(z), "r"(w));
    back = (unsigned __int128)((u64)s3 << 32 | s2) << 64 | ((u64)s1 << 32 | s0);
    CHECK("mad.cc", back == (unsigned __int128)p * q, true);
    u64 l0, l1;
    asm("add.cc.u64 %0, %2, %4; addc.u64 %1, %3, %5;" : "=l"(l0), "=l"(l1) : "l"(p), "l"(q), "l"(~p), "l"(p));
    CHECK("add.cc.u64", l1, q + p + (p + ~p < p));
    CHECK("add.cc.u64", l0, p + ~p);
    asm("bfind.u32 %0, %1;" : "=r"(got) : "r"(y));
    CHECK("bfind.u32", got, (unsigned)(31 - __clz(y)));
    asm("bfind.s32 %0, %1;" : "=r"(got) : "r"(y));
    CHECK("bfind.s32", got, (unsigned)(31 - __clz((int)y < 0 ? ~y : y)));
    asm("bfind.shiftamt.u64 %0, %1;" : "=r"(got) : "l"(p));
    CHECK("bfind.shiftamt.u64", got, (unsigned)__clzll(p));
    asm("vabsdiff.u32.u32.u32 %0, %1, %2;" : "=r"(got) : "r"(x), "r"(y));
    CHECK("vabsdiff.u32", got, x > y ? x - y : y - x);
    asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(z));
    CHECK("vabsdiff4.add", got, __vsadu4(x, y) + z);
    asm("vabsdiff4.u32.u32.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vabsdiff4", got, __vabsdiffu4(x, y));
    asm("vadd4.u32.u32.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vadd4", got, __vadd4(x, y));
    asm("vadd4.s32.s32.s32.sat %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vadd4.s32.sat", got, __vaddss4(x, y));
    asm("vsub4.u32.u32.u32.sat %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vsub4.sat", got, __vsubus4(x, y));
    asm("vsub2.s32.s32.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vsub2", got, __vsub2(x, y));
    asm("vavrg4.u32.u32.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vavrg4", got, __vavgu4(x, y));
    asm("vavrg4.s32.s32.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vavrg4.s32", got, __vavgs4(x, y));
    asm("vmin4.s32.s32.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vmin4", got, __vmins4(x, y));
    asm("vmax2.u32.u32.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vmax2", got, __vmaxu2(x, y));
    asm("vset4.u32.u32.ge %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(0));
    CHECK("vset4", got, __vsetgeu4(x, y));
    asm("vset4.s32.s32.lt.add %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(z));
    CHECK("vset4.add", got, __popc(__vsetlts4(x, y)) + z);
    asm("vmax4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(0), "r"(z));
    CHECK("vmax4.add", got, __vsadu4(x, 0) + z);
    asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(z));
    CHECK("dp2a.lo", got, z + (unsigned)((short)x * (int)(y & 255)) + (unsigned)((short)(x >> 16) * (int)(y >> 8 & 255)));
    asm("dp2a.hi.u32.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(x), "r"(y), "r"(z));
    CHECK("dp2a.hi", got, z + (x & 0xffff) * (unsigned)(signed char)(y >> 16) + (x >> 16) * (unsigned)(signed char)(y >> 24));
    asm("mul24.lo.u32 %0, %1, %2;" : "=r"(got) : "r"(x), "r"(y));
    CHECK("mul24.lo", got, (x & 0xffffff) * (y & 0xffffff));
    asm("add.sat.s32 %0, %1, %2;" : "=r"(got) : "r"(x & 0x7fffffff), "r"(0x7ffffff0));
    CHECK("add.sat.s32", got, (x & 0x7fffffff) > 15 ? 0x7fffffffu : (x & 0x7fffffff) + 0x7ffffff0u);
    unsigned short h = (unsigned short)x, g = (unsigned short)y, f;
    asm("mad.lo.u16 %0, %1, %2, %1;" : "=h"(f) : "h"(h), "h"(g));
    CHECK("mad.lo.u16", f, (unsigned short)(h * g + h));
    asm("mul.wide.u16 %0, %1, %2;" : "=r"(got) : "h"(h), "h"(g));
    CHECK("mul.wide.u16", got, (unsigned)h * g);
    asm("xor.b16 %0, %1, %2;" : "=h"(f) : "h"(h), "h"(g));
    CHECK("xor.b16", f, (unsigned short)(h ^ g));
    asm("mov.b32 %0, {%1, %2};" : "=r"(got) : "h"(h), "h"(g));
    CHECK("mov.b32 pack", got, (unsigned)g << 16 | h);
    asm("mov.b32 {%0, _}, %1;" : "=h"(f) : "r"(y));
    CHECK("mov.b32 unpack", f, (unsigned short)y);
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo}; }" : "=r"(got) : "r"(y));
    CHECK("halves swapped", got, y << 16 | y >> 16);
    asm("cvt.u32.u8 %0, %1;" : "=r"(got) : "r"(y));
    CHECK("cvt.u32.u8", got, y & 255);
    asm("cvt.s32.s8 %0, %1;" : "=r"(got) : "r"(y));
    CHECK("cvt.s32.s8", got, (unsigned)(signed char)y);
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(got) : "r"((int)y >> 20));
    CHECK("cvt.sat.u8.s32", got, (unsigned)min(max((int)y >> 20, 0), 255));
    asm("cvt.u32.u16 %0, %1;" : "=r"(got) : "h"(h));
    CHECK("cvt.u32.u16", got, (unsigned)h);
    asm("cvt.s64.s32 %0, %1;" : "=l"(l0) : "r"(y));
    CHECK("cvt.s64.s32", l0, (u64)(int)y);
    // Predicates, jumps, several registers by one name.
    asm("{\n\t"
        ".reg .pred p, q, r;\n\t"
        ".reg .b32 t<2>; // two of them\n\t"
        "setp.ne.u32 r, %3, 0;\n\t"
        "setp.lt.and.u32 p|q, %2, %3, r;\n\t"
        "mov.u32 t0, 5; mov.u32 t1, 7; /* and */\n\t"
        "@!p mov.u32 t0, 6;\n\t"
        "@q mov.u32 t1, 8;\n\t"
        "mov.u32 %0, t0;\n\t"
        "mov.u32 %1, t1;\n\t"
        "}"
        : "=r"(got), "=r"(got2) : "r"(x), "r"(y));
    CHECK("setp p|q", got, x < y ? 5u : 6u);
    CHECK("setp p|q", got2, x >= y && y != 0 ? 8u : 7u);
    got = 0, got3 = y % 19;
    asm("{\n\t"
        ".reg .pred more;\n\t"
        "AGAIN:\n\t"
        "add.u32 %0, %0, %1;\n\t"
        "sub.u32 %1, %1, 1;\n\t"
        "setp.gt.s32 more, %1, 0;\n\t"
        "@more bra AGAIN;\n\t"
        "}"
        : "+r"(got), "+r"(got3));
    unsigned n = y % 19;
    CHECK("bra", got, n * (n + 1) / 2);
    bool nan = threadIdx.x % 3 == 0;
    float v = nan ? __int_as_float(0x7fc00000) : (float)(int)x, u = (float)(int)y;
    asm("{ .reg .pred p; setp.ltu.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(got) : "f"(v), "f"(u));
    CHECK("setp.ltu.f32", got, (unsigned)!(v >= u));
    asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(got) : "f"(v), "f"(u));
    CHECK("setp.nan.f32", got, (unsigned)nan);
}

__device__ unsigned bits_of(__half2 pair) {
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

__global__ void narrow(int *wrong) {
    float v = (float)(int)mixed(threadIdx.x) * 1e-6f, u = 0.3f + threadIdx.x;
    unsigned short h;
    unsigned got;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    CHECK("cvt.rn.f16.f32", h, __half_as_ushort(__float2half_rn(v)));
    float back;
    asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(h));
    CHECK("cvt.f32.f16", back, __half2float(__ushort_as_half(h)));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(got) : "f"(v), "f"(u));
    CHECK("cvt.rn.f16x2.f32", got,
          (unsigned)__half_as_ushort(__float2half_rn(v)) << 16 | __half_as_ushort(__float2half_rn(u)));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(got) : "f"(v), "f"(u));
    CHECK("cvt.rn.bf16x2.f32", got,
          (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(v)) << 16 | __bfloat16_as_ushort(__float2bfloat16_rn(u)));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(got) : "f"(v));
    CHECK("cvt.rna.tf32.f32", got & ~0x1fffu, (__float_as_uint(v) + 0x1000u) & ~0x1fffu);
    unsigned a = mixed(threadIdx.x + 99) & 0x43ff43ffu, b = mixed(threadIdx.x + 7) & 0xc3ffc3ffu, c = mixed(threadIdx.x) & 0xc3ffc3ffu;
    __half2 x, y, z;
    memcpy(&x, &a, 4), memcpy(&y, &b, 4), memcpy(&z, &c, 4);
    __half2 sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(got) : "r"(a), "r"(b), "r"(c));
    sum = __hfma2(x, y, z);
    CHECK("fma.rn.f16x2", got, bits_of(sum));
    asm("add.f16x2 %0, %1, %2;" : "=r"(got) : "r"(a), "r"(b));
    sum = __hadd2(x, y);
    CHECK("add.f16x2", got, bits_of(sum));
    asm("sub.f16x2 %0, %1, %2;" : "=r"(got) : "r"(a), "r"(b));
    sum = __hsub2(x, y);
    CHECK("sub.f16x2", got, bits_of(sum));
    asm("mul.f16x2 %0, %1, %2;" : "=r"(got) : "r"(a), "r"(b));
    sum = __hmul2(x, y);
    CHECK("mul.f16x2", got, bits_of(sum));
    asm("max.f16x2 %0, %1, %2;" : "=r"(got) : "r"(a), "r"(b));
    sum = __hmax2(x, y);
    CHECK("max.f16x2", got, bits_of(sum));
    asm("neg.f16x2 %0, %1;" : "=r"(got) : "r"(a));
    CHECK("neg.f16x2", got, a ^ 0x80008000u);
}

__global__ void memory(int *wrong, const unsigned *in, unsigned char *bytes, u64 *counts, float *sums) {
    __shared__ alignas(128) unsigned room[4][128];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = threadIdx.x;
    unsigned at = (unsigned)__cvta_generic_to_shared(&room[warp][lane]), got, got2, got3, got4;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(t * 3) : "memory");
    CHECK("st.shared", room[warp][lane], t * 3);
    asm volatile("st.shared.v2.u32 [%0+256], {%1, %2};" ::"r"(at + lane * 4), "r"(t), "r"(~t) : "memory");
    CHECK("st.shared.v2", room[warp][64 + 2 * lane + 1], ~t);
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(got) : "r"(at));
    CHECK("ld.shared", got, t * 3);
    u64 wide;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(got) : "l"(&room[warp][lane]));
    CHECK("cvta.to.shared", got, at);
    asm volatile("{ .reg .u64 a; cvt.u64.u32 a, %1; cvta.shared.u64 %0, a; }" : "=l"(wide) : "r"(at));
    CHECK("cvta.shared", (unsigned *)wide == &room[warp][lane], true);
    asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(got) : "l"(&room[0][0]));
    CHECK("isspacep.shared", got, 1u);
    asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(got) : "l"(in));
    CHECK("isspacep.shared", got, 0u);
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got), "=r"(got2), "=r"(got3), "=r"(got4) : "l"(in + 4 * t));
    CHECK("ld.global.nc.v4", got == in[4 * t] && got4 == in[4 * t + 3] && got2 == in[4 * t + 1], true);
    asm volatile("ld.global.ca.u8 %0, [%1+%2];" : "=r"(got) : "l"((const char *)in + t), "n"(2));
    CHECK("ld.global.u8", got, (unsigned)((const unsigned char *)in)[t + 2]);
    asm volatile("ld.s8 %0, [%1];" : "=r"(got) : "l"((const char *)in + t));
    CHECK("ld.s8", got, (unsigned)((const signed char *)in)[t]);
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(got) : "l"(in + t));
    CHECK("ld.volatile", got, in[t]);
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(got) : "l"(in + t) : "memory");
    CHECK("ld.acquire", got, in[t]);
    asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(bytes + t), "r"(t + 1) : "memory");
    CHECK("st.global.u8", bytes[t], (unsigned char)(t + 1));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in));
    unsigned old;
    asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(wide) : "l"(counts), "l"((u64)t) : "memory");
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(sums), "f"(0.5f) : "memory");
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(counts + 1), "r"(2) : "memory");
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;" : "=l"(wide) : "l"(counts + 2 + t), "l"(0ull), "l"(7ull) : "memory");
    CHECK("atom.cas.b64", wide == 0 && counts[2 + t] == 7, true);
    asm volatile("atom.shared.max.u32 %0, [%1], %2;" : "=r"(old) : "r"(at), "r"(t * 3 + 1) : "memory");
    CHECK("atom.shared.max", old == t * 3 && room[warp][lane] == t * 3 + 1, true);
    asm volatile("membar.gl; fence.acq_rel.gpu; membar.cta;" ::: "memory");
    asm volatile("bar.sync 0;" ::: "memory");
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 10; bar.red.popc.u32 %0, 0, p; }" : "=r"(got) : "r"(t));
    CHECK("bar.red.popc", got, 10u);
}

__global__ void copies(int *wrong, const float *in) {
    extern __shared__ __align__(16) float tile[];
    int t = threadIdx.x;
    unsigned at = __cvta_generic_to_shared(tile + 4 * t);
    COPY_CG(at, in + 4 * t, 16);
    COMMIT();
    unsigned next = at + 4 * 4 * blockDim.x;
    asm volatile("{\n"
                 "  .reg .pred p;\n"
                 "  setp.ne.b32 p, %0, 0;\n"
                 "  @p cp.async.ca.shared.global [%1], [%2], 4;\n"
                 "  @!p st.shared.f32 [%1], 0f3F800000;\n"
                 "}\n" ::"r"(t % 2), "r"(next), "l"(in + t));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(next + 16 * blockDim.x), "l"(in + 2 * t), "n"(8), "r"(t % 3 == 0 ? 0 : 8));
    COMMIT();
    WAIT(1);
    __syncthreads();
    int other = (t + 1) % blockDim.x;
    CHECK("cp.async.cg", tile[4 * other + 3], in[4 * other + 3]);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    CHECK("cp.async.ca @p", tile[4 * blockDim.x + 4 * other], other % 2 ? in[other] : 1.0f);
    CHECK("cp.async, zeros", tile[8 * blockDim.x + 4 * other + 1], other % 3 == 0 ? 0.0f : in[2 * other + 1]);
}

__global__ void lanes(int *wrong) {
    unsigned lane = threadIdx.x % 32, x = mixed(threadIdx.x), got, got2, mask = 0xffffffffu;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 0x1f, 0xffffffff;" : "=r"(got) : "r"(x));
    CHECK("shfl.bfly", got, __shfl_xor_sync(mask, x, 5));
    asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, 3, 0x0, %3; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(got2) : "r"(x), "r"(mask));
    CHECK("shfl.up", got, __shfl_up_sync(mask, x, 3));
    CHECK("shfl.up|p", got2, (unsigned)(lane >= 3));
    asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 3, 0x181f, %3; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(got2) : "r"(x), "r"(mask));
    CHECK("shfl.down of 8", got, __shfl_down_sync(mask, x, 3, 8));
    CHECK("shfl.down|p", got2, (unsigned)(lane % 8 + 3 < 8));
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, %4;" : "=r"(got) : "r"(x), "r"(lane * 7), "r"(0x101f), "r"(mask));
    CHECK("shfl.idx of 16", got, __shfl_sync(mask, x, lane * 7, 16));
    float f = (float)x, g;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(g) : "f"(f), "r"(1));
    CHECK("shfl.bfly of floats", g, __shfl_xor_sync(mask, f, 1));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, -1; }" : "=r"(got) : "r"(x & 1));
    CHECK("vote.ballot", got, __ballot_sync(mask, x & 1));
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.all.pred q, !p, -1; selp.u32 %0, 1, 0, q; }" : "=r"(got) : "r"(x & 1));
    CHECK("vote.all", got, (unsigned)__all_sync(mask, !(x & 1)));
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, %2; selp.u32 %0, 1, 0, q; }" : "=r"(got) : "r"(x & 1), "r"(mask));
    CHECK("vote.any", got, 1u);
    asm volatile("match.any.sync.b32 %0, %1, -1;" : "=r"(got) : "r"(x & 3));
    CHECK("match.any", got, __match_any_sync(mask, x & 3));
    asm volatile("redux.sync.add.s32 %0, %1, -1;" : "=r"(got) : "r"(x));
    CHECK("redux.add", got, (unsigned)__reduce_add_sync(mask, (int)x));
    asm volatile("redux.sync.min.s32 %0, %1, -1;" : "=r"(got) : "r"(x));
    CHECK("redux.min", got, (unsigned)__reduce_min_sync(mask, (int)x));
    asm volatile("activemask.b32 %0;" : "=r"(got));
    CHECK("activemask", got, mask);
    asm volatile("{ .reg .pred p; match.all.sync.b32 %0|p, %2, -1; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(got2) : "r"(x));
    CHECK("match.all of many", got == 0 && got2 == 0, true);
    asm volatile("{ .reg .pred p; match.all.sync.b32 %0|p, %2, -1; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(got2) : "r"(7));
    CHECK("match.all of one", got == mask && got2 == 1, true);
    asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(got2) : "r"(mask));
    CHECK("elect", got2 == (lane == got) && got < 32, true);
}

// Elements of A, row by row, and of B, in small whole numbers that are exact in every type.
__device__ int of_a(int row, int k) { return (row * 7 + k * 3) % 11 - 5; }
__device__ int of_b(int k, int column) { return (k * 5 + column * 2) % 9 - 4; }
template <int K> __device__ int wanted(int row, int column) {
    int sum = row - column;
    for (int k = 0; k < K; ++k) sum += of_a(row, k) * of_b(k, column);
    return sum;
}
__device__ unsigned pair_of(__half a, __half b) { return (unsigned)__half_as_ushort(b) << 16 | __half_as_ushort(a); }
__device__ unsigned pair_of(__nv_bfloat16 a, __nv_bfloat16 b) { return (unsigned)__bfloat16_as_ushort(b) << 16 | __bfloat16_as_ushort(a); }
template <class T, int K> __device__ void load_16(unsigned *a, unsigned *b) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    for (int r = 0; r < K / 4; ++r) {
        int row = g + 8 * (r % 2), k = 2 * t + 8 * (r / 2);
        a[r] = pair_of(T((float)of_a(row, k)), T((float)of_a(row, k + 1)));
    }
    for (int r = 0; r < K / 8; ++r) {
        int k = 2 * t + 8 * r;
        b[r] = pair_of(T((float)of_b(k, g)), T((float)of_b(k + 1, g)));
    }
}
#define SUMS(c) float c[4]; \
    for (int i = 0; i < 4; ++i) c[i] = (float)(row_of(i) - column_of(i))
__device__ int row_of(int i) { return threadIdx.x / 4 + 8 * (i / 2); }
__device__ int column_of(int i) { return 2 * (threadIdx.x % 4) + i % 2; }
#define SEEN(name, c, K) \
    for (int i = 0; i < 4; ++i) CHECK(name, (float)(c)[i], (float)wanted<K>(row_of(i), column_of(i)))

__global__ void tensor(int *wrong) {
    unsigned a[4], b[2];
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    { SUMS(c); load_16<__half, 16>(a, b);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    SEEN("mma m16n8k16 f16", c, 16); }
    { SUMS(c); load_16<__half, 8>(a, b);
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    SEEN("mma m16n8k8 f16", c, 8); }
    { SUMS(c); load_16<__nv_bfloat16, 16>(a, b);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    SEEN("mma m16n8k16 bf16", c, 16); }
    { SUMS(f); load_16<__half, 16>(a, b);
    unsigned c0 = pair_of(__half(f[0]), __half(f[1])), c1 = pair_of(__half(f[2]), __half(f[3]));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};\n"
        : "+r"(c0), "+r"(c1) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    float c[4] = {__half2float(__ushort_as_half((unsigned short)c0)), __half2float(__ushort_as_half((unsigned short)(c0 >> 16))),
                  __half2float(__ushort_as_half((unsigned short)c1)), __half2float(__ushort_as_half((unsigned short)(c1 >> 16)))};
    SEEN("mma m16n8k16 f16 sums", c, 16); }
    { SUMS(c);
    for (int r = 0; r < 4; ++r) a[r] = __float_as_uint((float)of_a(g + 8 * (r % 2), t + 4 * (r / 2)));
    for (int r = 0; r < 2; ++r) b[r] = __float_as_uint((float)of_b(t + 4 * r, g));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    SEEN("mma m16n8k8 tf32", c, 8); }
    { SUMS(f); int c[4] = {(int)f[0], (int)f[1], (int)f[2], (int)f[3]};
    for (int r = 0; r < 4; ++r) { a[r] = 0; for (int e = 0; e < 4; ++e) a[r] |= (of_a(g + 8 * (r % 2), 4 * t + e + 16 * (r / 2)) & 255) << 8 * e; }
    for (int r = 0; r < 2; ++r) { b[r] = 0; for (int e = 0; e < 4; ++e) b[r] |= (of_b(4 * t + e + 16 * r, g) & 255) << 8 * e; }
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    SEEN("mma m16n8k32 s8", c, 32); }
    { double c[2], x = of_a(g, t), y = of_b(t, g);
    for (int i = 0; i < 2; ++i) c[i] = row_of(i) - column_of(i);
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};\n" : "+d"(c[0]), "+d"(c[1]) : "d"(x), "d"(y));
    for (int i = 0; i < 2; ++i) CHECK("mma m8n8k4 f64", c[i], (double)wanted<4>(row_of(i), column_of(i))); }
}

__global__ void matrices(int *wrong) {
    __shared__ alignas(16) unsigned short tile[32][8];
    int lane = threadIdx.x, row = lane / 4, at = 2 * (lane % 4);
    for (int i = 0; i < 8; ++i) tile[lane][i] = lane * 100 + i;
    __syncwarp();
    unsigned r[4], address = __cvta_generic_to_shared(tile[lane]);
    LDMATRIX_X4(r[0], r[1], r[2], r[3], address);
    for (int m = 0; m < 4; ++m)
        CHECK("ldmatrix.x4", r[m], (unsigned)tile[8 * m + row][at + 1] << 16 | tile[8 * m + row][at]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"((unsigned)__cvta_generic_to_shared(tile[lane % 16])));
    for (int m = 0; m < 2; ++m)
        CHECK("ldmatrix.x2.trans", r[m], (unsigned)tile[8 * m + at + 1][row] << 16 | tile[8 * m + at][row]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%0}, [%1];" : "=r"(r[0]) : "r"((unsigned)__cvta_generic_to_shared(tile[lane % 8])));
    CHECK("ldmatrix.x1", r[0], (unsigned)tile[row][at + 1] << 16 | tile[row][at]);
    __syncwarp();
    unsigned mine = lane * 77 + 5, other = ~mine;
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"((unsigned)__cvta_generic_to_shared(tile[lane % 16])), "r"(mine), "r"(other) : "memory");
    __syncwarp();
    CHECK("stmatrix.x2", (unsigned)tile[row][at + 1] << 16 | tile[row][at], mine);
    CHECK("stmatrix.x2", (unsigned)tile[8 + row][at + 1] << 16 | tile[8 + row][at], other);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"((unsigned)__cvta_generic_to_shared(tile[lane % 8])), "r"(mine) : "memory");
    __syncwarp();
    CHECK("stmatrix.x1.trans", (unsigned)tile[at + 1][row] << 16 | tile[at][row], mine);
}

int main() {
    int *wrong;
    unsigned *in, host[1024];
    unsigned char *bytes;
    u64 *counts, seen[2];
    float *sums, total;
    for (int i = 0; i < 1024; ++i) host[i] = 0x40000000u + i * 2654435761u % 0x700000u;
    cudaGetSymbolAddress((void **)&wrong, wrong_count);
    cudaMalloc(&in, sizeof host), cudaMalloc(&bytes, 1024), cudaMalloc(&counts, 8 * 256), cudaMalloc(&sums, 4);
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(counts, 0, 8 * 256), cudaMemset(sums, 0, 4);
    registers<<<dim3(3, 2), dim3(16, 4)>>>(wrong);
    integers<<<1, 256>>>(wrong);
    narrow<<<1, 64>>>(wrong);
    memory<<<1, 128>>>(wrong, in, bytes, counts, sums);
    copies<<<1, 64, 64 * 48>>>(wrong, (const float *)in);
    lanes<<<1, 64>>>(wrong);
    tensor<<<1, 32>>>(wrong);
    matrices<<<1, 32>>>(wrong);
    cudaMemcpy(seen, counts, sizeof seen, cudaMemcpyDeviceToHost);
    cudaMemcpy(&total, sums, 4, cudaMemcpyDeviceToHost);
    int found;
    cudaMemcpyFromSymbol(&found, wrong_count, sizeof found);
    printf("wrong %d | %llu %llu %g | %s\n", found, seen[0], seen[1], total, cudaGetErrorString(cudaGetLastError()));
}
