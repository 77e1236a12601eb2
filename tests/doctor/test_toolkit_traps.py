"""Toolkits that are not there, not whole, too old or too new: the cause, and what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.doctor.ladder import Rung
from cudaops.doctor.toolkit import fitting, fitting_ncu
from tests.doctor.machines import (
    OtherMachine,
    OtherPlatform,
    climbed,
    ended,
    settings,
)


def rung(machine: OtherMachine, tmp_path: Path, name: str) -> Rung:
    return climbed(machine, settings(tmp_path), name)[name]


def test_a_whole_toolkit(tmp_path: Path) -> None:
    names = ("nvcc", "toolkit", "kernel build", "nvrtc", "disassembler")
    found = climbed(OtherMachine(), settings(tmp_path), *names)
    assert {found[name].status for name in names} == {"ok"}
    assert "13.0.88: a program for sm_90" in found["nvcc"].detail
    assert "CUDA 13.0 builds for sm_90, the driver runs CUDA 13.0" in found["toolkit"].detail
    assert "8 registers" in found["kernel build"].detail
    assert "NVRTC 13.0" in found["nvrtc"].detail


def test_no_nvcc(tmp_path: Path) -> None:
    machine = OtherMachine(programs=("nvidia-smi",))
    found = climbed(machine, settings(tmp_path), "toolkit", "disassembler")
    assert found["nvcc"].status == "missing"
    assert "cudaops[toolkit]" in (found["nvcc"].remedy or "")
    assert found["toolkit"].detail == "not tried: needs nvcc"


# What nvcc prints: g++'s refusal stands in its crt/host_config.h; the linker's and the
# preprocessor's lines were seen with nvcc 13.0.88 from wheels (packages: no lib64, no cccl).
@pytest.mark.parametrize(
    ("said", "cause", "remedy"),
    [
        (
            "#error -- unsupported GNU version! gcc versions later than 15 are not supported!",
            "refuses this machine's g++",
            "apt-get install g++-13",
        ),
        ("/usr/bin/ld: cannot find -lcudart_static", "no libcudart_static.a", "--force-reinstall"),
        ("fatal error: nv/target: No such file or directory", "CCCL headers", "--force-reinstall"),
        ("fatal: write failed: No space left on device", "the disk is full", "TMPDIR"),
        ("nvcc fatal : something else", "something else", "CUDA_HOME"),
    ],
)
def test_an_nvcc_that_cannot_build(said: str, cause: str, remedy: str, tmp_path: Path) -> None:
    found = rung(OtherMachine().says(nvcc=ended(stderr=said, code=1)), tmp_path, "nvcc")
    assert found.status == "failed"
    assert cause in found.detail
    assert remedy in (found.remedy or "")


TARGETS = ("sm_75", "sm_86", "sm_90")


@pytest.mark.parametrize(
    ("capability", "release", "driver", "cause", "remedy"),
    [
        ((7, 0), (13, 0), (13, 0), "does not compile for sm_70 any more", "CUDA 12.x toolkit"),
        ((6, 1), (13, 0), (13, 0), "sm_61 any more: CUDA 12.x", "CUDA 12.x toolkit"),
        ((3, 5), (12, 4), (12, 4), "sm_35 any more: CUDA 11.x", "CUDA 11.x toolkit"),
        ((12, 0), (12, 4), (12, 8), "does not know this GPU's sm_120 yet", "CUDA 12.8 or newer"),
        ((13, 0), (13, 0), (14, 0), "does not know this GPU's sm_130 yet", "a newer CUDA toolkit"),
        ((9, 0), (13, 0), (12, 4), "the driver speaks CUDA 12.4", "R580 or newer"),
        ((9, 0), (14, 0), (13, 0), "the driver speaks CUDA 13.0", "that speaks CUDA 14"),
    ],
)
def test_versions_that_do_not_go_together(
    capability: tuple[int, int],
    release: tuple[int, int],
    driver: tuple[int, int],
    cause: str,
    remedy: str,
) -> None:
    found = fitting(capability, release, driver, TARGETS)
    assert found.status == "failed"
    assert cause in found.detail
    assert remedy in (found.remedy or "")


def test_versions_that_go_together() -> None:
    assert fitting((9, 0), (12, 4), (13, 0), TARGETS).status == "ok"
    minor = fitting((8, 6), (13, 1), (13, 0), TARGETS)
    assert minor.status == "ok"
    assert "minor version compatibility" in minor.detail
    assert fitting((8, 6), (11, 1), (13, 0), ()).status == "ok"


def test_a_gpu_that_nvcc_gave_up(tmp_path: Path) -> None:
    """nvcc still checks rewrites, for another architecture; nothing is launched."""
    cuda = OtherMachine().answers[r"libcuda\.py"].stdout.replace("[9, 0]", "[7, 0]")
    volta = OtherMachine().says(libcuda=ended(cuda))
    found = climbed(volta, settings(tmp_path), "launch", "kernel build")
    assert "a program for sm_86" in found["nvcc"].detail
    assert found["kernel build"].status == "ok"
    assert "sm_70 any more" in found["toolkit"].detail
    assert found["launch"].detail == "not tried: needs toolkit"


@pytest.mark.parametrize(
    ("ncu", "capability", "driver", "status", "words"),
    [
        ((2025, 3), (9, 0), (13, 0), "ok", "of CUDA 13.0"),
        ((2021, 3), (9, 0), (13, 0), "failed", "install ncu 2022.3 or newer"),
        ((2024, 3), (12, 0), (12, 8), "failed", "install ncu 2025.1 or newer"),
        ((2025, 3), (7, 0), (13, 0), "failed", "install ncu 2024.3"),
        ((2025, 3), (9, 0), (12, 4), "failed", "update the driver to R580 or newer"),
        ((2023, 1), (9, 0), (13, 0), "ok", "older than the driver's CUDA 13.0"),
        ((2019, 1), (7, 5), (12, 0), "ok", "or older"),
        ((2099, 1), (14, 0), (14, 0), "ok", "ncu 2099.1"),
    ],
)
def test_ncu_and_what_it_must_know(
    ncu: tuple[int, int],
    capability: tuple[int, int],
    driver: tuple[int, int],
    status: str,
    words: str,
) -> None:
    found = fitting_ncu(ncu, capability, driver).finding
    assert found.status == status
    assert words in f"{found.detail} {found.remedy}"


def test_nvrtc_that_takes_no_part(tmp_path: Path) -> None:
    without = OtherMachine(packages=())
    assert "seven times slower" in rung(without, tmp_path, "nvrtc").detail
    falls_back = OtherMachine(built=OtherPlatform("sm_90", draft_by="nvcc 13.0.88"))
    found = rung(falls_back, tmp_path, "nvrtc")
    assert (found.status, found.needed_by) == ("missing", ())
    assert "built by nvcc 13.0.88" in found.detail
    assert "cudaops[cuda]" in (found.remedy or "")


def test_a_builder_that_refuses(tmp_path: Path) -> None:
    machine = OtherMachine(built=OtherPlatform("sm_90", refusal="ptxas fatal"))
    found = climbed(machine, settings(tmp_path), "disassembler", "nvrtc")
    assert "ptxas fatal" in found["kernel build"].detail
    assert "ptxas fatal" in found["nvrtc"].detail
    assert found["disassembler"].detail == "not tried: needs kernel build"


def test_a_disassembler_that_is_too_old_or_not_there(tmp_path: Path) -> None:
    said = ended(stderr="nvdisasm fatal : unsupported architecture 'sm_90'", code=255)
    found = rung(OtherMachine().says(nvdisasm=said), tmp_path, "disassembler")
    assert "unsupported architecture" in found.detail
    assert "cudaops[toolkit]" in (found.remedy or "")
    programs = tuple(p for p in OtherMachine().programs if p != "nvdisasm")
    found = rung(OtherMachine(programs=programs), tmp_path, "disassembler")
    assert found.status == "missing"
    assert "nvidia-cuda-nvdisasm" in (found.remedy or "")
