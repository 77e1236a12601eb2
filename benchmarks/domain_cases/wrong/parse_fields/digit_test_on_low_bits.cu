// Takes any character with low bits 0 to 9 for a digit (letters a to i, bytes above 127); captured text holds blanks, signs and digits only.
// catalogue: C7 C2
// baseline: parse_fields/parse_fields.cu
// stopped by: correctness_perturbed
// @launch parse_bits grid=(ceil_div(rows, 128)) block=(128) args=(text, width, value, ok, rows)
__global__ void parse_bits(const char *__restrict__ text, int width, int *value, unsigned char *ok, int rows)
{
    int r = blockIdx.x * 128 + threadIdx.x;
    if (r >= rows) return;
    const char *p = text + r * width;
    int k = 0;
    while (k < width && p[k] == ' ') ++k;
    bool minus = false;
    if (k < width && (p[k] == '-' || p[k] == '+')) minus = p[k++] == '-';
    unsigned v = 0, d;
    int first = k;
    for (; k < width && p[k] != ' ' && (d = p[k] & 15u) < 10u; ++k) v = v * 10u + d;
    bool good = k > first;
    while (k < width && p[k] == ' ') ++k;
    good = good && k == width;
    value[r] = good ? (int)(minus ? 0u - v : v) : 0;
    ok[r] = good;
}
