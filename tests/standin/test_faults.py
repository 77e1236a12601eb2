"""The stand-in GPU: what goes wrong, and time, by the driver's own calls."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.program import Program
from cudaops.executors.cuda.runner.driver import DriverError, DriverMissing
from tests.standin.bench import Bench, OnStandIn, pointer, scripted
from tests.standin.driver import StandInDriver


class TestFaults(OnStandIn):
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
from cudaops.executors.cuda.protocol import Launchable
from tests.standin.driver import StandInDriver
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


class TestTime(OnStandIn):
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
        self, source: Program, kernels: Path, tmp_path: Path
    ) -> None:
        times = {"_Zsays": {"us": [5, 6, 7], "cold_us": 9}, "*": 2.5}
        script: dict[str, object] = {"kernels": times, "execute": False, "sm_clock_mhz": [1, 2]}
        bench = scripted(source, kernels, tmp_path, script)
        assert self.times(bench, "says", 5) == pytest.approx([9, 5, 6, 7, 5])
        assert self.times(bench, "says", 2, flush=True) == pytest.approx([9, 9])
        assert self.times(bench, "traps", 2) == pytest.approx([2.5, 2.5])
        assert [bench.driver.sm_clock_mhz() for _ in range(3)] == [1, 2, 1]
        assert bench.driver.temperature_c() is None

    def test_scripted_launches_run_all_the_same_unless_told(
        self, source: Program, kernels: Path, tmp_path: Path
    ) -> None:
        for execute, expected in ((True, 10.0), (False, 1.0)):
            script = {"kernels": {"scale": 100.0}, "execute": execute}
            bench = scripted(source, kernels, tmp_path, script)
            a = bench.array([1])
            values = pointer(a), pointer(a), struct.pack("<i", 1), struct.pack("<f", 10)
            bench.launch(bench.function("scale"), *values)
            assert bench.floats(a, 1) == [expected]

    def test_drift_and_noise(self, source: Program, kernels: Path, tmp_path: Path) -> None:
        drift = {"kernels": {"*": 100.0}, "drift_pct": 10.0, "drift_launches": 4, "execute": False}
        bench = scripted(source, kernels, tmp_path, drift)
        assert self.times(bench, "says", 6) == pytest.approx([100, 102.5, 105, 107.5, 110, 110])
        noise = {
            "kernels": {"*": {"us": 100.0, "noise_pct": 1.0}},
            "noisy": [{"first": 200, "last": 299, "noise_pct": 20.0}],
            "seed": 3,
            "execute": False,
        }
        runs = [
            np.log(self.times(scripted(source, kernels, tmp_path, noise), "says", 300))
            - np.log(100)
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*runs)
        assert 0.008 < np.std(runs[0][:200]) < 0.012
        assert 0.15 < np.std(runs[0][200:]) < 0.25

    def test_scripted_time_passes_on_the_hosts_clock_too(
        self, source: Program, kernels: Path, tmp_path: Path
    ) -> None:
        bench = scripted(source, kernels, tmp_path, {"kernels": {"says": 1000.0}, "execute": False})
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
