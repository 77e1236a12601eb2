"""What can be known of the NVIDIA driver's code without a GPU.

Every name it uses is in the installed packages with the inputs and outputs it expects, and every
call it makes goes through the real `cuda.bindings` and `pynvml` into a library of C functions with
the driver's signatures (`fake_driver.cpp`), which sees the arguments a driver would see.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Misbehaved
from cudaops.domain.rewrite import NumberValue
from cudaops.errors import PrerequisiteError
from cudaops.executors.cuda.protocol import (
    MeasureReply,
    ProfileReply,
    RunReply,
    RunTask,
    TimingPolicy,
    VariableImage,
)
from cudaops.executors.cuda.runner import driver as runner_driver
from cudaops.executors.cuda.runner import nvidia, tracing
from cudaops.executors.cuda.runner.driver import DriverError
from cudaops.executors.cuda.runner.tracing import ActivityMissing
from cudaops.executors.cuda.session import RunnerSession
from tests.executors.cuda.gpu_tasks import (
    INPUT,
    measure_task,
    planned,
    profile_task,
    run_task,
    side,
)

driver = pytest.importorskip("cuda.bindings.driver")

CUBIN = """fake cubin
kernel scale 8 8 4 4
kernel other 8 8 4 4
kernel illegal 8 8 4 4
kernel prints 8 8 4 4
kernel nothing
variable weights 4
end
\0"""

ARITY: dict[str, tuple[int, int]] = {
    "cuInit": (1, 0), "cuDeviceGet": (1, 1), "cuDevicePrimaryCtxRetain": (1, 1),
    "cuCtxSetCurrent": (1, 0), "cuStreamCreate": (1, 1), "cuDeviceGetName": (2, 1),
    "cuDeviceGetUuid": (1, 1), "cuDeviceGetPCIBusId": (2, 1), "cuDriverGetVersion": (0, 1),
    "cuDeviceTotalMem": (1, 1), "cuModuleLoadData": (1, 1), "cuModuleUnload": (1, 0),
    "cuModuleGetFunction": (2, 1), "cuFuncGetParamInfo": (2, 2), "cuFuncSetAttribute": (3, 0),
    "cuModuleGetGlobal": (2, 2), "cuMemAlloc": (1, 1), "cuMemFree": (1, 0),
    "cuMemHostAlloc": (2, 1),
    "cuMemcpyHtoDAsync": (4, 0), "cuMemcpyDtoHAsync": (4, 0), "cuMemsetD8Async": (4, 0),
    "cuMemcpyDtoDAsync": (4, 0), "cuLaunchKernel": (11, 0), "cuEventCreate": (1, 1),
    "cuLaunchCooperativeKernel": (10, 0),
    "cuEventRecord": (2, 0), "cuEventSynchronize": (1, 0), "cuEventElapsedTime": (2, 1),
    "cuStreamSynchronize": (1, 0), "cuCtxResetPersistingL2Cache": (0, 0), "cuProfilerStart": (0, 0),
    "cuProfilerStop": (0, 0), "cuMemGetInfo": (0, 2), "cuStreamDestroy": (1, 0),
    "cuDevicePrimaryCtxRelease": (1, 0), "cuCtxSetLimit": (2, 0), "cuDeviceGetAttribute": (2, 1),
    "cuGetErrorString": (1, 1), "cuEventDestroy": (1, 0), "cuStreamBeginCapture": (2, 0),
    "cuStreamEndCapture": (1, 1), "cuGraphInstantiate": (2, 1), "cuGraphDestroy": (1, 0),
    "cuGraphExecDestroy": (1, 0), "cuGraphLaunch": (2, 0),
}  # fmt: skip
"""Inputs, and outputs beside the status, with which the driver's code calls each function."""


def names_in(module: Any, pattern: str) -> set[str]:
    return set(re.findall(pattern, inspect.getsource(module)))


def test_the_table_names_every_function_that_is_called() -> None:
    assert names_in(nvidia, r"\bcu[A-Z]\w+\b") == set(ARITY)


