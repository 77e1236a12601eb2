"""Textures, surfaces and arrays on the `cpu` executor, against numpy and against CUDA's own rules.

Source of the expectations: CUDA C++ Programming Guide, texture fetching. Values and places are such
that every weight of a linear filter is exact in its 8 bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudaops.domain.execution import ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from tests.executors.cases import program

HEAD = """
#include <vector>
const int W = 8, H = 4, D = 3;
template <class T> __global__ void lines(cudaTextureObject_t t, T* o, const float* x, int n) {
  int i = threadIdx.x;
  if (i < n) o[i] = tex1D<T>(t, x[i]);
}
__global__ void planes(cudaTextureObject_t t, float* o, const float* x, const float* y, int n) {
  int i = threadIdx.x;
  if (i < n) o[i] = tex2D<float>(t, x[i], y[i]);
}
__global__ void layers(cudaTextureObject_t t, float* o, int layer) {
  o[threadIdx.x] = tex2DLayered<float>(t, threadIdx.x % W + 0.5f, threadIdx.x / W + 0.5f, layer);
}
__global__ void volume(cudaTextureObject_t t, float* o) {
  int i = threadIdx.x;
  o[i] = tex3D<float>(t, i % W + 0.5f, i / W % H + 0.5f, i / W / H + 0.5f);
}
__global__ void fetched(cudaTextureObject_t t, float4* o, int n) {
  int i = (int)threadIdx.x - 1;
  o[threadIdx.x] = tex1Dfetch<float4>(t, i);
}
__global__ void drawn(cudaSurfaceObject_t s, float* o) {
  int x = threadIdx.x % W, y = threadIdx.x / W;
  float v = surf2Dread<float>(s, x * 4, y);
  surf2Dwrite(v * 2, s, x * 4, y);
  surf2Dwrite(99.0f, s, (x + W) * 4, y, cudaBoundaryModeZero);
  surf2Dread(&v, s, -4, y, cudaBoundaryModeClamp);
  o[threadIdx.x] = v;
}
template <class T> T* device(const std::vector<T>& h) {
  T* d;
  cudaMalloc(&d, h.size() * sizeof(T));
  cudaMemcpy(d, h.data(), h.size() * sizeof(T), cudaMemcpyHostToDevice);
  return d;
}
template <class T> std::vector<T> host(const T* d, size_t n) {
  std::vector<T> h(n);
  cudaMemcpy(h.data(), d, n * sizeof(T), cudaMemcpyDeviceToHost);
  return h;
}
void show(const std::vector<float>& h) {
  for (float v : h) printf("%.9g ", v);
  printf("\\n");
}
cudaTextureObject_t of(cudaArray_t a, cudaTextureFilterMode filter, cudaTextureAddressMode mode,
                       int normalised) {
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = a;
  cudaTextureDesc d{};
  d.addressMode[0] = d.addressMode[1] = d.addressMode[2] = mode;
  d.filterMode = filter, d.normalizedCoords = normalised, d.borderColor[0] = -5;
  cudaTextureObject_t t = 0;
  cudaCreateTextureObject(&t, &r, &d, nullptr);
  return t;
}
"""


def shown(executor: CpuExecutor, folder: Path, body: str) -> list[list[float]]:
    ran = executor.run_program(program(folder, HEAD, body), (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    return [[float(word) for word in line.split()] for line in ran.stdout.splitlines()]


LINE = """
  std::vector<float> h = {0, 10, 30, 70, 150, 310, 630, 1270};
  auto c = cudaCreateChannelDesc<float>();
  cudaArray_t a;
  cudaMallocArray(&a, &c, W);
  cudaMemcpyToArray(a, 0, 0, h.data(), W * 4, cudaMemcpyHostToDevice);
  std::vector<float> places = {-3.25f, 0, 0.5f, 1, 1.75f, 4.9f, 7.5f, 7.99f, 8, 9.5f, 17.5f};
  int n = places.size();
  float* o = device(std::vector<float>(n));
  for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear})
    for (auto mode : {cudaAddressModeClamp, cudaAddressModeBorder}) {
      lines<float><<<1, 32>>>(of(a, filter, mode, 0), o, device(places), n);
      show(host(o, n));
    }
  for (float& p : places) p /= W;
  for (auto mode : {cudaAddressModeWrap, cudaAddressModeMirror}) {
    lines<float><<<1, 32>>>(of(a, cudaFilterModePoint, mode, 1), o, device(places), n);
    show(host(o, n));
  }
