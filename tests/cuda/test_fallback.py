"""A profile from what is left where ncu cannot read counters: every number keeps its source."""

from __future__ import annotations

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.ncu_problem import fallback_profile
from cudaops.cuda.verdict import diagnose
from cudaops.domain.execution import KernelResources
from cudaops.domain.profile import Metric, Profile

H200 = DEVICES["H200"]
COUNTED = {
    ncu.DURATION: 100.0, ncu.L1_THROUGHPUT: 92.0, ncu.DRAM_THROUGHPUT: 1.0, ncu.REGISTERS: 40.0,
    ncu.SHARED_STATIC: 0.0, ncu.THEORETICAL_OCCUPANCY: 75.0, ncu.WAVES: 5.0, ncu.FFMA: 1e9,
    ncu.FADD: 0.0,
    ncu.FMUL: 0.0, ncu.DRAM_READ_BYTES: 8e6, ncu.DRAM_WRITE_BYTES: 4e6,
}  # fmt: skip
LAUNCHED = {ncu.BLOCK_SIZE: 256.0, ncu.GRID_SIZE: 4096.0, ncu.SHARED_DYNAMIC: 1024.0}


def modelled() -> Profile:
    metrics = {
        name: Metric(name=name, value=value, unit=METRICS[name].unit, source="modelled")
        for name, value in COUNTED.items()
    } | {
        name: Metric(name=name, value=value, unit=METRICS[name].unit, source="launch")
        for name, value in LAUNCHED.items()
    }
    return Profile(
        kernel="reg_matmul", device="H200", source="modelled", duration_us=100.0, metrics=metrics,
        notes=("sampled blocks", "24 registers/thread, estimated (nvcc was not asked)"),
    )  # fmt: skip


def resources(kernel: str = "reg_matmul<64, 64>", registers: int = 128) -> KernelResources:
    return KernelResources(
        kernel=kernel, sm_arch="sm_90", registers=registers, static_smem_bytes=4096,
        stack_bytes=16, spill_store_bytes=4, spill_load_bytes=8, constant_bytes=380,
    )  # fmt: skip


def test_time_is_measured_registers_are_ptxass_and_counts_stay_modelled() -> None:
    found = fallback_profile(
        modelled(), [resources("other"), resources()], H200, times_us=(131.0, 129.0, 130.0),
        why="ERR_NVGPUCTRPERM",
    )  # fmt: skip
    assert found.source == "mixed"
    assert found.duration_us == 130.0
    sources = {name: metric.source for name, metric in found.metrics.items()}
    assert sources[ncu.DURATION] == "cuda_event"
    assert (
        sources[ncu.REGISTERS]
        == sources[ncu.THEORETICAL_OCCUPANCY]
        == sources[ncu.WAVES]
        == "ptxas"
    )
    assert sources[ncu.FFMA] == sources[ncu.L1_THROUGHPUT] == "modelled"
    assert sources[ncu.GRID_SIZE] == "launch"
    assert found.get(ncu.REGISTERS) == 128
    # 128 registers: two blocks of 8 warps on an SM with 64 warp slots.
    assert found.get(ncu.LIMIT_REGISTERS) == 2
    assert found.get(ncu.THEORETICAL_OCCUPANCY) == 25.0
    assert found.get(ncu.WAVES) == pytest.approx(4096 / (2 * 132))
    assert found.get(ncu.SHARED_PER_BLOCK) == 4096 + 1024 + H200.shared_reserved_per_block
    assert (found.get(ncu.STACK_BYTES), found.get(ncu.SPILL_LOAD_BYTES)) == (16, 8)
    assert found.get(ncu.DRAM_BYTES_PER_SECOND) == pytest.approx(12e6 / 130e-6)
    assert found.notes[0] == "ncu could not read the counters: ERR_NVGPUCTRPERM"
    assert found.notes[1] == "the model takes 100 us for what was measured as 130 us"
    assert found.notes[2:] == ("sampled blocks",)


def test_the_verdict_says_from_what_it_was_drawn() -> None:
    found = fallback_profile(modelled(), [resources()], H200, times_us=(130.0,), why="busy")
    verdict = diagnose(found, H200)
    assert verdict.source == "mixed"
    assert verdict.subtype == "l1_load_throughput"
    assert verdict.drawn_from == "1 by CUDA events, 13 from ptxas, 3 of the launch, 8 modelled"
    assert verdict.roofline is not None
    assert verdict.roofline.attained_gflops == pytest.approx(2e9 / 130e-6 / 1e9)
    spilled = next(f for f in verdict.findings if f.rule == "spills_by_compiler")
    assert spilled.text == "register spills: each thread reloads 8.0 bytes"


def test_cupti_goes_before_events() -> None:
    found = fallback_profile(
        modelled(), [], H200, times_us=(130.0,), cupti_us=(121.0, 123.0), why="busy"
    )
    assert found.duration_us == 122.0
    assert found.metrics[ncu.DURATION].source == "cupti"
    assert found.metrics[ncu.REGISTERS].source == "modelled"


def test_a_model_far_from_the_measurement_is_said_to_be() -> None:
    found = fallback_profile(modelled(), [], H200, times_us=(300.0,), why="busy")
    assert "too far apart" in found.notes[1]


def test_without_any_time_it_stays_a_model() -> None:
    found = fallback_profile(modelled(), [resources()], H200, why="no GPU")
    assert found.source == "modelled"
    assert found.duration_us == 100.0
    assert found.metrics[ncu.REGISTERS].source == "ptxas"


def test_a_kernel_that_does_not_fit_on_an_sm_has_no_waves() -> None:
    huge = resources().model_copy(update={"static_smem_bytes": 300_000})
    found = fallback_profile(modelled(), [huge], H200, times_us=(130.0,), why="busy")
    assert found.get(ncu.THEORETICAL_OCCUPANCY) == 0
    assert found.metrics[ncu.WAVES].source == "modelled"


def test_nothing_modelled_leaves_the_time_and_no_verdict_on_it() -> None:
    nothing = modelled().model_copy(update={"metrics": {}, "duration_us": 0.0, "notes": ()})
    assert diagnose(nothing, H200).subtype == "unknown"
    found = fallback_profile(nothing, [resources()], H200, times_us=(130.0,), why="busy")
    assert found.source == "mixed"
    assert found.notes == ("ncu could not read the counters: busy",)
    assert diagnose(found, H200).drawn_from == "1 by CUDA events, 5 from ptxas"