@pytest.mark.parametrize("name", sorted(ARITY))
def test_a_function_takes_and_gives_what_is_expected(name: str) -> None:
    inputs, outputs = ARITY[name]
    text = getattr(driver, name).__doc__
    head = text.splitlines()[0]
    listed = [part for part in head[head.index("(") + 1 : head.rindex(")")].split(",") if part]
    assert len(listed) == inputs, head
    returned = re.split(r"\n *Returns\n *-+\n", text)[1].split("See Also")[0]
    found = re.findall(r"^ *([A-Za-z]\w*) : ", returned, re.MULTILINE)
    assert len(found) == outputs, returned


def test_calls_in_the_source_have_as_many_arguments() -> None:
    tree = ast.parse(inspect.getsource(nvidia))
    checked = 0
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        first = call.args[0] if call.args else None
        if call.func.attr == "_call" and isinstance(first, ast.Constant):
            assert len(call.args) - 1 == ARITY[str(first.value)][0], first.value
            checked += 1
    assert checked >= 28


def test_every_enumerator_exists() -> None:
    source = inspect.getsource(nvidia)
    for name in re.findall(r'_attribute\("(\w+)"\)', source):
        assert hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), name
    for kind, name in (
        ("CUstream_flags", "CU_STREAM_NON_BLOCKING"), ("CUevent_flags", "CU_EVENT_DEFAULT"),
        ("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"),
        ("CUlimit", "CU_LIMIT_PERSISTING_L2_CACHE_SIZE"),
        ("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"),
    ):  # fmt: skip
        assert name in source
        assert hasattr(getattr(driver, kind), name)


def test_every_error_has_a_name_the_driver_uses() -> None:
    known = {one.name for one in driver.CUresult}
    used = {*runner_driver.REFUSED, *runner_driver.STICKY, *nvidia.REMEDIES, *nvidia.NOT_THERE}
    assert used <= known
    assert names_in(runner_driver, r"CUDA_ERROR_\w+") <= known


def test_every_nvml_and_cupti_name_exists() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in names_in(nvidia, r"\b(?:nvml[A-Z]\w+|NVML_\w+|NVMLError)\b"):
        assert hasattr(pynvml, name), name
    library = pytest.importorskip("cupti").cupti
    for name in names_in(tracing, r"\bcupti\.([a-zA-Z_]\w+)"):
        if name not in ("cupti", "runner"):
            assert hasattr(library, name), name
    assert library.ActivityKind.CONCURRENT_KERNEL == 10
    record = [n for n in dir(library) if re.fullmatch(r"ActivityKernel\d*", n)]
    fields = dir(getattr(library, max(record, key=lambda n: int(n[14:] or 0))))
    assert {"name", "start", "end", "kind"} <= set(fields)


@pytest.mark.parametrize("unknown", [KeyError(999), ValueError("999 is not a valid CUresult")])
def test_a_status_newer_than_the_package_is_an_error_like_any_other(unknown: Exception) -> None:
    def answers() -> None:
        raise unknown

    opened = nvidia.NvidiaDriver.__new__(nvidia.NvidiaDriver)
    opened._cuda = SimpleNamespace(cuNew=answers)
    with pytest.raises(DriverError, match="999") as caught:
        opened._call("cuNew")
    assert caught.value.name == "CUDA_ERROR_UNKNOWN"


class FakeCupti:
    """The functions of cupti-python that the runner calls; hands one buffer over at a flush."""

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10)

    def __init__(self, **records: tuple[int, int]) -> None:
        self.records = records
        self.enabled = False
        self.breaks = ""
        self.now_ns = 0

    def get_timestamp(self) -> int:
        return self.now_ns

    def activity_register_callbacks(self, _requested: Any, completed: Any) -> None:
        self.completed = completed

    def activity_enable(self, _kind: int) -> None:
        if self.breaks == "enable":
            raise TypeError("an argument of another version")
        self.enabled = True

    def activity_disable(self, _kind: int) -> None:
        self.enabled = False

    def activity_flush_all(self, _flag: int) -> None:
        if self.breaks == "flush":
            raise RuntimeError("not now")
        self.completed(
            [
                SimpleNamespace(kind=10, name=name, start=start, end=end)
                for name, (start, end) in self.records.items()
            ]
        )


def listening(monkeypatch: pytest.MonkeyPatch, fake: FakeCupti) -> tracing.CuptiTimes:
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=fake))
    return tracing.CuptiTimes()


