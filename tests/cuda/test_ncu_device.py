"""Which device a details page was taken on, from what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.metrics import value_of
from cudaops.cuda.ncu_pages import likely_devices, parse_details
from cudaops.domain.profile import Profile

DATA = Path(__file__).parents[1] / "data" / "ncu"


@pytest.mark.parametrize("kernel", ["naive", "regtiled"])
def test_the_captures_can_only_be_an_h200(kernel: str) -> None:
    (launch,) = parse_details((DATA / f"h200_{kernel}_matmul_1024.details.csv").read_text("utf-8"))
    likely = likely_devices(launch.profile)
    assert [row.name for row in likely.devices] == ["H200"]
    assert likely.signs.startswith("compute capability 9.0, 132 SMs, a DRAM peak of about 4,")


def seen(device: Device, *, pct: float | None = 50.0, sms: bool = True) -> Profile:
    major, minor = device.compute_capability
    metrics = {ncu.SM_COUNT: float(device.sm_count)} if sms else {}
    if pct is not None:
        metrics |= {
            ncu.DRAM_THROUGHPUT: pct,
            ncu.DRAM_BYTES_PER_SECOND: device.dram_bandwidth_gb_s * 1e7 * pct,
        }
    return Profile(
        kernel="k", device=f"compute capability {major}.{minor}", source="measured",
        duration_us=1.0, metrics={n: value_of(n, v, "ncu") for n, v in metrics.items()},
    )  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("pct", [0.03, 3.0, 92.0])
def test_no_sign_speaks_against_the_device_itself(name: str, pct: float) -> None:
    assert name in {row.name for row in likely_devices(seen(DEVICES[name], pct=pct)).devices}


def test_without_signs_all_of_the_capability_stay() -> None:
    likely = likely_devices(seen(DEVICES["H200"], pct=None, sms=False))
    assert {"H100", "H200"} <= {row.name for row in likely.devices}
    assert likely.signs == "compute capability 9.0"


def test_an_idle_dram_tells_nothing() -> None:
    assert len(likely_devices(seen(DEVICES["H200"], pct=0.0)).devices) > 1


def test_a_profile_that_names_its_device_or_an_unknown_capability() -> None:
    named = seen(DEVICES["A10"]).model_copy(update={"device": "NVIDIA B42"})
    assert likely_devices(named).devices == ()
    unknown = seen(DEVICES["A10"]).model_copy(update={"device": "compute capability 7.0"})
    assert likely_devices(unknown).devices == ()
