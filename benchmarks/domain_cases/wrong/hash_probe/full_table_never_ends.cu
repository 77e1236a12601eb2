// Has no bound on the tries, so that a missing key in a full table is looked for forever; the captured table is mostly empty.
// catalogue: C7
// baseline: hash_probe/hash_probe.cu
// stopped by: correctness_perturbed
// @launch lookup_unbounded grid=(ceil_div(n, 256)) block=(256) args=(table, capacity_mask, keys, values, not_found, n)
__global__ void lookup_unbounded(const Slot *__restrict__ table, uint32_t capacity_mask, const uint32_t *__restrict__ keys, int32_t *values,
                                 int32_t not_found, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    uint32_t key = keys[i], at = mix(key) & capacity_mask;
    Slot s = table[at];
    while (s.key != key && s.key != EMPTY) {
        at = (at + 1) & capacity_mask;
        s = table[at];
    }
    values[i] = s.key == EMPTY ? not_found : s.value;
}