def test_a_kernel_whose_end_is_not_known_has_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupti(late=(9_000, 0), second=(4_000, 6_500), first=(1_000, 2_000))
    seen = listening(monkeypatch, fake).record(lambda: None)
    assert seen == (("first", 1.0), ("second", 2.5))
    assert not fake.enabled


def test_a_record_that_comes_late_is_of_no_later_work(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupti(of_another=(1_000, 2_000), own=(4_000, 6_500))
    fake.now_ns = 3_000
    assert listening(monkeypatch, fake).record(lambda: None) == (("own", 2.5),)


@pytest.mark.parametrize("breaks", ["enable", "flush"])
def test_whatever_cupti_raises_it_is_only_missing_and_off(
    breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCupti()
    fake.breaks = breaks
    with pytest.raises(ActivityMissing, match=r"TypeError|RuntimeError"):
        listening(monkeypatch, fake).record(lambda: None)
    assert not fake.enabled


def test_a_fault_while_cupti_listens_stays_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise runner_driver.KernelFault("crash", "it fell", sticky=True)

    fake = FakeCupti()
    with pytest.raises(runner_driver.KernelFault):
        listening(monkeypatch, fake).record(work)
    assert not fake.enabled


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both libraries."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_driver.cpp")
    target = folder / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-std=c++17", "-o", str(target), str(source)]
    subprocess.run(command, check=True, timeout=120)
    shutil.copy(target, folder / "libnvidia-ml.so.1")
    return folder


@pytest.fixture(autouse=True)
def _locks_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def session(libraries: Path) -> Iterator[RunnerSession]:
    with RunnerSession("nvidia", environment={"LD_LIBRARY_PATH": str(libraries)}) as opened:
        yield opened


def task(folder: Path, symbol: str, **more: Any) -> RunTask:
    given = side(folder, planned(symbol, **more), module=CUBIN)
    return run_task(folder, side=given)


def test_the_facts_are_the_drivers(session: RunnerSession) -> None:
    facts = session.facts
    assert (facts.real, facts.name, facts.compute_capability) == (True, "Fake H0", (9, 0))
    assert facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (facts.sm_count, facts.l2_bytes, facts.memory_bus_bits) == (132, 1 << 20, 6144)
    assert (facts.max_sm_clock_mhz, facts.memory_clock_mhz) == (1980.0, None)
    assert (facts.driver_version, facts.cuda_version) == ("580.1.2", "13.1")
    assert facts.shared_bytes_per_block_optin == 232448


def test_a_kernel_gets_its_parameters(session: RunnerSession, tmp_path: Path) -> None:
    assert isinstance(session.request(task(tmp_path, "scale"), 20.0), RunReply)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "b.out", np.float32), 3 * INPUT)
    nothing = session.request(task(tmp_path, "nothing", values=()), 20.0)
    assert isinstance(nothing, RunReply)


def test_a_driver_before_12_4_is_helped_by_the_types(libraries: Path, tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(libraries), "FAKE_OLD_DRIVER": "1"}
    with RunnerSession("nvidia", environment=environment) as session:
        assert isinstance(session.request(task(tmp_path, "scale"), 20.0), RunReply)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "b.out", np.float32), 3 * INPUT)


def test_shared_memory_beyond_the_default_is_opted_in(
    session: RunnerSession, tmp_path: Path
) -> None:
    big = task(tmp_path, "scale", dynamic_smem_bytes=200_000)
    assert isinstance(session.request(big, 20.0), RunReply)


def test_variables_are_written_and_read(session: RunnerSession, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"abcd")
    weights = VariableImage(
        name="weights", symbol="weights", size_bytes=4, file=str(tmp_path / "w.bin")
    )
    given = side(tmp_path, planned("scale"), module=CUBIN, globals=(weights,))
    out = {"weights": str(tmp_path / "w.out")}
    reply = session.request(run_task(tmp_path, side=given, global_dumps=out), 20.0)
    assert isinstance(reply, RunReply)
    assert (tmp_path / "w.out").read_bytes() == b"abcd"


