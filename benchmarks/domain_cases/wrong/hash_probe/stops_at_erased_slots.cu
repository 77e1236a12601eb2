// A chain ends at a tombstone too; nothing has been erased in the captured table.
// catalogue: C7
// baseline: hash_probe/hash_probe.cu
// stopped by: correctness_perturbed
// @launch lookup_live grid=(ceil_div(n, 256)) block=(256) args=(table, capacity_mask, keys, values, not_found, n)
__global__ void lookup_live(const Slot *__restrict__ table, uint32_t capacity_mask, const uint32_t *__restrict__ keys, int32_t *values,
                            int32_t not_found, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    uint32_t key = keys[i], at = mix(key) & capacity_mask;
    int32_t v = not_found;
    for (uint32_t tries = 0; tries <= capacity_mask; ++tries, at = (at + 1) & capacity_mask) {
        Slot s = table[at];
        if (s.key >= ERASED) break;
        if (s.key == key) { v = s.value; break; }
    }
    values[i] = v;
}
