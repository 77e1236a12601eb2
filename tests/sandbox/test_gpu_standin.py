"""The stand-in GPU: memory, launches, faults and time, by the driver's own calls."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.executors.cpu_source import BASELINE_ENTRY
from cudaops.sandbox.gpu.platform import Executable, Module
from cudaops.sandbox.gpu.protocol import Launchable
from cudaops.sandbox.gpu.runner.driver import DriverError, DriverMissing
from cudaops.sandbox.gpu.runner.standin import FunctionHandle, ModuleHandle, StandInDriver
from cudaops.sandbox.gpu.standin import StandInPlatform
from tests.sandbox.cases import program

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

    driver: Literal["nvidia", "standin"] = "standin"
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
        raise NotImplementedError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return program(tmp_path_factory.mktemp("source"), KERNELS, MAIN)


class Bench:
    """A driver and modules of `KERNELS` for it."""

    def __init__(self, source: Program, cache: Path, environment: dict[str, str]) -> None:
        self.source, self.platform = source, StandInPlatform(cache, NamesOnly())
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


@pytest.fixture
def bench(source: Program, cache: Path) -> Iterator[Bench]:
    made = Bench(source, cache, {})
    yield made
    made.driver.close()


def pointer(address: int) -> bytes:
    return address.to_bytes(8, "little")


def scripted(source: Program, cache: Path, folder: Path, script: dict[str, object]) -> Bench:
    (folder / "times.json").write_text(json.dumps(script))
    return Bench(source, cache, {"CUDAOPS_STANDIN_TIMES": str(folder / "times.json")})


class TestMemory:
    def test_what_is_written_is_read(self, bench: Bench) -> None:
        d = bench.driver
        a, b = d.allocate(1000), d.allocate(64)
        assert a % 256 == b % 256 == 0
        assert d.read(a, 3) == b"\xcd\xcd\xcd"
        d.write(a + 10, memoryview(np.arange(4, dtype="i4").tobytes()).cast("i"))
        d.copy(b + 8, a + 10, 16)
        d.fill(b, 7, 8)
        assert d.read(b, 24) == b"\7" * 8 + np.arange(4, dtype="i4").tobytes()
        d.fill(a, 0x5A, 1000)
        assert d.read(a, 1000) == b"\x5a" * 1000
        d.write(a + 1, b"xy")
        d.copy(b, a, 4)
        assert d.read(a, 1000) == b"Zxy" + b"Z" * 997
        assert d.read(b, 4) == b"ZxyZ"

    @pytest.mark.parametrize(("offset", "size"), [(-1, 1), (60, 5), (10**9, 1), (64, 1), (0, -1)])
    def test_what_lies_outside_is_refused(self, bench: Bench, offset: int, size: int) -> None:
        address = bench.driver.allocate(64)
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            bench.driver.read(address + offset, size)

    def test_freed_memory_is_gone(self, bench: Bench) -> None:
        before = bench.driver.allocate(64)
        bench.driver.free(before)
        for call in (lambda: bench.driver.read(before, 1), lambda: bench.driver.free(before)):
            with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
                call()
        assert bench.driver.allocate(64) != before

    def test_more_than_there_is(self, bench: Bench) -> None:
        with pytest.raises(DriverError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            bench.driver.allocate(1 << 50)
        assert 0 < bench.driver.free_bytes() <= bench.driver.facts.memory_bytes

    def test_nothing_claims_to_be_a_gpu(self, bench: Bench) -> None:
        with pytest.raises(DriverMissing, match="no device 1"):
            StandInDriver(1, {})
        assert not bench.driver.facts.real
        assert bench.driver.facts.name == "cudaops stand-in (no GPU)"


class TestLaunch:
    def test_a_kernel_runs_on_parts_of_allocations(self, bench: Bench) -> None:
        a, b = bench.array(np.arange(100)), bench.array(np.zeros(200))
        f = bench.function("scale")
        assert bench.driver.parameter_sizes(f) == (8, 8, 4, 4)
        numbers = struct.pack("<i", 5), struct.pack("<f", 3.0)
        bench.launch(f, pointer(a + 40), pointer(b + 400), *numbers, threads=32)
        bench.driver.synchronize()
        assert bench.floats(b + 396, 7) == [0, 30, 33, 36, 39, 42, 0]

    def test_a_launch_sees_what_the_last_one_left(self, bench: Bench) -> None:
        a, f = bench.array([1, 2]), bench.function("scale")
        values = pointer(a), pointer(a), struct.pack("<i", 2), struct.pack("<f", 10.0)
        for _ in range(3):
            bench.launch(f, *values, threads=2)
        assert bench.floats(a, 2) == [1000, 2000]

    def test_a_launch_sees_what_was_filled(self, bench: Bench) -> None:
        d, f = bench.driver, bench.function("scale")
        a, b = d.allocate(400), d.allocate(400)
        d.fill(a, 0x40, 400)
        bench.launch(
            f, pointer(a), pointer(b), struct.pack("<i", 2), struct.pack("<f", 1), threads=4
        )
        one = struct.unpack("<f", b"\x40" * 4)[0]
        assert bench.floats(b, 2) == [one, one]
        assert d.read(b + 8, 392) == b"\xcd" * 392
        assert d.read(a, 400) == b"\x40" * 400

    def test_every_kind_of_parameter(self, bench: Bench) -> None:
        out, f = bench.array(np.zeros(11)), bench.function("kinds")
        assert bench.driver.parameter_sizes(f) == (8, 16, 1, 8, 8, 1, 2, 8, 4, 2)
        bench.launch(
            f, pointer(out), struct.pack("<ifd", 3, 0.5, -1.25), b"\xff", struct.pack("<q", -9),
            struct.pack("<d", 1 / 3), b"\1", np.float16(1.5).tobytes(),
            struct.pack("<Q", 1 << 63), struct.pack("<i", 1), struct.pack("<h", -2),
        )  # fmt: skip
        expected = [3, 0.5, -1.25, 255, -9, 1 / 3, 1, 1.5, 8, 1, -2]
        np.testing.assert_array_equal(bench.floats(out, 11), np.array(expected, "f4"))

    @pytest.mark.parametrize("values", [(), (b"\0" * 8,), (b"\0" * 8, b"\0" * 4, b"", b"")])
    def test_wrong_parameters_are_refused(self, bench: Bench, values: tuple[bytes, ...]) -> None:
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            bench.launch(bench.function("scale"), *values)

    def test_device_variables_live_as_long_as_their_module(self, bench: Bench) -> None:
        d = bench.driver
        module, handle = bench.module("weigh")
        f, b = d.function(handle, module.launchable(BASELINE_ENTRY)), bench.array(np.zeros(4))
        weights, calls = d.variable(handle, "_Vweights"), d.variable(handle, "_Vcalls")
        assert (weights[1], calls[1]) == (16, 4)
        for _ in range(2):
            bench.launch(f, pointer(b), threads=4)
        assert bench.floats(b, 4) == [1, 2, 3, 4]
        assert d.read(*calls) == struct.pack("<i", 8)
        d.write(weights[0] + 4, struct.pack("<f", 9))
        bench.launch(f, pointer(b), threads=4)
        assert bench.floats(b, 4) == [1, 9, 3, 4]
        other = d.variable(bench.module("weigh")[1], "_Vcalls")
        assert d.read(*other) == struct.pack("<i", 0)
        with pytest.raises(DriverError, match="CUDA_ERROR_NOT_FOUND"):
            d.variable(handle, "_Vnobody")
        d.unload(handle)
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_HANDLE"):
            bench.launch(f, pointer(b))

    def test_a_widened_unit_takes_doubles(self, bench: Bench) -> None:
        a, f = bench.array([1 / 3, 2 / 3], "f8"), bench.function("scale", widened=True)
        assert bench.driver.parameter_sizes(f) == (8, 8, 4, 8)
        bench.launch(
            f, pointer(a), pointer(a), struct.pack("<i", 2), struct.pack("<d", 3), threads=2
        )
        assert np.frombuffer(bench.driver.read(a, 16)).tolist() == [1.0, 2.0]

    def test_a_rewrites_steps_have_entries_of_their_own(self, bench: Bench) -> None:
        text = """// @launch twice<2> grid=(1) block=(n) args=(b)
