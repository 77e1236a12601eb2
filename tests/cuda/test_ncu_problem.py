"""What ncu prints when it cannot, and what to do about it."""

from __future__ import annotations

from typing import get_args

import pytest

from cudaops.cuda.ncu_problem import REMEDIES, NcuCause, classify_ncu_failure, problem

NONE_PROFILED = "==WARNING== No kernels were profiled."

SAID: list[tuple[str, str]] = [
    (
        "permission",
        ("==PROF== Connected to process 73\n==ERROR== ERR_NVGPUCTRPERM - The user does not have "
        "permission to access NVIDIA GPU Performance Counters on the target device 0. For "
        "instructions on enabling permissions and to get more information see "
        f"https://developer.nvidia.com/ERR_NVGPUCTRPERM\n{NONE_PROFILED}"),
    ),
    (
        "busy",
        ("==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a "
        "driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently "
        f"collecting profiling data.\n{NONE_PROFILED}"),
    ),
    (
        "driver_too_old",
        ("==ERROR== An error was reported by the driver:\n==ERROR== Cuda driver is not compatible "
        "with Nsight Compute.\n==ERROR== The application returned an error code (11)."),
    ),
    (
        "driver_too_old",
        ("No metrics to collect found in sections.\nCuda driver is not compatible with Nsight "
        "Compute.\nFailed to load Nsight Compute CUDA modules."),
    ),
    (
        "chip_unknown",
        ("==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer "
        f"--list-chips option.\nElapsed 4 ms.\n{NONE_PROFILED}"),
    ),
    (
        "wsl",
        ("==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for "
        "Linux (WSL)"),
    ),
    ("vgpu", "==ERROR== Profiling is not supported on device 0 because it is a vGPU"),
    ("mig", "==ERROR== Profiling this metric is not supported under Multi-Instance GPU"),
    ("library", "==ERROR== LibraryNotLoaded"),
    ("library", ("ncu: error while loading shared libraries: libcuda.so.1: cannot open shared "
     "object file: No such file or directory")),
    ("lock", "==ERROR== Failed to open lock file /tmp/nsight-compute-lock: permission denied"),
    ("disk", "==ERROR== Failed to write the report: No space left on device"),
    ("memory", "==ERROR== Out of memory while saving device memory"),
    ("metric", "==ERROR== Failed to find metric dram__nothing.sum"),
    ("target", f"==ERROR== The application returned an error code (139).\n{NONE_PROFILED}"),
    ("target", "==ERROR== Target process 7 terminated before first instrumented API call."),
    ("no_kernel", f"==PROF== Connected to process 5\n{NONE_PROFILED}"),
    ("unknown", "==ERROR== Something new went wrong"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), SAID)
def test_the_cause_is_told_with_ncus_line_and_a_remedy(cause: str, text: str) -> None:
    found = classify_ncu_failure(text)
    assert found is not None
    assert found.cause == cause
    assert found.remedy == REMEDIES[found.cause]
    assert "==ERROR==" not in found.text


def test_a_report_with_warnings_is_no_failure() -> None:
    """As on the H200 of tests/data/ncu, where six ctc__* metrics could not be read."""
    fine = (
        "==PROF== Connected to process 1215 (./naive_matmul)\n"
        '==PROF== Profiling "naive_matmul" - 0: 0%....50%....100% - 38 passes\n'
        "==WARNING== Failed to read metric ctc__rx_bytes_data_user.sum (another tool?)\n"
        "==PROF== Disconnected from process 1215\n==PROF== Report: rep.ncu-rep"
    )
    assert classify_ncu_failure(fine) is None
    assert classify_ncu_failure("") is None


def test_what_the_profiled_program_prints_is_not_taken_for_ncus() -> None:
    said = "epoch 1: out of memory? no\nmig welding complete\nlock file removed"
    assert classify_ncu_failure(said) is None
    found = classify_ncu_failure(f"{said}\n{NONE_PROFILED}")
    assert found is not None
    assert found.cause == "no_kernel"


def test_every_cause_has_a_remedy_that_says_what_to_type_or_change() -> None:
    assert set(REMEDIES) == set(get_args(NcuCause))
    assert "NVreg_RestrictProfilingToAdminUsers=0" in REMEDIES["permission"]
    assert "--cap-add=SYS_ADMIN" in REMEDIES["permission"]
    assert "dcgmi profile --pause" in REMEDIES["busy"]


def test_a_text_is_one_bounded_line() -> None:
    found = problem("unknown", "a\x1b[31m\n" + "b" * 1000)
    assert found.text.isprintable()
    assert len(found.text) == 300
