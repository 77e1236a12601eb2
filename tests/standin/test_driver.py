"""The stand-in GPU: memory, launches and builds, by the driver's own calls."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import CompileFailed, Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.platform import Module
from cudaops.executors.cuda.runner.driver import DriverError, DriverMissing
from cudaops.program.plans import make_rewrite
from tests.standin.bench import Bench, OnStandIn, pointer
from tests.standin.driver import StandInDriver


class TestMemory(OnStandIn):
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


class TestLaunch(OnStandIn):
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

    def test_a_structure_may_hold_pointers(self, bench: Bench) -> None:
        array = bench.array([1])
        bench.launch(bench.function("held"), pointer(array) + struct.pack("<ii", 7, 0))
        assert bench.floats(array, 1) == [7]

    def test_pointers_nobody_can_follow_are_said(self, bench: Bench) -> None:
        _, handle = bench.module("weigh")
        variable, _ = bench.driver.variable(handle, "_Vweights")
        held = pointer(variable) + struct.pack("<ii", 1, 0)
        for f, value in (
            (bench.function("held"), held),
            (bench.function("weigh"), pointer(variable)),
        ):
            said = "CUDA_ERROR_NOT_SUPPORTED: .*points into a device variable"
            with pytest.raises(DriverError, match=said):
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


class TestBuilds(OnStandIn):
    def test_no_memory_outlives_its_driver(self, source: Program, kernels: Path) -> None:
        def held() -> int:
            opened = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
            return sum("cudaops-standin" in target.name for target in opened)

        before, bench = held(), Bench(source, kernels, {})
        bench.launch(bench.function("says"), pointer(bench.array([1], "i4")))
        assert held() > before
        bench.driver.close()
        assert held() == before

    def test_the_second_build_comes_from_the_cache(self, bench: Bench) -> None:
        first, _ = bench.module("scale")
        second = bench.platform.unit(
            Unit(program=bench.source, kernel="scale", callee="scale"), draft=True
        )
        assert isinstance(second, Module)
        assert (second.image, second.cached) == (first.image, True)

    def test_what_gxx_refuses_is_a_compile_error(self, bench: Bench) -> None:
        text = (
            "// @launch bad grid=(1) block=(1) args=(b)\n"
            "__global__ void bad(float* b) { b = missing; }"
        )
        rewrite = make_rewrite(text, "test", "test", "test")
        unit = Unit(program=bench.source, kernel="scale", callee="scale", rewrite=rewrite)
        outcome = bench.platform.unit(unit, draft=False)
        assert isinstance(outcome, CompileFailed)
        assert outcome.message.startswith("cannot run on the stand-in GPU: ")
        assert str(outcome.location) == "candidate.cu:2:37"
