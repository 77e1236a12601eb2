// Great-circle distances by the haversine formula, in double, of pairs of points in degrees.
#include <cstdio>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

#define RAD 0.017453292519943295

struct Point { double lat, lon; };

__constant__ double radius_km;

__global__ void distances(const Point *from, const Point *to, double *km, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double p = from[i].lat * RAD, q = to[i].lat * RAD;
    double u = sin(0.5 * (q - p)), v = sin(0.5 * (to[i].lon - from[i].lon) * RAD);
    double h = u * u + cos(p) * cos(q) * v * v;
    h = h < 0.0 ? 0.0 : h > 1.0 ? 1.0 : h;
    km[i] = 2.0 * radius_km * asin(sqrt(h));
}

int main()
{
    const int n = 6000;
    std::vector<Point> a(n), b(n);
    std::vector<double> d(n);
    for (int i = 0; i < n; ++i) {
        a[i] = {-20.0 + (i * 37 % 800) * 0.1, -60.0 + (i * 91 % 500) * 0.1};
        b[i] = {50.0 - (i * 53 % 900) * 0.1, 70.0 - (i * 29 % 500) * 0.1};
    }
    Point *da, *db; double *dd, r = 6371.0;
    cudaMalloc(&da, n * sizeof(Point)); cudaMalloc(&db, n * sizeof(Point)); cudaMalloc(&dd, n * sizeof(double));
    cudaMemcpy(da, a.data(), n * sizeof(Point), cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), n * sizeof(Point), cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(radius_km, &r, sizeof r);
    distances<<<(n + 63) / 64, 64>>>(da, db, dd, n);
    cudaMemcpy(d.data(), dd, n * sizeof(double), cudaMemcpyDeviceToHost);
    double s = 0, m = 0;
    for (double x : d) { s += x; m = std::fmax(m, x); }
    printf("mean %.6f longest %.6f\n", s / n, m);
}
