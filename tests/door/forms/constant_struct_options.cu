// options in a __constant__ struct, set with cudaMemcpyToSymbol between launches
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    int max_iter;
    double cx, cy, scale;
    unsigned char palette[16];
};

__constant__ struct options opt;

__global__ void mandel(unsigned char *img, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;

    double a = opt.cx + (x - w / 2) * opt.scale;
    double b = opt.cy + (y - h / 2) * opt.scale;
    double zr = 0, zi = 0;
    int it = 0;
    while (it < opt.max_iter && zr * zr + zi * zi < 4.0) {
        double t = zr * zr - zi * zi + a;
        zi = 2 * zr * zi + b;
        zr = t;
        it++;
    }
    img[y * w + x] = it == opt.max_iter ? 0 : opt.palette[it % 16];
}

int main(void)
{
    const int w = 128, h = 96;
    unsigned char *d_img, *img = (unsigned char *)malloc(w * h);
    struct options o;

    memset(&o, 0, sizeof o);
    o.max_iter = 100;
    o.cx = -0.5;
    o.scale = 0.03;
    for (int i = 0; i < 16; i++)
        o.palette[i] = (unsigned char)(i + 1);

    cudaMalloc((void **)&d_img, w * h);
    for (int zoom = 0; zoom < 3; zoom++) {
        cudaMemcpyToSymbol(opt, &o, sizeof o);
        mandel<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(d_img, w, h);
        cudaMemcpy(img, d_img, w * h, cudaMemcpyDeviceToHost);

        int inside = 0;
        for (int i = 0; i < w * h; i++)
            inside += img[i] == 0;
        printf("zoom %d: %d of %d pixels inside\n", zoom, inside, w * h);
        o.scale *= 0.5;
    }
    cudaFree(d_img);
    free(img);
    return 0;
}
