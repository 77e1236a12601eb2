// Looks at eight slots at most, which hold every captured chain in a table that is a quarter full; chains may be longer.
// catalogue: C7 C2
// baseline: hash_probe/hash_probe.cu
// stopped by: correctness_perturbed
// @launch lookup8 grid=(ceil_div(n, 128)) block=(128) args=(table, capacity_mask, keys, values, not_found, n)
__global__ void lookup8(const Slot *__restrict__ table, uint32_t capacity_mask, const uint32_t *__restrict__ keys, int32_t *values,
                        int32_t not_found, int n)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    uint32_t key = keys[i], at = mix(key);
    int32_t v = not_found;
#pragma unroll
    for (int tries = 0; tries < 8; ++tries) {
        Slot s = table[(at + tries) & capacity_mask];
        if (s.key == EMPTY) break;
        if (s.key == key) { v = s.value; break; }
    }
    values[i] = v;
}
