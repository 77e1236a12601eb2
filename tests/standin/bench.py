"""A stand-in driver with compiled kernels on it, for the tests of its calls."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.platform import Executable, Module
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.isolation.phases import Phase
from tests.executors.cases import program
from tests.standin.driver import FunctionHandle, ModuleHandle, StandInDriver
from tests.standin.platform import DRIVER, StandInPlatform

KERNELS = """
#include <cuda_fp16.h>
struct Affine { int n; float scale; double shift; };
struct Holder { float* p; int n; };
enum Mode { Plain, Twice };
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int calls;

__global__ void scale(const float* a, float* b, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = by * a[i];
}
__global__ void kinds(float* out, Affine f, unsigned char c, long long l, double d, bool yes,
                      __half h, unsigned long long u, Mode m, short s) {
  out[0] = f.n; out[1] = f.scale; out[2] = (float)f.shift; out[3] = c; out[4] = (float)l;
  out[5] = (float)d; out[6] = yes; out[7] = (float)h; out[8] = (float)(u >> 60); out[9] = m;
  out[10] = s;
}
__global__ void weigh(float* b) {
  b[threadIdx.x] = weights[threadIdx.x & 3];
  atomicAdd(&calls, 1);
}
__global__ void held(Holder h) { h.p[0] = h.n; }
__global__ void far(float* b, long long at) { b[at] = 1; }
__global__ void traps(int* b) { if (b[0] != 7) __trap(); }
__global__ void checks(int* b) { assert(b[0] == 7); }
__global__ void endless(volatile int* b) { while (b[0] != 7) {} }
__global__ void stuck(float* b) {
  if (threadIdx.x < 16) b[0] = __shfl_down_sync(0xffffffffu, b[0], 1); else __syncthreads();
}
__global__ void says(int* b) { printf("said %d\\n", b[0]); }
__global__ void reverse(float* b) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = b[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""
MAIN = " ".join(f"{name}<<<1, 1>>>(nullptr);" for name in ("weigh", "traps", "reverse"))


class NamesOnly:
    """A builder where there is no nvcc: kernels under their own names, nothing known of cubins."""

    driver: str = DRIVER
    program_phase: Phase = "program"
    names_faults = True
    sm_arch = "sm_86"

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        names = {BASELINE_ENTRY: unit.callee}
        if unit.rewrite is not None:
            names |= {n: step.kernel for n, step in enumerate(unit.rewrite.plan.launches)}
        return Module(
            key=f"{unit.callee} {unit.widened}",
            folder=Path("/nowhere"),
            image=Path("/nowhere/unit.cubin"),
            launchables=tuple(
                Launchable(entry=entry, symbol=f"_Z{name}", shown=name, parameter_types=())
                for entry, name in names.items()
            ),
            variables={v.qualified_name: f"_V{v.name}" for v in unit.program.global_variables},
            resources=(),
            command="",
            compiler="",
            seconds=0.0,
            cached=draft,
            log="",
        )

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        raise AssertionError("no test here builds a program")


class Bench:
    """A driver and modules of `KERNELS` for it."""

    def __init__(self, source: Program, kernels: Path, environment: dict[str, str]) -> None:
        self.source, self.platform = source, StandInPlatform(kernels, NamesOnly())
        self.driver = StandInDriver(environment=environment)

    def module(self, kernel: str, *, widened: bool = False) -> tuple[Module, ModuleHandle]:
        unit = Unit(program=self.source, kernel=kernel, callee=kernel, widened=widened)
        module = self.platform.unit(unit, draft=False)
        assert isinstance(module, Module), module
        return module, self.driver.load(module.image)

    def function(self, kernel: str, *, widened: bool = False) -> FunctionHandle:
        module, handle = self.module(kernel, widened=widened)
        return self.driver.function(handle, module.launchable(BASELINE_ENTRY))

    def array(self, values: object, dtype: str = "f4") -> int:
        data = np.asarray(values, dtype=dtype).tobytes()
        address = self.driver.allocate(len(data))
        self.driver.write(address, data)
        return address

    def floats(self, address: int, count: int) -> list[float]:
        return list(struct.unpack(f"<{count}f", self.driver.read(address, 4 * count)))

    def launch(self, function: FunctionHandle, *values: bytes, threads: int = 1) -> None:
        self.driver.launch(function, Dim3(), Dim3(x=threads), 0, values)


def pointer(address: int) -> bytes:
    return address.to_bytes(8, "little")


def scripted(source: Program, kernels: Path, folder: Path, script: dict[str, object]) -> Bench:
    (folder / "times.json").write_text(json.dumps(script))
    return Bench(source, kernels, {"CUDAOPS_STANDIN_TIMES": str(folder / "times.json")})


class OnStandIn:
    """Inherit for a fresh driver a test, over one parsed source a class."""

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, tmp_path_factory: pytest.TempPathFactory) -> Program:
        return program(tmp_path_factory.mktemp("source"), KERNELS, MAIN)

    @pytest.fixture
    def bench(self, source: Program, kernels: Path) -> Iterator[Bench]:
        made = Bench(source, kernels, {})
        yield made
        made.driver.close()
