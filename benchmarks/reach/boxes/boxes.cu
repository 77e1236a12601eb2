#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <cuda_runtime.h>

#define PER_BOX 96
struct Particle { float v, x, y, z; };
struct Force { float v, x, y, z; };
struct Neighbours { int count; int list[27]; };

__global__ void forces(const Particle *p, const float *charge, const Neighbours *near, Force *f, float a2) {
    int box = blockIdx.x, me = threadIdx.x;
    if (me < PER_BOX) {
        Particle a = p[box * PER_BOX + me];
        float fv = 0, fx = 0, fy = 0, fz = 0;
        for (int k = 0; k < near[box].count; k++) {
            int other = near[box].list[k];
            for (int j = 0; j < PER_BOX; j++) {
                Particle b = p[other * PER_BOX + j];
                float r2 = a.v + b.v - (a.x * b.x + a.y * b.y + a.z * b.z);
                float u2 = a2 * r2;
                float vij = expf(-u2);
                float fs = 2.0f * vij;
                float q = charge[other * PER_BOX + j];
                fv += q * vij;
                fx += q * fs * (a.x - b.x);
                fy += q * fs * (a.y - b.y);
                fz += q * fs * (a.z - b.z);
            }
        }
        Force out = {fv, fx, fy, fz};
        f[box * PER_BOX + me] = out;
    }
}

int main() {
    const int D = 8, boxes = D * D * D, n = boxes * PER_BOX;
    Particle *p = (Particle *)malloc(n * sizeof(Particle));
    float *q = (float *)malloc(n * 4);
    Neighbours *nb = (Neighbours *)calloc(boxes, sizeof(Neighbours));
    Force *f = (Force *)malloc(n * sizeof(Force));
    srand(5);
    for (int i = 0; i < n; i++) {
        p[i].v = (rand() % 10 + 1) / 10.0f; p[i].x = (rand() % 10 + 1) / 10.0f;
        p[i].y = (rand() % 10 + 1) / 10.0f; p[i].z = (rand() % 10 + 1) / 10.0f;
        q[i] = (rand() % 10 + 1) / 10.0f;
    }
    for (int z = 0; z < D; z++) for (int y = 0; y < D; y++) for (int x = 0; x < D; x++) {
        Neighbours &me = nb[(z * D + y) * D + x];
        for (int dz = -1; dz <= 1; dz++) for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) {
            int X = x + dx, Y = y + dy, Z = z + dz;
            if (X >= 0 && Y >= 0 && Z >= 0 && X < D && Y < D && Z < D) me.list[me.count++] = (Z * D + Y) * D + X;
        }
    }
    Particle *dp; float *dq; Neighbours *dn; Force *df;
    cudaMalloc(&dp, n * sizeof(Particle)); cudaMalloc(&dq, n * 4);
    cudaMalloc(&dn, boxes * sizeof(Neighbours)); cudaMalloc(&df, n * sizeof(Force));
    cudaMemcpy(dp, p, n * sizeof(Particle), cudaMemcpyHostToDevice);
    cudaMemcpy(dq, q, n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(dn, nb, boxes * sizeof(Neighbours), cudaMemcpyHostToDevice);
    forces<<<boxes, 128>>>(dp, dq, dn, df, 0.5f);
    cudaMemcpy(f, df, n * sizeof(Force), cudaMemcpyDeviceToHost);
    double s = 0;
    for (int i = 0; i < n; i++) s += f[i].v + fabs(f[i].x);
    printf("%.2f\n", s);
}
