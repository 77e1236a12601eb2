"""What a run cost: the record's block and the reports' line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudaops.domain.run import RunRecord
from cudaops.graph.record import with_summary
from cudaops.reports import markdown
from cudaops.reports.costs import cost_sentence
from cudaops.reports.json import dumps, loads
from tests.reports import recordings, records

RECORDED = Path(__file__).parents[2] / "examples" / "recorded" / "h200_naive_matmul"


def priced(record: RunRecord, gpu_usd_per_hour: float | None) -> RunRecord:
    return with_summary(record, gpu_usd_per_hour)


def on_gpu(**changes: object) -> RunRecord:
    """Accepted at 5.561x after 42.1 s; no model was asked."""
    of_gpu = {"executor": "cuda", "outcome": "accepted", "time_source": "cuda_event"}
    return records.provisional().model_copy(update={**of_gpu, **changes})


def test_a_run_on_a_gpu_costs_its_time() -> None:
    record = priced(on_gpu(), 4.0)
    cost = record.cost_usd_approx
    assert cost is not None
    assert cost.gpu == cost.total == pytest.approx(42.1 / 3600 * 4)
    assert cost.model_tokens is None
    assert cost.per_accepted_percent == pytest.approx(42.1 / 3600 * 4 / 456.1)
    assert cost_sentence(record) == (
        "Approximate cost: GPU $0.0468 (42.1 s at $4.00 per hour); "
        "$0.0001 per accepted percent of speedup."
    )


def test_the_record_has_the_write_ups_fields_by_name() -> None:
    run = loads((RECORDED / "run.json").read_text("utf-8"), "run.json")
    raw = json.loads(dumps(with_summary(run, 2.5)))["raw"]
    assert list(raw) == [
        "date", "gpu", "provider", "kernel", "profile", "verify", "loop_time_seconds",
        "cost_usd_approx",
    ]  # fmt: skip
    assert (raw["gpu"], raw["kernel"]) == ("H200 (sm_90)", "naive_matmul")
    assert {name: value for name, value in raw["profile"].items() if name != "verdict"} == {
        "sm_throughput_pct": pytest.approx(61.71, abs=0.01),
        "l1_throughput_pct": pytest.approx(96.23, abs=0.01),
        "dram_throughput_pct": pytest.approx(0.0128, abs=0.0001),
        "l1_hit_rate_pct": pytest.approx(87.50, abs=0.01),
        "achieved_occupancy_pct": pytest.approx(91.61, abs=0.01),
        "metrics_parsed": 87,
    }
    assert raw["verify"].items() <= run.verify.model_dump(mode="json").items()
    assert raw["cost_usd_approx"]["gpu"] == pytest.approx(run.loop_time_seconds / 3600 * 2.5)


def test_gpu_and_tokens_add_up_and_a_missing_price_is_no_zero() -> None:
    use = recordings.use().model_copy(update={"cache_saved_usd": 0.0021})
    both = priced(on_gpu(model=use), 4.0)
    assert both.cost_usd_approx is not None
    assert both.cost_usd_approx.total == pytest.approx(42.1 / 3600 * 4 + (use.cost_usd or 0))
    said = cost_sentence(both) or ""
    assert said.startswith("Approximate cost $0.0527: GPU $0.0468 (42.1 s at $4.00 per hour), ")
    assert "model tokens $0.006 (the prompt cache saved $0.0021); $0.0001 per acc" in said
    half = priced(on_gpu(model=use), None)
    assert half.cost_usd_approx is not None
    assert half.cost_usd_approx.model_dump(exclude_none=True) == {"model_tokens": use.cost_usd}
    assert (cost_sentence(half) or "").startswith(
        "Approximate cost: GPU: no price known (set CUDAOPS_GPU_PRICE), model tokens $0.006"
    )
    free = priced(on_gpu(model=use.model_copy(update={"cost_usd": None})), 4.0)
    assert free.cost_usd_approx is not None
    assert free.cost_usd_approx.total is None
    assert free.cost_usd_approx.per_accepted_percent is None


def test_a_modelled_speedup_has_no_cost_a_percent() -> None:
    record = priced(records.provisional().model_copy(update={"model": recordings.use()}), 4.0)
    assert record.cost_usd_approx is not None
    assert record.cost_usd_approx.gpu is None  # no GPU took part
    assert record.cost_usd_approx.total == recordings.use().cost_usd
    assert record.cost_usd_approx.per_accepted_percent is None
    assert "Approximate cost: model tokens $0.006." in markdown.run_report(record)


def test_what_costs_nothing_or_has_no_price_is_not_spoken_of() -> None:
    assert priced(records.provisional(), 4.0).cost_usd_approx is None
    unpriced = priced(on_gpu(), None)
    assert unpriced.cost_usd_approx is not None
    assert cost_sentence(unpriced) is None
    assert cost_sentence(recordings.record(Path("/r"))) is None  # a record of before


def test_a_cache_that_cost_more_than_it_saved_says_so() -> None:
    use = recordings.use().model_copy(update={"cache_saved_usd": -0.0005})
    said = cost_sentence(priced(on_gpu(model=use), 4.0)) or ""
    assert "(the prompt cache cost $0.0005 more than it saved)" in said