template <int BY> __global__ void twice(float* b) { b[threadIdx.x] *= BY; }"""
        rewrite = make_rewrite(text, "test", "test", "test")
        unit = Unit(program=bench.source, kernel="scale", callee="scale", rewrite=rewrite)
        module = bench.platform.unit(unit, draft=True)
        assert isinstance(module, Module), module
        f = bench.driver.function(bench.driver.load(module.image), module.launchable(0))
        b = bench.array([1, 2, 3])
        bench.launch(f, pointer(b), threads=3)
        assert bench.floats(b, 3) == [2, 4, 6]

    def test_a_rewrites_own_variables_live_on_too(self, bench: Bench) -> None:
        text = """// @launch count grid=(1) block=(1) args=(b)
__device__ int seen = 10;
static __device__ int hidden;
template <int BY> __device__ int inside() { static int calls = 100; return calls += BY; }
__global__ void count(float* b) { b[0] = ++seen; b[1] = ++hidden; b[2] = inside<2>(); }"""
        rewrite = make_rewrite(text, "test", "test", "test")
        unit = Unit(program=bench.source, kernel="scale", callee="scale", rewrite=rewrite)
        module = bench.platform.unit(unit, draft=False)
        assert isinstance(module, Module), module
        f = bench.driver.function(bench.driver.load(module.image), module.launchable(0))
        b = bench.array([0, 0, 0])
        for _ in range(3):
            bench.launch(f, pointer(b))
        assert bench.floats(b, 3) == [13, 3, 106]

    def test_pointers_nobody_can_follow_are_said(self, bench: Bench) -> None:
        _, handle = bench.module("weigh")
        variable, _ = bench.driver.variable(handle, "_Vweights")
        held = pointer(bench.array([1])) + struct.pack("<ii", 1, 0)
        for f, value, said in (
            (
                bench.function("held"),
                held,
                r"parameter 1 \(h\) is a structure that holds a pointer",
            ),
            (bench.function("weigh"), pointer(variable), "points into a device variable"),
        ):
            with pytest.raises(DriverError, match=f"CUDA_ERROR_NOT_SUPPORTED: .*{said}"):
                bench.launch(f, value)
        bench.driver.synchronize()

    @pytest.mark.parametrize(        ("grid", "block", "shared"),
        [
            (Dim3(x=0), Dim3(), 0), (Dim3(y=65536), Dim3(), 0), (Dim3(), Dim3(x=32, y=32, z=2), 0),
            (Dim3(), Dim3(z=65), 0), (Dim3(), Dim3(x=1025), 0), (Dim3(), Dim3(), 49153),
        ],
    )  # fmt: skip
    def test_what_a_device_refuses(
        self, bench: Bench, grid: Dim3, block: Dim3, shared: int
    ) -> None:
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            bench.driver.launch(bench.function("reverse"), grid, block, shared, [pointer(0)])
        bench.driver.synchronize()

    def test_more_shared_memory_is_opted_in(self, bench: Bench) -> None:
        d, f, b = bench.driver, bench.function("reverse"), bench.array([1, 2, 3])
        d.allow_dynamic_shared(f, 90_000)
        d.launch(f, Dim3(), Dim3(x=3), 90_000, [pointer(b)])
        assert bench.floats(b, 3) == [3, 2, 1]
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            d.allow_dynamic_shared(f, 101_377)

    def test_what_kernels_print_is_printed(
        self, bench: Bench, capfd: pytest.CaptureFixture[str]
    ) -> None:
        bench.launch(bench.function("says"), pointer(bench.array([41], "i4")))
        assert capfd.readouterr().out == "said 41\n"

    @pytest.mark.parametrize("text", [None, "{}", '{"executable": 1}'])
    def test_what_is_no_image(self, bench: Bench, tmp_path: Path, text: str | None) -> None:
        if text is not None:
            (tmp_path / "image.json").write_text(text)
        name = "FILE_NOT_FOUND" if text is None else "INVALID_IMAGE"
        with pytest.raises(DriverError, match=f"CUDA_ERROR_{name}"):
            bench.driver.load(tmp_path / "image.json")


class TestFaults:
    @pytest.mark.parametrize(
        ("kernel", "threads", "name", "said"),
        [
            ("traps", 1, "CUDA_ERROR_LAUNCH_FAILED", "traps: aborted"),
            ("checks", 1, "CUDA_ERROR_ASSERT", "b[0] == 7"),
            ("stuck", 32, "CUDA_ERROR_LAUNCH_TIMEOUT", "k.cu:30"),
        ],
    )
    def test_a_fault_shows_late_and_stays(
        self, bench: Bench, kernel: str, threads: int, name: str, said: str
    ) -> None:
        d, b = bench.driver, bench.array([1], "i4")
        fine, bad = bench.function("says"), bench.function(kernel)
        bench.launch(bad, pointer(b), threads=threads)
        bench.launch(fine, pointer(b))
        d.fill(b, 0, 4)
        event = d.event()
        d.record(event)
        calls: list[Callable[[], object]] = [
            d.synchronize, lambda: d.read(b, 4), lambda: d.write(b, b"1234"), d.free_bytes,
            lambda: d.allocate(4), lambda: bench.launch(fine, pointer(b)), d.event,
            lambda: d.elapsed_us(event, event),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(DriverError) as caught:
                call()
            assert caught.value.name == name
            assert said in caught.value.message
        d.close()
        assert StandInDriver(environment={}).allocate(4)

    @pytest.mark.parametrize(("at", "said"), [(50, "past the end"), (-5, "before the start")])
    def test_an_access_outside_of_the_allocation(self, bench: Bench, at: int, said: str) -> None:
        b = bench.array(np.zeros(40))
        bench.launch(bench.function("far"), pointer(b), struct.pack("<q", at))
        with pytest.raises(
            DriverError, match=f"CUDA_ERROR_ILLEGAL_ADDRESS.*{said} of allocation b "
        ):
            bench.driver.read(b, 4)

    def test_a_small_overrun_stays_in_the_allocation(self, bench: Bench) -> None:
        """The runner's guard bands lie in the same allocation, around what the kernel is given."""
        b = bench.array(np.zeros(40))
        for at in (-1, 20):
            bench.launch(bench.function("far"), pointer(b + 40), struct.pack("<q", at))
        assert np.flatnonzero(bench.floats(b, 40)).tolist() == [9, 30]

    @pytest.mark.parametrize("address", [0, 0x1234_5678_9ABC, "freed"])
    def test_pointers_into_nothing(self, bench: Bench, address: int | str) -> None:
        b = bench.array([0])
        if address == "freed":
            address = bench.array([0])
            bench.driver.free(address)
        assert isinstance(address, int)
        bench.launch(
            bench.function("scale"), pointer(address), pointer(b), bytes(4), bytes(4)
        )  # n = 0: nobody follows it
        bench.driver.synchronize()
        bench.launch(bench.function("far"), pointer(address), struct.pack("<q", 3))
        said = "through a null pointer" if address == 0 else f"0x{address:x}, which is not"
        with pytest.raises(DriverError, match=f"CUDA_ERROR_ILLEGAL_ADDRESS.*{said}"):
            bench.driver.synchronize()

    def test_a_kernel_that_never_ends_ends_with_its_runner(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        module, _ = bench.module("endless")
        script = f"""
import sys
from pathlib import Path
from cudaops.domain.base import Dim3
from cudaops.sandbox.gpu.protocol import Launchable
from cudaops.sandbox.gpu.runner.standin import StandInDriver
d = StandInDriver()
m = d.load(Path({str(module.image)!r}))
f = d.function(m, Launchable.model_validate_json({module.launchables[0].model_dump_json()!r}))
a = d.allocate(4)
print("launching", flush=True)
d.launch(f, Dim3(), Dim3(), 0, [a.to_bytes(8, "little")])
print("ended", flush=True)
"""
        runner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert runner.stdout is not None
        assert runner.stdout.readline() == "launching\n"
        child = _child_of(runner.pid)
        time.sleep(0.3)
        assert runner.poll() is None
        runner.send_signal(signal.SIGKILL)
        assert runner.communicate(timeout=10)[0] == ""
        for _ in range(100):
            if not _alive(child):
                break
            time.sleep(0.05)
        assert not _alive(child)


def _child_of(pid: int) -> int:
    for _ in range(200):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.05)
    raise AssertionError("the runner started no child")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class TestTime:
    def test_the_clock_moves_with_launches_alone(self, bench: Bench) -> None:
        d, f, b = bench.driver, bench.function("says"), bench.array([1], "i4")
        first, second, third = d.event(), d.event(), d.event()
        d.record(first)
        time.sleep(0.01)
        d.fill(b, 0, 4)
        d.record(second)
        bench.launch(f, pointer(b))
        d.record(third)
        assert d.elapsed_us(first, second) == 0
        assert 0 < d.elapsed_us(second, third) < 1e6
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_HANDLE"):
            d.elapsed_us(first, d.event())

    def times(self, bench: Bench, kernel: str, count: int, *, flush: bool = False) -> list[float]:
        d, f = bench.driver, bench.function(kernel)
        b = bench.array([1], "i4")
        space = d.allocate(2 * d.facts.l2_bytes)
        found = []
        for _ in range(count):
            if flush:
                d.fill(space, 1, 2 * d.facts.l2_bytes)
            start, end = d.event(), d.event()
            d.record(start)
            bench.launch(f, pointer(b))
            d.record(end)
            found.append(d.elapsed_us(start, end))
        return found

    def test_a_script_says_how_long_launches_take(
        self, source: Program, cache: Path, tmp_path: Path
    ) -> None:
        kernels = {"_Zsays": {"us": [5, 6, 7], "cold_us": 9}, "*": 2.5}
        script: dict[str, object] = {"kernels": kernels, "execute": False, "sm_clock_mhz": [1, 2]}
        bench = scripted(source, cache, tmp_path, script)
        assert self.times(bench, "says", 5) == pytest.approx([9, 5, 6, 7, 5])
        assert self.times(bench, "says", 2, flush=True) == pytest.approx([9, 9])
        assert self.times(bench, "traps", 2) == pytest.approx([2.5, 2.5])
        assert [bench.driver.sm_clock_mhz() for _ in range(3)] == [1, 2, 1]
        assert bench.driver.temperature_c() is None

    def test_scripted_launches_run_all_the_same_unless_told(
        self, source: Program, cache: Path, tmp_path: Path
    ) -> None:
        for execute, expected in ((True, 10.0), (False, 1.0)):
            script = {"kernels": {"scale": 100.0}, "execute": execute}
            bench = scripted(source, cache, tmp_path, script)
            a = bench.array([1])
            values = pointer(a), pointer(a), struct.pack("<i", 1), struct.pack("<f", 10)
            bench.launch(bench.function("scale"), *values)
            assert bench.floats(a, 1) == [expected]

    def test_drift_and_noise(self, source: Program, cache: Path, tmp_path: Path) -> None:
        drift = {"kernels": {"*": 100.0}, "drift_pct": 10.0, "drift_launches": 4, "execute": False}
        bench = scripted(source, cache, tmp_path, drift)
        assert self.times(bench, "says", 6) == pytest.approx([100, 102.5, 105, 107.5, 110, 110])
        noise = {
            "kernels": {"*": {"us": 100.0, "noise_pct": 1.0}},
            "noisy": [{"first": 200, "last": 299, "noise_pct": 20.0}],
            "seed": 3,
            "execute": False,
        }
        runs = [
            np.log(self.times(scripted(source, cache, tmp_path, noise), "says", 300)) - np.log(100)
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*runs)
        assert 0.008 < np.std(runs[0][:200]) < 0.012
        assert 0.15 < np.std(runs[0][200:]) < 0.25

    def test_scripted_time_passes_on_the_hosts_clock_too(
        self, source: Program, cache: Path, tmp_path: Path
    ) -> None:
        bench = scripted(source, cache, tmp_path, {"kernels": {"says": 1000.0}, "execute": False})
        f, b = bench.function("says"), bench.array([1], "i4")
        start = time.perf_counter()
        for _ in range(50):
            bench.launch(f, pointer(b))
        bench.driver.synchronize()
        assert 0.05 <= time.perf_counter() - start < 0.5

    @pytest.mark.parametrize("text", ["", "[]", '{"kernels": {"a": "fast"}}'])
    def test_a_script_that_cannot_be_read_is_said(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "times.json").write_text(text)
        with pytest.raises(DriverMissing, match=r"times\.json"):
            StandInDriver(environment={"CUDAOPS_STANDIN_TIMES": str(tmp_path / "times.json")})


