/*
 * stage_table.cu -- run a pipeline described by a table of kernel pointers.
 * Everything goes through cudaLaunchKernel; not one chevron in this file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <cuda_runtime.h>

static void gpu_assert(cudaError_t rc, const char *expr, int line)
{
	if (rc == cudaSuccess)
		return;
	fprintf(stderr, "line %d: %s -> %s\n", line, expr, cudaGetErrorString(rc));
	exit(1);
}
#define GPU(x) gpu_assert((x), #x, __LINE__)

struct mix_params {
	uint32_t mul;
	uint32_t add;
	uint8_t  rot;
};

template <unsigned C>
__global__ void add_const(uint32_t *data, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		data[i] += C;
}

__global__ void mix(uint32_t *data, int n, mix_params p)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) {
		uint32_t v = data[i] * p.mul + p.add;
		data[i] = (v << p.rot) | (v >> (32 - p.rot));
	}
}

/* reverse each block's piece; dynamic shared memory of blockDim.x words */
__global__ void reverse_pieces(uint32_t *data, int n, const mix_params *)
{
	extern __shared__ uint32_t tile[];
	int base = blockIdx.x * blockDim.x;
	int len = min((int)blockDim.x, n - base);
	if ((int)threadIdx.x < len)
		tile[threadIdx.x] = data[base + threadIdx.x];
	__syncthreads();
	if ((int)threadIdx.x < len)
		data[base + threadIdx.x] = tile[len - 1 - threadIdx.x];
}

/* 2D launch over the same linear data, with an odd mixture of argument sizes */
__global__ void xor_2d(uint32_t *data, int n, char shift, double scale, uint64_t key)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int y = blockIdx.y * blockDim.y + threadIdx.y;
	int i = y * (gridDim.x * blockDim.x) + x;
	if (i < n)
		data[i] ^= (uint32_t)(key >> shift) + (uint32_t)((double)i * scale);
}

enum { N = 5000, BLK = 128, MAXARGS = 5 };

struct stage {
	const char *name;
	const void *fn;
	dim3 grid, block;
	size_t shmem;
	void *args[MAXARGS];
};

static uint32_t host_buf[N], ref_buf[N];

static void reference(const mix_params *p, char shift, double scale, uint64_t key)
{
	for (int i = 0; i < N; i++)
		ref_buf[i] += 7u;
	for (int i = 0; i < N; i++) {
		uint32_t v = ref_buf[i] * p->mul + p->add;
		ref_buf[i] = (v << p->rot) | (v >> (32 - p->rot));
	}
	for (int b = 0; b < N; b += BLK)
		for (int lo = b, hi = (b + BLK < N ? b + BLK : N) - 1; lo < hi; lo++, hi--) {
			uint32_t t = ref_buf[lo];
			ref_buf[lo] = ref_buf[hi];
			ref_buf[hi] = t;
		}
	for (int i = 0; i < N; i++)
		ref_buf[i] ^= (uint32_t)(key >> shift) + (uint32_t)((double)i * scale);
	for (int i = 0; i < N; i++)
		ref_buf[i] += 0x1000u;
}

int main(void)
{
	uint32_t *dev;
	int n = N;
	mix_params p = { 2654435761u, 12345u, 13 };
	const mix_params *unused = NULL;
	char shift = 9;
	double scale = 0.5;
	uint64_t key = 0x0123456789abcdefULL;
	dim3 g((N + BLK - 1) / BLK), b(BLK);

	for (int i = 0; i < N; i++)
		host_buf[i] = (uint32_t)i * 17u + 3u;
	memcpy(ref_buf, host_buf, sizeof(ref_buf));
	GPU(cudaMalloc((void **)&dev, sizeof(host_buf)));
	GPU(cudaMemcpy(dev, host_buf, sizeof(host_buf), cudaMemcpyHostToDevice));

	struct stage pipeline[] = {
		{ "add7",    (const void *)&add_const<7>,      g, b, 0, { &dev, &n } },
		{ "mix",     (const void *)mix,                g, b, 0, { &dev, &n, &p } },
		{ "reverse", (const void *)reverse_pieces,     g, b, BLK * sizeof(uint32_t), { &dev, &n, &unused } },
		{ "xor2d",   (const void *)xor_2d,             dim3(5, 16), dim3(16, 4), 0, { &dev, &n, &shift, &scale, &key } },
		{ "add4096", (const void *)&add_const<0x1000>, g, b, 0, { &dev, &n } },
	};

	/* two rounds over the table; the key changes between them */
	for (int round = 0; round < 2; round++) {
		for (size_t s = 0; s < sizeof(pipeline) / sizeof(pipeline[0]); s++) {
			struct stage *st = &pipeline[s];
			GPU(cudaLaunchKernel(st->fn, st->grid, st->block, st->args, st->shmem, 0));
			GPU(cudaGetLastError());
		}
		reference(&p, shift, scale, key);
		key = key * 6364136223846793005ULL + 1;
		p.rot = (uint8_t)(p.rot - 4);
	}
	GPU(cudaMemcpy(host_buf, dev, sizeof(host_buf), cudaMemcpyDeviceToHost));
	GPU(cudaFree(dev));

	uint32_t sum = 0;
	for (int i = 0; i < N; i++)
		sum = sum * 31u + host_buf[i];
	int same = memcmp(host_buf, ref_buf, sizeof(host_buf)) == 0;
	printf("stages=%d checksum=%08x %s\n", (int)(sizeof(pipeline) / sizeof(pipeline[0])), sum, same ? "PASS" : "FAIL");
	return !same;
}
