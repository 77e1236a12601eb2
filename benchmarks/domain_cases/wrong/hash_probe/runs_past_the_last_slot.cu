// Does not wrap around at the end of the table; no captured chain reaches it.
// catalogue: F4 C7
// baseline: hash_probe/hash_probe.cu
// stopped by: checker
// @launch lookup_straight grid=(ceil_div(n, 256)) block=(256) args=(table, capacity_mask, keys, values, not_found, n)
__global__ void lookup_straight(const Slot *__restrict__ table, uint32_t capacity_mask, const uint32_t *__restrict__ keys, int32_t *values,
                                int32_t not_found, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    uint32_t key = keys[i];
    const Slot *p = table + (mix(key) & capacity_mask);
    int32_t v = not_found;
    for (;; ++p) {
        Slot s = *p;
        if (s.key == key && key != EMPTY) { v = s.value; break; }
        if (s.key == EMPTY) break;
    }
    values[i] = v;
}
