// Loads every field as one 64-bit word, whatever the width; the captured width is 8.
// catalogue: C6 B8
// baseline: parse_fields/parse_fields.cu
// stopped by: correctness_perturbed
// @requires aligned(text, 8)
// @launch parse_word grid=(ceil_div(rows, 256)) block=(256) args=(text, value, ok, rows)
__global__ void parse_word(const char *__restrict__ text, int *value, unsigned char *ok, int rows)
{
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= rows) return;
    unsigned long long w = reinterpret_cast<const unsigned long long *>(text)[r];
    int k = 0;
    auto at = [&]() { return (char)(w & 0xff); };
    auto next = [&]() { w >>= 8; ++k; };
    while (k < 8 && at() == ' ') next();
    bool minus = false;
    if (k < 8 && (at() == '-' || at() == '+')) { minus = at() == '-'; next(); }
    unsigned v = 0;
    int digits = 0;
    for (; k < 8 && at() >= '0' && at() <= '9'; next(), ++digits) v = v * 10u + (unsigned)(at() - '0');
    while (k < 8 && at() == ' ') next();
    bool good = k == 8 && digits > 0;
    value[r] = good ? (int)(minus ? 0u - v : v) : 0;
    ok[r] = good;
}
