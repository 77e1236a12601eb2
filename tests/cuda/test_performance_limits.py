"""Ends by numbers: what is near enough to a limit, and what only seems to be."""

from __future__ import annotations

import pytest

from cudaops.cuda.devices import DEVICES
from cudaops.cuda.performance_limits import as_short_as_a_launch, at_roofline, load_latency_us
from cudaops.cuda.roofline import roofline
from cudaops.domain.performance_limit import PerformanceLimit
from cudaops.domain.profile import Profile, Verdict
from tests.cuda.test_roofline import made

H200 = DEVICES["H200"]
MEGABYTES_A_US = H200.dram_bandwidth_gb_s * 1e-3


def verdict(profile: Profile, subtype: str) -> Verdict:
    return Verdict(
        bottleneck_class="memory_bound", subtype=subtype, summary="", evidence=(), relief="",
        roofline=roofline(profile, H200), source=profile.source,
    )  # fmt: skip


def moving(megabytes: float, gigaflops: float = 0.0, us: float = 100.0) -> Profile:
    return made(
        us, FFMA=gigaflops * 5e8, FADD=0, FMUL=0, DRAM_READ_BYTES=megabytes * 1e6,
        DRAM_WRITE_BYTES=0,
    )  # fmt: skip


def found(
    profile: Profile, subtype: str = "dram_bandwidth", *, buffers: float = 1e6, warm: bool = False
) -> PerformanceLimit | None:
    """`buffers`: megabytes that the kernel's buffers hold."""
    given = verdict(profile, subtype)
    return at_roofline(profile, given, H200, round(buffers * 1e6), warm=warm)


FULL = 100 * MEGABYTES_A_US
"""Megabytes that cross DRAM in 100 us."""
FLOPS = H200.peak_fp32_gflops * 1e-4
"""GFLOP in 100 us."""


def test_full_bandwidth_is_an_end() -> None:
    end = found(moving(0.93 * FULL))
    assert end is not None
    assert end.kind == "roofline"
    assert end.numbers["near_pct"] == pytest.approx(93)
    assert end.numbers["floor_us"] == pytest.approx(93)
    assert "93 % of the memory bandwidth roofline" in end.says
    assert end.says.endswith("(modelled for H200)")


def test_full_arithmetic_is_an_end() -> None:
    end = found(moving(1.0, 0.95 * FLOPS), "fma_pipe")
    assert end is not None
    assert "95 % of the arithmetic roofline" in end.says


@pytest.mark.parametrize(
    ("profile", "subtype", "buffers", "warm"),
    [
        pytest.param(moving(0.89 * FULL), "dram_bandwidth", 1e6, False, id="too far"),
        pytest.param(moving(0.95 * FULL), "uncoalesced_access", 1e6, False, id="wasted bytes"),
        pytest.param(moving(0.95 * FULL), "dram_bandwidth", 0.5 * FULL, False, id="moved twice"),
        pytest.param(moving(0.95 * FULL), "dram_bandwidth", 1e6, True, id="may stay in L2"),
        pytest.param(moving(1.2 * FULL), "dram_bandwidth", 1e6, False, id="faster than it can be"),
        pytest.param(moving(1.0, 0.8 * FLOPS), "fma_pipe", 1e6, False, id="little arithmetic"),
        pytest.param(moving(1.0, 0.95 * FLOPS), "dram_bandwidth", 1e6, False, id="another limit"),
        pytest.param(made(100.0, DRAM_READ_BYTES=1e9), "near_peak", 1e6, False, id="not counted"),
    ],
)
def test_what_is_no_end(profile: Profile, subtype: str, buffers: float, warm: bool) -> None:
    assert found(profile, subtype, buffers=buffers, warm=warm) is None


def short(taken_us: float, bar: float = 1.2, launches: int = 50) -> PerformanceLimit | None:
    return as_short_as_a_launch(moving(1.0), taken_us, 2.0, 0.5, bar, launches, "")


def test_a_kernel_as_short_as_a_launch_is_an_end() -> None:
    end = short(2.9)
    assert end is not None
    assert end.kind == "launch_bound"
    assert "no rewrite can be more than 1.16x as fast" in end.says
    assert "launches it 50 times" in end.says
    assert "49 x 2.00 us = 98.0 us" in end.says
    assert end.numbers["saved_by_merging_us"] == pytest.approx(98)


def test_one_launch_has_nothing_to_merge() -> None:
    end = short(2.6, launches=1)
    assert end is not None
    assert "nothing to merge" in end.says
    assert end.numbers["saved_by_merging_us"] == 0


def test_what_may_still_reach_the_bar_is_no_end() -> None:
    assert short(3.1) is None
    assert short(2.9, bar=1.05) is None  # 10 % all the same
    assert short(2.75, bar=1.05) is not None


def test_a_load_counts_where_the_kernel_has_one() -> None:
    loads = made(10, GLOBAL_LD_INST=4)
    cold, warm = (load_latency_us(loads, H200, warm=w) for w in (False, True))
    assert cold > warm > 0
    assert load_latency_us(made(10, GLOBAL_LD_INST=0), H200, warm=False) == 0
    assert load_latency_us(made(10), H200, warm=False) == 0
