// Knows no plus sign, since the captured text (made by printf) has none.
// catalogue: C7
// baseline: parse_fields/parse_fields.cu
// stopped by: correctness_perturbed
// @launch parse_minus grid=(ceil_div(rows, 256)) block=(256) args=(text, width, value, ok, rows)
__global__ void parse_minus(const char *__restrict__ text, int width, int *value, unsigned char *ok, int rows)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    const char *p = text + r * width;
    unsigned v = 0;
    int state = 0, minus = 0;          // 0 blanks, 1 after the sign, 2 in the digits, 3 blanks behind, 4 wrong
    for (int k = 0; k < width; ++k) {
        char c = p[k];
        if (c == ' ') state = state == 0 ? 0 : state >= 2 && state < 4 ? 3 : 4;
        else if (c == '-') { state = state == 0 ? 1 : 4; minus = 1; }
        else if (c >= '0' && c <= '9') { state = state < 3 ? 2 : 4; v = v * 10u + (unsigned)(c - '0'); }
        else state = 4;
    }
    bool good = state == 2 || state == 3;
    value[r] = good ? (int)(minus ? 0u - v : v) : 0;
    ok[r] = good;
}
