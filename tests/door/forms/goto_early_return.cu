// kernel with early returns and goto, brute force search for a hash preimage
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LEN 4
#define ALPHABET 26
#define KEYSPACE (ALPHABET * ALPHABET * ALPHABET * ALPHABET)

__host__ __device__ static inline uint32_t fnv1a(const char *s, int len)
{
    uint32_t h = 2166136261u;
    for (int i = 0; i < len; i++) {
        h ^= (uint8_t)s[i];
        h *= 16777619u;
    }
    return h;
}

__global__ void crack(uint32_t target, volatile int *found, char *out)
{
    char key[LEN];
    uint32_t n, id = blockIdx.x * blockDim.x + threadIdx.x;
    int i = 0;

    if (id >= KEYSPACE)
        return;
    if (*found)
        return;
    n = id;

next_char:
    key[i] = 'a' + n % ALPHABET;
    n /= ALPHABET;
    if (++i < LEN)
        goto next_char;

    if (fnv1a(key, LEN) != target)
        goto done;

    for (i = 0; i < LEN; i++)
        out[i] = key[i];
    *found = 1;
done:
    return;
}

int main(void)
{
    const char *secret = "gpus";
    uint32_t target = fnv1a(secret, LEN);
    int *d_found, found = 0;
    char *d_out, out[LEN + 1] = {0};

    cudaMalloc((void **)&d_found, sizeof(int));
    cudaMalloc((void **)&d_out, LEN);
    cudaMemset(d_found, 0, sizeof(int));

    crack<<<(KEYSPACE + 255) / 256, 256>>>(target, d_found, d_out);

    cudaMemcpy(&found, d_found, sizeof(int), cudaMemcpyDeviceToHost);
    if (found)
        cudaMemcpy(out, d_out, LEN, cudaMemcpyDeviceToHost);
    printf("hash %08x -> %s (%s)\n", target, found ? out : "not found", strcmp(out, secret) ? "differs" : "ok");
    cudaFree(d_found);
    cudaFree(d_out);
    return 0;
}
