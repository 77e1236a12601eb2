"""The driver's own files and logs. Wordings: NVIDIA's documentation and published outputs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudaops.cuda.driver_texts import (
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    capability,
    is_vgpu_name,
    parse_virtualisation,
    parse_xids,
    profiling_for_admins_only,
    profiling_freed_by,
)

PAGE = """
==============NVSMI LOG==============

Attached GPUs                             : 2
GPU 00000000:02:01.0
    Product Name                          : GRID A100-4C
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
        Host VGPU Mode                    : N/A
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : Unlicensed (Unrestricted)
GPU 00000000:03:00.0
    Product Name                          : NVIDIA H200
    GPU Virtualization Mode
        Virtualization Mode               : N/A
"""


def test_virtualisation() -> None:
    slice_, whole = parse_virtualisation(PAGE)
    assert slice_.is_vgpu
    assert (slice_.product, slice_.mode) == ("GRID A100-4C", "VGPU")
    assert slice_.license == "Unlicensed (Unrestricted)"
    assert (whole.bus_id, whole.mode, whole.license) == ("00000000:03:00.0", None, None)
    assert not whole.is_vgpu
    assert parse_virtualisation("No devices were found") == ()


def test_names_of_vgpus() -> None:
    for name in (
        "NVIDIA A16-4Q",
        "GRID A100-4C",
        "GRID T4-2B",
        "NVIDIA A100-1-5C",
        "NVIDIA L40S-48Q",
    ):
        assert is_vgpu_name(name), name
    for name in (
        "NVIDIA A10", "NVIDIA H200", "Tesla V100-SXM2-16GB", "NVIDIA A100-PCIE-40GB",
        "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "Quadro P1000",
        "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    ):  # fmt: skip
        assert not is_vgpu_name(name), name


def test_xids() -> None:
    log = (
        "[1.0] NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', GPU has fallen off\n"
        "kernel: NVRM: Xid (0000:01:00): 31, Ch 0000003b, intr 10000000. MMU Fault\n"
        "NVRM: Xid (PCI:0001:3b:00): 63, Row Remapper: New row marked for remapping\n"
        "NVRM: GPU at PCI:0000:01:00: GPU-bc0fa0b9\n"
        "NVRM: Xid (PCI:0000:01:00): x\n"
    )
    lost, fault, remap = parse_xids(log)
    assert (lost.code, lost.hardware) == (79, True)
    assert "fallen off" in lost.message
    assert (fault.code, fault.hardware) == (31, False)
    assert remap.is_of("00000001:3B:00.0")
    assert not remap.is_of("00000000:3B:00.0")
    assert fault.is_of("00000000:01:00.0")
    assert not fault.is_of("")


def test_who_may_read_counters() -> None:
    assert profiling_for_admins_only("A: 1\nRmProfilingAdminOnly: 1\n") is True
    assert profiling_for_admins_only("RestrictProfilingToAdminUsers: 0\n") is False
    assert profiling_for_admins_only("A: 1\n") is None
    free = "options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    assert profiling_freed_by([("a", "blacklist nouveau"), ("b", f"# x\n{free}")]) == "b"
    several = "options nvidia NVreg_Foo=1 NVreg_RestrictProfilingToAdminUsers=0\n"
    assert profiling_freed_by([("c", several)]) == "c"
    assert profiling_freed_by([("a", f"#{free}"), ("b", free.replace("=0", "=1"))]) is None


def test_capabilities() -> None:
    status = "Name:\tx\nCapEff:\t0000004000200000\nCapBnd:\t0000000000200000\n"
    assert capability(status, CAP_SYS_ADMIN) is True
    assert capability(status, CAP_PERFMON) is True
    assert capability(status, CAP_PERFMON, "CapBnd") is False
    assert capability("", CAP_SYS_ADMIN) is None


@given(st.text(max_size=300))
def test_any_text_at_all(text: str) -> None:
    parse_virtualisation(text)
    parse_xids(text)
    profiling_for_admins_only(text)
    profiling_freed_by([("x", text)])
    capability(text, CAP_SYS_ADMIN)
    is_vgpu_name(text)
