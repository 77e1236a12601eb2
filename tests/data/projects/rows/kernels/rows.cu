#include <kern/rows.cuh>
#include <kern/api.h>
void normalise(const float* in, float* out, int rows, int columns) {
    normalise_rows<<<(rows + 127) / 128, 128>>>(in, out, rows, columns);
}
