"""Machines this one is not: they answer the doctor with what such machines print.

`OtherMachine` implements `cudaops.doctor.machine.Machine`. None of its outputs was recorded on a
machine of ours (no GPU has been met yet), apart from nvcc's, which are this machine's; they are
built after the sources named beside them, which quote or document the wording.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from cudaops.doctor import LADDER
from cudaops.doctor.ladder import PlannedCheck, Rung, climb
from cudaops.doctor.machine import ProbeRunner, Response
from cudaops.domain.execution import CompileFailed, KernelResources, Misbehaved, Unit
from cudaops.domain.program import Program
from cudaops.errors import PrerequisiteError
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.platform import NVIDIA, Executable, Module, Platform
from cudaops.executors.cuda.protocol import (
    DeviceFacts,
    Launchable,
    MeasureReply,
    MeasureTask,
    ProbeReply,
    RegimeTimes,
    Reply,
    RunReply,
    RunTask,
    SideTimes,
    Task,
)
from cudaops.executors.isolation.phases import Phase
from cudaops.executors.process import Finished
from cudaops.settings import Settings

UUID = "GPU-3f1b2c4d-0000-1111-2222-333344445555"
H200_ROW = (
    f"0, NVIDIA H200, {UUID}, 580.159.04, 345, 1980, 29, 0, Enabled, Default, Disabled,"
    " 0, No, No, 0x0000000000000001, 00000000:19:00.0\n"
)
"""A row of `cudaops.cuda.driver_texts.GPU_QUERY`: values as nvidia-smi formats them, after
--help-query-gpu; name, driver and SM clock are of the H200 in tests/data/calibration."""

H200_CUDA = {
    "error": "",
    "version": 13000,
    "devices": [
        {
            "name": "NVIDIA H200",
            "uuid": UUID,
            "capability": [9, 0],
            "sm_count": 132,
            "memory_bytes": 150754820096,
        }
    ],
}
QUERY_PAGE = """
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H200
    GPU Virtualization Mode
        Virtualization Mode               : None
        Host VGPU Mode                    : N/A
"""
"""The part of `nvidia-smi -q` that is read, in the layout of driver 510 and 580."""

NVCC_VERSION = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
"""Recorded on the machine this was written on, 2026-11-20; the list below too."""
NVCC_TARGETS = "\n".join(f"sm_{n}" for n in (75, 80, 86, 87, 88, 89, 90, 100, 110, 103, 120, 121))

NCU_VERSION = """NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2025 NVIDIA Corporation
Version 2025.3.1.0 (build 36398880) (public-release)
"""
"""The version is the one in tests/data/ncu/README.md."""
NCU_PAGE = (
    '"ID","Process ID","Process Name","Kernel Name","sm__cycles_elapsed.max"\n'
    '"","","","","cycle"\n'
    '"0","4711","probe","twice(float *, int)","3,412"\n'
)
"""The raw page's form is that of tests/data/ncu/*.raw.csv."""
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at twice(float *, int)+0x80
=========     by thread (0,0,0) in block (256,0,0)
=========     Access at 0x7f1234040000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1234000000 of size 262144 bytes
=========
========= ERROR SUMMARY: 1 error
"""
"""After Compute Sanitizer's manual, Understanding Memcheck Errors."""

FULL_CAPS = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
USER_CAPS = "CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n"
DOCKER_CAPS = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n"
"""Docker's default set for root: no CAP_SYS_ADMIN (bit 21). Source: docker run, capabilities."""


def ended(stdout: str = "", stderr: str = "", code: int = 0) -> Finished:
    return Finished(code, stdout, stderr, 0.01)


