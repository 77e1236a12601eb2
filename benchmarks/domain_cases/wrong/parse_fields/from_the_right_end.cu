// Reads digits from the right end on and so refuses fields with blanks after the number; captured numbers are aligned to the right.
// catalogue: C7
// baseline: parse_fields/parse_fields.cu
// stopped by: correctness_perturbed
// @launch parse_right grid=(ceil_div(rows, 256)) block=(256) args=(text, width, value, ok, rows)
__global__ void parse_right(const char *__restrict__ text, int width, int *value, unsigned char *ok, int rows)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    const char *p = text + r * width;
    unsigned v = 0, ten = 1;
    int k = width - 1;
    for (; k >= 0 && p[k] >= '0' && p[k] <= '9'; --k, ten *= 10u) v += ten * (unsigned)(p[k] - '0');
    bool good = k < width - 1;
    if (k >= 0 && (p[k] == '-' || p[k] == '+')) {
        if (p[k] == '-') v = 0u - v;
        --k;
    }
    while (k >= 0 && p[k] == ' ') --k;
    good = good && k < 0;
    value[r] = good ? (int)v : 0;
    ok[r] = good;
}
