/* Mean and population variance of each column, two passes */
#include <iostream>
#include <vector>
#include <cuda_runtime.h>
using namespace std;

__global__ void column_moments(const float *data, float *mean, float *variance, int n_rows, int n_cols)
{
	const int col = threadIdx.x + blockDim.x * blockIdx.x;
	if (col < n_cols)
	{
		float acc = 0.f;
		for (int r = 0; r < n_rows; r++)
			acc += data[r * n_cols + col];
		const float mu = acc / n_rows;
		float sq = 0.f;
		for (int r = 0; r < n_rows; r++)
		{
			const float d = data[r * n_cols + col] - mu;
			sq += d * d;
		}
		mean[col] = mu;
		variance[col] = sq / n_rows;
	}
}

int main(int argc, char **argv)
{
	const int R = 150, C = 200;
	vector<float> x(R * C), mu(C), var(C);
	unsigned int s = 77;
	for (auto &v : x) { s = s * 1664525u + 1013904223u; v = (s >> 9) / 8388608.0f * 6.f - 1.5f; }
	float *dx, *dm, *dv;
	cudaMalloc((void **)&dx, R * C * sizeof(float));
	cudaMalloc((void **)&dm, C * sizeof(float));
	cudaMalloc((void **)&dv, C * sizeof(float));
	cudaMemcpy(dx, x.data(), R * C * sizeof(float), cudaMemcpyHostToDevice);
	column_moments<<<(C + 127) / 128, 128>>>(dx, dm, dv, R, C);
	cudaMemcpy(mu.data(), dm, C * sizeof(float), cudaMemcpyDeviceToHost);
	cudaMemcpy(var.data(), dv, C * sizeof(float), cudaMemcpyDeviceToHost);
	double a = 0, b = 0;
	for (int i = 0; i < C; i++) { a += mu[i]; b += var[i]; }
	cout << "mean of means " << a / C << " mean of variances " << b / C << endl;
	cudaFree(dx); cudaFree(dm); cudaFree(dv);
	return 0;
}