def healthy() -> dict[str, Finished]:
    """Pattern in a command line to what comes of it; the first that matches."""
    return {
        r"libcuda\.py": ended(json.dumps(H200_CUDA)),
        r"nvidia-smi --query-gpu": ended(H200_ROW),
        r"nvidia-smi --query-compute-apps": ended(""),
        r"nvidia-smi -q$": ended(QUERY_PAGE),
        r"dmesg": ended("[    1.0] Linux\n"),
        r"nvcc --version": ended(NVCC_VERSION),
        r"nvcc --list-gpu-code": ended(NVCC_TARGETS),
        r"nvcc -O3": ended(),
        r"nvdisasm": ended("        /*0100*/                   EXIT ;\n"),
        r"ncu --version": ended(NCU_VERSION),
        r"ncu --import": ended(NCU_PAGE),
        r"ncu --clock-control": ended("==PROF== Disconnected from process 4711\n"),
        r"compute-sanitizer": ended(MEMCHECK, code=1),
        r"/probe$": ended("twice\n"),
    }


PROGRAMS = ("nvidia-smi", "dmesg", "nvcc", "nvdisasm", "ncu", "compute-sanitizer")


@dataclass
class OtherMachine:
    """A bare-metal H200 where everything works, unless a test says otherwise."""

    answers: dict[str, Finished] = field(default_factory=healthy)
    programs: tuple[str, ...] = PROGRAMS
    files: dict[str, str] = field(
        default_factory=lambda: {
            "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n",
            "/proc/self/status": FULL_CAPS,
            "/proc/version": "Linux version 6.8.0-45-generic (buildd@lcy02) (gcc 13)\n",
        }
    )
    variables: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ("cuda.bindings", "langchain_nvidia_ai_endpoints")
    pages: Callable[[str], Response] = lambda url: Response(404, "")
    replies: ProbeRunner | None = None
    built: Platform | None = None
    commands: list[str] = field(default_factory=list)
    """What was run, in order."""

    def says(self, **changes: Finished) -> OtherMachine:
        """The same machine with other answers, by program: `nvidia_smi`, `ncu`, ..."""
        for name, answer in changes.items():
            pattern = _PATTERNS[name]
            assert pattern in self.answers
            self.answers[pattern] = answer
        return self

    def find(self, program: str) -> Path | None:
        return Path("/usr/bin") / program if program in self.programs else None

    def run(
        self, command: Sequence[str], *, timeout_s: float, folder: Path | None = None
    ) -> Finished:
        line = " ".join(command)
        self.commands.append(line)
        for pattern, answer in self.answers.items():
            if re.search(pattern, line):
                return answer
        raise PrerequisiteError(f"{line} is not there", "nothing")

    def read(self, pattern: str) -> tuple[tuple[str, str], ...]:
        return tuple((p, t) for p, t in sorted(self.files.items()) if fnmatchcase(p, pattern))

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def package(self, name: str) -> bool:
        return name in self.packages

    def platform(self, cache: Path, sm_arch: str) -> Platform:
        return self.built or OtherPlatform(sm_arch)

    def runner(self) -> ProbeRunner:
        return self.replies or OtherRunner()

    def get(self, url: str, headers: dict[str, str], timeout_s: float) -> Response:
        return self.pages(url)


_PATTERNS = {
    "libcuda": r"libcuda\.py",
    "nvidia_smi": r"nvidia-smi --query-gpu",
    "apps": r"nvidia-smi --query-compute-apps",
    "query": r"nvidia-smi -q$",
    "dmesg": r"dmesg",
    "nvcc": r"nvcc -O3",
    "nvcc_version": r"nvcc --version",
    "nvcc_targets": r"nvcc --list-gpu-code",
    "nvdisasm": r"nvdisasm",
    "ncu_version": r"ncu --version",
    "ncu_import": r"ncu --import",
    "ncu": r"ncu --clock-control",
    "sanitizer": r"compute-sanitizer",
    "probe": r"/probe$",
}