def test_an_illegal_access_is_misbehaviour_and_the_next_runner_works(
    session: RunnerSession, tmp_path: Path
) -> None:
    found = session.request(task(tmp_path, "illegal"), 20.0)
    assert isinstance(found, Misbehaved)
    assert found.what == "out_of_bounds"
    assert "an illegal memory access was encountered" in found.message
    assert isinstance(session.request(task(tmp_path, "scale"), 20.0), RunReply)


def test_what_the_driver_refuses_is_refused(session: RunnerSession, tmp_path: Path) -> None:
    wide = task(tmp_path, "scale", values=(*planned("scale").values[:3], NumberValue(value=3)))
    launch = wide.side.launches[0].model_copy(update={"block": Dim3(x=1024, y=2)})
    refused = wide.model_copy(update={"side": wide.side.model_copy(update={"launches": (launch,)})})
    found = session.request(refused, 20.0)
    assert isinstance(found, Misbehaved)
    assert found.what == "launch_refused"


def test_what_a_kernel_prints_is_in_the_log(session: RunnerSession, tmp_path: Path) -> None:
    session.request(task(tmp_path, "prints"), 20.0)
    assert "device says 1 1 1" in session.log


def measured(session: RunnerSession, folder: Path) -> MeasureReply:
    policy = TimingPolicy(
        samples=4, samples_a_block=4, spin_up_ms=1, cupti_launches=0, redone_blocks=0,
        min_sample_us=1e4,
    )  # fmt: skip
    sides = tuple(side(folder, planned(s), module=CUBIN) for s in ("scale", "other"))
    reply = session.request(measure_task(folder, sides=sides, policy=policy), 60.0)
    assert isinstance(reply, MeasureReply), reply
    return reply


def test_times_clocks_and_temperatures_come_back(session: RunnerSession, tmp_path: Path) -> None:
    reply = measured(session, tmp_path)
    states = [state for regime in reply.regimes for state in regime.blocks]
    assert {(s.sm_clock_mhz, s.temperature_c) for s in states} == {(1755.0, 41.0)}
    assert all(s.samples_us for regime in reply.regimes for s in regime.sides)


def test_launches_of_nothing_are_timed_beside(session: RunnerSession, tmp_path: Path) -> None:
    reply = measured(session, tmp_path)
    assert reply.host_gap_us is not None
    cold, warm = reply.regimes
    assert (cold.in_graph, warm.in_graph) == (False, warm.sides[0].launches_a_sample > 1)
    assert all(times.gap_us is not None for times in reply.regimes)


def test_without_graphs_launches_go_into_the_stream(libraries: Path, tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(libraries), "FAKE_NO_GRAPHS": "1"}
    with RunnerSession("nvidia", environment=environment) as session:
        reply = measured(session, tmp_path)
    assert not any(times.in_graph for times in reply.regimes)
    assert all(times.gap_us is not None for times in reply.regimes)


def test_shared_memory_is_filled_before_a_launch(session: RunnerSession, tmp_path: Path) -> None:
    filled = task(tmp_path, "scale").model_copy(update={"shared_fill": 0xFF})
    assert isinstance(session.request(filled, 20.0), RunReply)
    assert "shared memory of 264 blocks: 58112 words of ffffffff" in session.log


def test_a_profile_runs(session: RunnerSession, tmp_path: Path) -> None:
    plain = profile_task(tmp_path, 0, "scale")
    given = side(tmp_path, planned("scale"), module=CUBIN)
    reply = session.request(plain.model_copy(update={"side": given}), 20.0)
    assert isinstance(reply, ProfileReply)


def test_no_visible_gpu_is_said_with_its_remedy(libraries: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(libraries), "CUDA_VISIBLE_DEVICES": ""}
    with (
        RunnerSession("nvidia", environment=environment) as session,
        pytest.raises(PrerequisiteError) as caught,
    ):
        assert session.facts
    assert "CUDA_ERROR_NO_DEVICE" in caught.value.problem
    assert "nvidia-smi -L" in caught.value.remedy
    with (
        RunnerSession(
            "nvidia", device_index=3, environment={"LD_LIBRARY_PATH": str(libraries)}
        ) as session,
        pytest.raises(PrerequisiteError, match="INVALID_DEVICE"),
    ):
        assert session.facts
