"""Programs for jobs, and `cudaops worker` as a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from uuid import UUID

from cudaops.service.records import Job
from cudaops.service.store import Store

DEADLINE_S = 600.0
"""For whatever is waited for, on a loaded machine."""

MATMUL = """\
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#include "sizes.h"
__global__ void naive_matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}
int main(int argc, char** argv) {
  const int n = SIZE;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) { a[i] = i % 7 - 3; b[i] = i % 5 - 2; }
  float *A, *B, *C;
  cudaMalloc(&A, n * n * 4); cudaMalloc(&B, n * n * 4); cudaMalloc(&C, n * n * 4);
  cudaMemcpy(A, a.data(), n * n * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(B, b.data(), n * n * 4, cudaMemcpyHostToDevice);
  naive_matmul<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(A, B, C, n, n, n);
  cudaMemcpy(c.data(), C, n * n * 4, cudaMemcpyDeviceToHost);
  double sum = 0;
  for (float x : c) sum += x;
  fprintf(stderr, "%s\\n", argv[0]);
  printf("%f\\n", sum);
}
"""
HEADERS = {"sizes.h": "#define SIZE 32\n"}

COALESCED = """\
// @launch coalesced grid=(ceil_div(N,16), ceil_div(M,16)) block=(16,16) smem=0 args=(A, B, C, M, N, K)
__global__ void coalesced(const float* A, const float* B, float* C, int M, int N, int K) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}
"""  # noqa: E501  a directive is one line

ENDLESS = """\
__global__ void k(int* x) { x[0] = 1; }
int main() {
  int* x;
  cudaMalloc(&x, 4);
  k<<<1, 1>>>(x);
  for (volatile int i = 0; ; ) i = i + 1;
}
"""


@contextmanager
def service_folder() -> Iterator[Path]:
    """Where workers of a test keep their jobs."""
    with tempfile.TemporaryDirectory(prefix="cudaops-service-") as name:
        yield Path(name)


@contextmanager
def worker_process(
    conninfo: str, folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`cudaops worker` on the cpu; ended orderly, where it still runs then."""
    environment = {
        **os.environ,
        "DATABASE_URL": conninfo,
        "CUDAOPS_SERVICE_FOLDER": str(folder),
        **(env or {}),
    }
    command = [sys.executable, "-m", "cudaops", "worker", "--executor", "cpu", *arguments]
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


async def until_ended(store: Store, id: UUID) -> Job:
    """The job, once it has ended."""
    deadline = time.monotonic() + DEADLINE_S
    async with aclosing(store.watch(id)) as news:
        async for _ in news:
            job = await store.job(id)
            assert job is not None
            if job.ended_at is not None:
                return job
            assert time.monotonic() < deadline, f"{job.kind} is still {job.status}"
    raise AssertionError("nobody watches any more")


def removable_programs(folder: Path) -> Path:
    """A folder for PATH with this machine's programs as links, so that one can be taken away."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        (folder / program.name).symlink_to(program)
    return folder


async def until_works(store: Store, name: str) -> None:
    """Until this worker takes jobs."""
    deadline = time.monotonic() + DEADLINE_S
    while name not in {worker.name for worker in await store.workers()}:
        assert time.monotonic() < deadline, f"{name} does not come up"
        await asyncio.sleep(0.1)


async def until_cleared(folder: Path) -> None:
    """Until no job has a folder there any more: it goes once the job's end is written."""
    deadline = time.monotonic() + DEADLINE_S
    while left := {path.name for path in folder.iterdir()}:
        assert time.monotonic() < deadline, f"{sorted(left)} are left"
        await asyncio.sleep(0.05)


async def until_said(store: Store, id: UUID, stage: str, kind: str, after: int = 0) -> int:
    """`seq` of the first event of this stage and kind behind `after`, once it is there."""
    deadline = time.monotonic() + DEADLINE_S
    async with aclosing(store.watch(id)) as news:
        async for _ in news:
            for event in await store.events(id, after):
                if (event.stage, event.kind) == (stage, kind):
                    return event.seq
            job = await store.summary(id)
            assert job is not None
            assert job.ended_at is None, f"{job.kind} has ended without it: {job.problem}"
            assert time.monotonic() < deadline, f"nothing of {stage}"
    raise AssertionError("nobody watches any more")
