// extern "C" kernel and host functions, in a header next to main
#include <stdio.h>
#include "rowsum_api.h"
#include "rowsum_impl.cuh"

#define ROWS 64
#define COLS 512

static float matrix[ROWS][COLS];

int main(void)
{
    float sums[ROWS];
    int i, j;

    for (i = 0; i < ROWS; i++)
        for (j = 0; j < COLS; j++)
            matrix[i][j] = (float)((i + j) % 6);

    if (rs_init(ROWS, COLS) != 0) {
        fprintf(stderr, "init failed\n");
        return 1;
    }
    rs_upload(&matrix[0][0]);
    for (i = 0; i < 3; i++)
        rs_compute(sums);
    rs_shutdown();

    for (i = 0; i < ROWS; i += 21)
        printf("%d %.1f\n", i, sums[i]);
    return 0;
}