"""


def test_a_line_by_filter_and_address_mode(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    clamp, border, linear, linear_border, wrap, mirror = shown(cpu_executor, tmp_path, LINE)
    assert clamp == [0, 0, 0, 10, 10, 150, 1270, 1270, 1270, 1270, 1270]
    assert border == [-5, 0, 0, 10, 10, 150, 1270, 1270, -5, -5, -5]
    np.testing.assert_allclose(
        linear[:5] + linear[6:], [0, 0, 0, 5, 15, 1270, 1270, 1270, 1270, 1270]
    )
    # 4.4 lies 102 of 256 from 150 to 310.
    assert linear[5] == 150 + (310 - 150) * 102 / 256
    np.testing.assert_allclose(linear_border[:4], [-5, -2.5, 0, 5])
    assert linear_border[8] == (1270 - 5) / 2
    assert wrap == [150, 0, 0, 10, 10, 150, 1270, 1270, 0, 10, 10]
    assert mirror == [70, 0, 0, 10, 10, 150, 1270, 1270, 1270, 630, 10]


IMAGES = """
  std::vector<float> h(W * H * D);
  for (int i = 0; i < W * H * D; ++i) h[i] = i * i % 97;
  auto c = cudaCreateChannelDesc<float>();
  cudaArray_t flat, layered, cube;
  cudaMallocArray(&flat, &c, W, H, cudaArraySurfaceLoadStore);
  cudaMemcpy2DToArray(flat, 0, 0, h.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice);
  float* o = device(std::vector<float>(W * H * D));
  std::vector<float> x = {1, 2.5f}, y = {1, 0.75f};
  auto t = of(flat, cudaFilterModeLinear, cudaAddressModeClamp, 0);
  planes<<<1, 32>>>(t, o, device(x), device(y), 2);
  show(host(o, 2));
  cudaMalloc3DArray(&layered, &c, make_cudaExtent(W, H, D), cudaArrayLayered);
  cudaMalloc3DArray(&cube, &c, make_cudaExtent(W, H, D));
  for (auto to : {layered, cube}) {
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(h.data(), W * 4, W, H);
    p.dstArray = to;
    p.extent = make_cudaExtent(W, H, D);
    p.kind = cudaMemcpyHostToDevice;
    if (cudaMemcpy3D(&p) != cudaSuccess) return 1;
  }
  layers<<<1, W * H>>>(of(layered, cudaFilterModePoint, cudaAddressModeClamp, 0), o, 2);
  show(host(o, W * H));
  volume<<<1, W * H * D>>>(of(cube, cudaFilterModePoint, cudaAddressModeClamp, 0), o);
  show(host(o, W * H * D));
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeArray, r.res.array.array = flat;
  cudaSurfaceObject_t s;
  cudaCreateSurfaceObject(&s, &r);
  drawn<<<1, W * H>>>(s, o);
  show(host(o, W * H));
  cudaMemcpy2DFromArray(h.data(), W * 4, flat, 0, 0, W * 4, H, cudaMemcpyDeviceToHost);
  h.resize(W * H);
  show(h);
"""


def test_planes_layers_volumes_and_surfaces(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    linear, layer, volume, clamped, doubled = shown(cpu_executor, tmp_path, IMAGES)
    h = (np.arange(96) ** 2 % 97).reshape(3, 4, 8)
    between = [h[0, :2, :2].mean(), 0.75 * h[0, 0, 2] + 0.25 * h[0, 1, 2]]
    np.testing.assert_allclose(linear, between)
    np.testing.assert_array_equal(layer, h[2].ravel())
    np.testing.assert_array_equal(volume, h.ravel())
    np.testing.assert_array_equal(doubled, 2 * h[0].ravel())
    in_column = np.repeat(np.array([h[0, :, :1], 2 * h[0, :, :1]]), 8, axis=2).reshape(2, -1)
    assert all(v in pair for v, pair in zip(clamped, in_column.T, strict=True))


BYTES = """
  std::vector<uchar4> h(4);
  for (int i = 0; i < 4; ++i) h[i] = make_uchar4(i, 51 * i, 255, 0);
  uchar4* d = device(h);
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeLinear;
  r.res.linear.devPtr = d;
  r.res.linear.desc = cudaCreateChannelDesc<uchar4>();
  r.res.linear.sizeInBytes = 4 * sizeof(uchar4);
  cudaTextureDesc how{};
  how.readMode = cudaReadModeNormalizedFloat;
  cudaTextureObject_t t;
  cudaCreateTextureObject(&t, &r, &how, nullptr);
  float4* o = device(std::vector<float4>(6));
  fetched<<<1, 6>>>(t, o, 4);
  for (float4 v : host(o, 6)) printf("%.9g %.9g %.9g %.9g\\n", v.x, v.y, v.z, v.w);
"""


def test_bytes_of_linear_memory_as_normalised_floats(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    before, *inside, behind = shown(cpu_executor, tmp_path, BYTES)
    assert before == behind == [0, 0, 0, 0]
    wanted = [[i / 255, i / 5, 1, 0] for i in range(4)]
    np.testing.assert_allclose(inside, wanted, rtol=1e-6)
