"""A hostile author's program, whose host code may be anything, through the `cpu` executor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudaops.domain.execution import Captured, Misbehaved, ProgramRan
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.isolation.view import HINT
from cudaops.program.parse import load_program

HOSTILE = r"""
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
__global__ void twice(float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] *= 2.0f;
}
static void tries(const char* what, bool worked) { if (worked) printf("%s WORKED\n", what); }
int main(int argc, char** argv) {
  std::string parent = "/proc/" + std::to_string(getppid());
  tries("environ", fopen((parent + "/environ").c_str(), "r"));
  tries("mem", fopen((parent + "/mem").c_str(), "r+"));
  for (int i = 1; i + 2 < argc; i++) {
    std::string path = std::string(argv[i]).substr(1);
    tries("read", fopen(path.c_str(), "r"));
    tries("write", fopen(path.c_str(), "a"));
  }
  tries("socket", socket(AF_INET, SOCK_STREAM, 0) >= 0);
  tries("kill", kill(atoi(argv[argc - 2]), SIGKILL) == 0);
  tries("key", getenv("NVIDIA_API_KEY"));
  FILE* author = fopen("results.txt", "w");
  if (author) { fputs("overwritten", author); fclose(author); }
  if (fork() == 0) { setsid(); for (;;) pause(); }
  float* b;
  cudaMalloc(&b, 4096);
  cudaMemset(b, 0, 4096);
  twice<<<4, 256>>>(b, 1024);
  cudaDeviceSynchronize();
  puts("end");
  return atoi(argv[argc - 1]);
}
"""


@pytest.fixture
def author(tmp_path: Path) -> Path:
    folder = tmp_path / "author"
    (folder / "runs" / "earlier").mkdir(parents=True)
    for name in (".env", "results.txt", "runs/earlier/run.json"):
        (folder / name).write_text("NVIDIA_API_KEY=nvapi-1", encoding="utf-8")
    return folder


def test_contained_while_it_runs_and_is_captured(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_API_KEY", "nvapi-secret")
    monkeypatch.setenv("CUDAOPS_CACHE", str(tmp_path / "cache"))
    executor = CpuExecutor("A10", tmp_path / "cache" / "kernels", 2, author)
    if executor.isolation not in ("S2", "S3"):
        pytest.skip(f"this machine reaches {executor.isolation}")
    earlier = author / "runs" / "earlier" / "run.json"
    # Behind a letter, since what an argument names is allowed.
    argv = (f"x{author / '.env'}", f"x{earlier}", f"x{tmp_path / 'cache'}", str(os.getpid()), "0")
    (tmp_path / "hostile.cu").write_text(HOSTILE, encoding="utf-8")
    hostile = load_program(tmp_path / "hostile.cu")
    ran = executor.run_program(hostile, argv, 120.0)
    assert isinstance(ran, ProgramRan), ran
    assert ran.stdout == "end\n"
    captured = executor.capture(hostile, None, argv, tmp_path / "capture", 120.0)
    assert isinstance(captured, Captured), captured
    assert captured.stdout == "end\n"
    assert (author / "results.txt").read_text("utf-8") == "NVIDIA_API_KEY=nvapi-1"
    assert {p.name for p in author.iterdir()} == {".env", "results.txt", "runs"}


def test_a_program_that_misses_a_file_hears_of_the_view(author: Path, tmp_path: Path) -> None:
    text = r"""
#include <cstdio>
__global__ void k(int* a) { a[0] = 1; }
int main() {
  if (!fopen("../elsewhere/input.bin", "r")) { perror("input.bin"); return 1; }
  int* a; cudaMalloc(&a, 4); k<<<1, 1>>>(a);
}
"""
    executor = CpuExecutor("A10", tmp_path / "cache" / "kernels", 2, author)
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    found = executor.capture(load_program(tmp_path / "k.cu"), None, (), tmp_path / "capture", 120.0)
    assert isinstance(found, Misbehaved)
    assert HINT in found.message