def test_no_memory_outlives_its_driver(source: Program, cache: Path) -> None:
    def held() -> int:
        opened = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        return sum("cudaops-standin" in target.name for target in opened)

    before, bench = held(), Bench(source, cache, {})
    bench.launch(bench.function("says"), pointer(bench.array([1], "i4")))
    assert held() > before
    bench.driver.close()
    assert held() == before


def test_the_second_build_comes_from_the_cache(bench: Bench) -> None:
    first, _ = bench.module("scale")
    second = bench.platform.unit(
        Unit(program=bench.source, kernel="scale", callee="scale"), draft=True
    )
    assert isinstance(second, Module)
    assert (second.image, second.cached) == (first.image, True)


def test_what_gxx_refuses_is_a_compile_error(bench: Bench) -> None:
    text = (
        "// @launch bad grid=(1) block=(1) args=(b)\n__global__ void bad(float* b) { b = missing; }"
    )
    rewrite = make_rewrite(text, "test", "test", "test")
    unit = Unit(program=bench.source, kernel="scale", callee="scale", rewrite=rewrite)
    outcome = bench.platform.unit(unit, draft=False)
    assert isinstance(outcome, CompileFailed)
    assert outcome.message.startswith("cannot run on the stand-in GPU: ")
    assert str(outcome.location) == "candidate.cu:2:37"
