"""A `.ncu-rep` gives what ncu's own export of it gives; a broken one is said so in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.cuda.ncu_csv import parse_raw
from cudaops.errors import InputError
from cudaops.sandbox.ncu_rep import raw_pages

CAPTURES = Path(__file__).parents[1] / "data" / "ncu"
REPORT = CAPTURES / "h200_naive_matmul_1024.ncu-rep"


def test_a_report_holds_what_its_raw_page_holds() -> None:
    (page,) = raw_pages(REPORT)
    (read,) = parse_raw(page)
    (exported,) = parse_raw((CAPTURES / "h200_naive_matmul_1024.raw.csv").read_text("utf-8"))
    assert read.profile.kernel == exported.profile.kernel
    assert read.profile.device == "H200"
    assert read.texts == exported.texts
    assert set(read.profile.metrics) == set(exported.profile.metrics)
    for name, metric in exported.profile.metrics.items():
        # The export prints two to six decimals.
        assert read.profile.metrics[name].value == pytest.approx(metric.value, rel=5e-4, abs=1e-6)


@pytest.mark.parametrize("kept", [0, 100, 10_000, 700_000])
def test_a_report_that_was_cut_short_is_no_profile(tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(REPORT.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"cut\.ncu-rep"):
        raw_pages(cut)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        raw_pages(tmp_path / "none.ncu-rep")