@dataclass
class OtherPlatform:
    """A builder whose compiler is elsewhere: it says what was built."""

    sm_arch: str
    draft_by: str = "NVRTC 13.0"
    refusal: str = ""
    driver: str = NVIDIA
    program_phase: Phase = "gpu"
    names_faults: bool = False

    def unit(self, unit: Unit, *, draft: bool) -> Module | CompileFailed:
        if self.refusal:
            return CompileFailed(message=self.refusal, log=self.refusal)
        launchable = Launchable(
            entry=BASELINE_ENTRY, symbol="_Z5twicePfi", shown="twice", parameter_types=()
        )
        used = KernelResources(
            kernel="twice",
            sm_arch=self.sm_arch,
            registers=8,
            static_smem_bytes=0,
            stack_bytes=0,
            spill_store_bytes=0,
            spill_load_bytes=0,
            constant_bytes=364,
        )
        compiler = self.draft_by if draft else "nvcc 13.0.88"
        return Module(
            key="k",
            folder=Path("/cache"),
            image=Path("/cache/unit.cubin"),
            launchables=(launchable,),
            variables={},
            resources=(used,),
            command="nvcc",
            compiler=compiler,
            seconds=0.2,
            cached=False,
            log="",
        )

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        raise AssertionError("the doctor builds no recorded program")


@dataclass
class OtherRunner:
    """A runner whose GPU is elsewhere: it doubles numbers, as the doctor's kernel does."""

    wrong: int = 0
    """Results that come out wrong."""
    instead: Callable[[Task], Reply | Misbehaved | None] = lambda task: None
    """An answer of another kind; may raise."""
    us: float = 3.2
    cupti_us: tuple[float, ...] = (2.9, 3.0, 2.9, 3.1)
    notices: tuple[str, ...] = ()

    @property
    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            real=True,
            name="NVIDIA H200",
            uuid=UUID,
            compute_capability=(9, 0),
            sm_count=132,
            memory_bytes=150754820096,
            l2_bytes=62914560,
            shared_bytes_per_block_optin=232448,
            max_sm_clock_mhz=1980,
            memory_clock_mhz=3201,
            memory_bus_bits=6144,
            driver_version="580.159.04",
            cuda_version="13.0",
        )

    def request(self, task: Task, timeout_s: float) -> Reply | Misbehaved:
        instead = self.instead(task)
        if instead is not None:
            return instead
        if isinstance(task, RunTask):
            return self._ran(task)
        if isinstance(task, MeasureTask):
            return self._measured(task)
        return ProbeReply(facts=self.facts, free_bytes=149_000_000_000)

    def close(self) -> None:
        pass

    def _ran(self, task: RunTask) -> RunReply:
        source = task.buffers[0].file
        assert source is not None
        values = array("f", Path(source).read_bytes())
        doubled = array("f", (-1.0 if i < self.wrong else 2 * v for i, v in enumerate(values)))
        Path(task.dumps[0]).write_bytes(doubled.tobytes())
        return RunReply(launch_us=(self.us,))

    def _measured(self, task: MeasureTask) -> MeasureReply:
        side = SideTimes(
            samples_us=(self.us,) * 8,
            launches_a_sample=1,
            slope_us=self.us,
            cupti_us=self.cupti_us,
        )
        times = tuple(
            RegimeTimes(regime=regime, sides=(side,), blocks=(), event_overhead_us=1.5)
            for regime in task.regimes
        )
        return MeasureReply(regimes=times, seconds=0.1, notices=self.notices)


def settings(
    tmp: Path, *, key: str | None = None, base_url: str | None = None, **more: Any
) -> Settings:
    return Settings(
        cache=tmp / "cache",
        runs=tmp / "runs",
        nvidia_api_key=SecretStr(key) if key else None,
        nvidia_base_url=base_url,
        **more,
    )


def climbed(machine: OtherMachine, given: Settings, *names: str) -> dict[str, Rung]:
    """These rungs and all that they stand on, tried on that machine."""
    wanted = set(names)
    steps: list[PlannedCheck] = []
    for step in reversed(LADDER):
        if step.name in wanted:
            steps.insert(0, step)
            wanted.update(step.stands_on)
    return {rung.name: rung for rung in climb(steps, machine, given)}
