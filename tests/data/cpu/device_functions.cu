// Intrinsics and atomics with their values; a wrong one is printed with its line.
#include <cmath>
#include <cooperative_groups.h>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

namespace cg = cooperative_groups;

#define IS(expression, expected)                                                                   \
  if (!((expression) == (expected))) {                                                             \
    printf("line %d: %s is %g\n", __LINE__, #expression, (double)(expression));                    \
    atomicAdd(wrong, 1);                                                                           \
  }

__device__ __forceinline__ float helper(float x) { return x * 2; }
__host__ __device__ inline int both(int x) { return x + 1; }

__global__ void integers(int* wrong) {
  IS(__popc(0xf0f0u), 8);
  IS(__popcll(~0ull), 64);
  IS(__clz(1), 31);
  IS(__clz(0), 32);
  IS(__clzll(1ll), 63);
  IS(__ffs(8), 4);
  IS(__ffs(0), 0);
  IS(__brev(1u), 0x80000000u);
  IS(__mul24(1000, -3), -3000);
  IS(__umul24(0xffffffu, 2u), 0x1fffffeu);
  IS(__mulhi(1 << 30, 8), 2);
  IS(__umulhi(1u << 31, 4u), 2u);
  IS(__byte_perm(0x03020100u, 0x07060504u, 0x7531u), 0x07050301u);
  IS(__funnelshift_l(0x80000000u, 1u, 1u), 3u);
  IS(__sad(3, -4, 10u), 17u);
  IS(__dp4a(0x01020304, 0x01010101, 5), 15);
  IS(min(3, 5u), 3u);
  IS(max(-1ll, 2ll), 2ll);
  IS(min(2.5f, 1.0f), 1.0f);
  IS(max(1.0, 2.0f), 2.0);
  IS(abs(-3), 3);
  IS(both(1), 2);
}

__global__ void floats(int* wrong, const float* cached) {
  IS(__ldg(cached), 4.0f);
  IS(rsqrtf(4.0f), 0.5f);
  IS(__fdividef(1.0f, 4.0f), 0.25f);
  IS(__saturatef(1.5f), 1.0f);
  IS(__saturatef(-1.5f), 0.0f);
  IS(fmaf(2.0f, 3.0f, 1.0f), 7.0f);
  IS(__fmaf_rn(2.0f, 3.0f, 1.0f), 7.0f);
  IS(fmaxf(CUDART_NAN_F, 1.0f), 1.0f);
  IS(__float_as_int(1.0f), 0x3f800000);
  IS(__int_as_float(0x40000000), 2.0f);
  IS(__double_as_longlong(1.0), 0x3ff0000000000000ll);
  IS(__hiloint2double(0x3ff00000, 0), 1.0);
  IS(__expf(0.0f), 1.0f);
  IS(__logf(1.0f), 0.0f);
  IS(__powf(2.0f, 3.0f), 8.0f);
  IS(exp2f(3.0f), 8.0f);
  IS(exp10f(2.0f), 100.0f);
  IS(__float2int_rn(2.5f), 2);
  IS(__float2int_rz(-2.9f), -2);
  IS(__float2int_rd(-2.1f), -3);
  IS(__float2uint_ru(2.1f), 3u);
  IS(__float2int_rn(1e20f), 2147483647);
  IS(__double2int_rn(3.5), 4);
  IS(__fmul_rn(0.1f, 0.1f), 0.1f * 0.1f);
  IS(cospif(1.0f), -1.0f);
  IS(isnan(CUDART_NAN_F), true);
  IS(isinf(CUDART_INF_F), true);
  IS(fabs(-2.0f), 2.0f);
  IS(pow(2.0f, 2), 4.0);
  IS(helper(2.0f), 4.0f);
  float s, c;
  sincosf(0.0f, &s, &c);
  IS(s + c, 1.0f);
  __sincosf(0.0f, &s, &c);
  IS(s + c, 1.0f);
  // a * b is not contracted: the residue of the rounded product is not 0
  volatile float tenth = 0.1f;
  float product = __fmul_rn(tenth, tenth);
  IS(__fadd_rn(__fmul_rn(tenth, tenth), -product), 0.0f);
  IS(fmaf(tenth, tenth, -product) != 0.0f, true);
  float4 v = make_float4(1, 2, 3, 4);
  int2 w = make_int2(5, 6);
  uchar4 b = make_uchar4(1, 2, 3, 255);
  IS(v.x + v.w + w.y + b.w, 266.0f);
  IS(sizeof(float3), 12u);
  IS(alignof(float4), 16u);
  IS(alignof(double2), 16u);
}

__global__ void narrow(int* wrong) {
  half h = __float2half(1.5f);
  IS(__half2float(__hadd(h, h)), 3.0f);
  IS(__half2float(__hfma(h, h, __float2half(1.0f))), 3.25f);
  half2 pair = __floats2half2_rn(1.0f, 2.0f);
  pair = __hmul2(pair, __float2half2_rn(3.0f));
  IS(__low2float(pair) + __high2float(pair), 9.0f);
  IS(__half22float2(pair).y, 6.0f);
  IS(__half_as_ushort(__float2half(1.0f)), 0x3c00);
  IS(__half2float(__float2half(65519.0f)), 65504.0f);
  IS((float)(h > __float2half(1.0f)), 1.0f);
  __nv_bfloat16 brain = __float2bfloat16(1.0f + 1.0f / 256);
  IS(__bfloat162float(brain), 1.0f);
  IS(__bfloat162float(__float2bfloat16(3.0f) * brain), 3.0f);
}

__global__ void atomics(int* wrong, int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  atomicAdd(i, 1);
  atomicSub(&i[1], 2);
  atomicMax(&i[2], (int)threadIdx.x);
  atomicMin(&i[3], -(int)threadIdx.x);
  atomicOr(&u[0], 1u << (threadIdx.x & 31));
  atomicXor(&u[1], 1u);
  atomicInc(&u[2], 9u);
  atomicAnd(&u[3], ~(1u << (threadIdx.x & 31)));
  atomicAdd(l, 1ull << 32);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  // a lock that another thread of the block holds
  while (atomicCAS(&i[4], 0, 1) != 0) {}
  i[5] += 1;
  __threadfence();
  atomicExch(&i[4], 0);
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
  int sum = cg::reduce(tile, (int)tile.thread_rank(), cg::plus<int>());
  IS(sum, 120);
  IS(tile.shfl_down((int)tile.thread_rank(), 1), (int)min(tile.thread_rank() + 1, 15u));
  IS(__reduce_add_sync(0xffffffffu, 1), 32);
  IS(__match_any_sync(0xffffffffu, threadIdx.x & 1), threadIdx.x & 1 ? 0xaaaaaaaau : 0x55555555u);
  IS(__all_sync(0xffffffffu, 1), 1);
  IS(__any_sync(0xffffffffu, threadIdx.x == 3), threadIdx.x < 32);
  IS(__shfl_down(1, 1), 1);
  block.sync();
  IS(__syncthreads_and(1), 1);
  IS(__syncthreads_or(threadIdx.x == 7), 1);
  if (threadIdx.x % 2) {
    cg::coalesced_group group = cg::coalesced_threads();
    IS(group.size(), 16u);
    IS(group.thread_rank(), (threadIdx.x % 32) / 2);
  }
}

int main() {
  int *wrong, *i;
  unsigned* u;
  unsigned long long* l;
  float *f, *cached;
  double* d;
  cudaMalloc(&wrong, 4);
  cudaMalloc(&i, 24);
  cudaMalloc(&u, 16);
  cudaMalloc(&l, 8);
  cudaMalloc(&f, 4);
  cudaMalloc(&d, 8);
  cudaMalloc(&cached, 4);
  float four = 4.0f;
  cudaMemcpy(cached, &four, 4, cudaMemcpyHostToDevice);
  cudaMemset(wrong, 0, 4);
  cudaMemset(i, 0, 24);
  cudaMemset(u, 0, 12);
  cudaMemset(u + 3, 255, 4);
  cudaMemset(l, 0, 8);
  cudaMemset(f, 0, 4);
  cudaMemset(d, 0, 8);
  integers<<<1, 1>>>(wrong);
  floats<<<1, 1>>>(wrong, cached);
  narrow<<<1, 1>>>(wrong);
  atomics<<<8, 64>>>(wrong, i, u, l, f, d);
  cudaDeviceSynchronize();
  int bad, hi[6];
  unsigned hu[4];
  unsigned long long hl;
  float hf;
  double hd;
  cudaMemcpy(&bad, wrong, 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(hi, i, 24, cudaMemcpyDeviceToHost);
  cudaMemcpy(hu, u, 16, cudaMemcpyDeviceToHost);
  cudaMemcpy(&hl, l, 8, cudaMemcpyDeviceToHost);
  cudaMemcpy(&hf, f, 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(&hd, d, 8, cudaMemcpyDeviceToHost);
  printf("wrong %d\n", bad);
  printf("%d %d %d %d %d | %x %u %u %x | %llu | %g %g\n", hi[0], hi[1], hi[2], hi[3], hi[5], hu[0], hu[1], hu[2],
         hu[3], hl >> 32, hf, hd);
}
