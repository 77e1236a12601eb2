"""What a report says of the library that does a kernel's job, and of a model's predictions."""

from __future__ import annotations

from cudaops.domain.performance_limit import Library
from cudaops.domain.run import RegimeSummary, RunRecord, TimingSummary
from cudaops.reports import markdown
from cudaops.reports.content import library_sentence, prediction_sentence
from tests.reports import records

NAMED = Library(name="cublasSgemm of cuBLAS", job="a matrix product (NN)")
TIMED = NAMED.model_copy(update={"time_ms": 0.057, "l2_regime": "cold", "difference": 2e-7})
COLD = RegimeSummary(baseline_ms=0.6, candidate_ms=0.05, speedup=12.0)
TIMING = TimingSummary(
    regime="cold", cold=COLD, warm=None, cupti=None, samples=40, blocks_redone=0,
    sm_clock_mhz=None, temperature_c=None,
)  # fmt: skip


def measured(record: RunRecord, library: Library) -> RunRecord:
    verify = record.verify.model_copy(update={"timing": TIMING})
    changed = {"executor": "cuda", "time_source": "cuda_event", "device": "H200"}
    return record.model_copy(update={**changed, "verify": verify, "library": library})


def test_a_timed_library_stands_beside_the_rewrite() -> None:
    record = measured(records.provisional(), TIMED)
    said = library_sentence(record, TIMED)
    assert said.startswith("cublasSgemm of cuBLAS: 0.057 ms (")
    assert "; the rewrite: 0.05 ms (" in said
    assert "cold L2; its result differs by 2.0e-07, relative L2 error" in said
    assert "cublasSgemm of cuBLAS: 0.057 ms" in markdown.run_report(record).replace("\\", "")


def test_without_a_rewrite_it_stands_beside_the_kernel() -> None:
    record = measured(records.nothing_found(), TIMED).model_copy(update={"best": None})
    assert "; the kernel: 0.6 ms (" in library_sentence(record, TIMED)


def test_why_it_was_not_timed() -> None:
    record = records.provisional()
    start = "cuBLAS offers this kernel, a matrix product (NN), as cublasSgemm; it was not timed"
    assert library_sentence(record, NAMED) == f"{start}."
    why = "<cublas_v2.h> is not installed beside nvcc"
    untimed = NAMED.model_copy(update={"not_timed": why})
    assert library_sentence(record, untimed) == f"{start}: {why}."


def test_predictions_are_scored() -> None:
    record = records.provisional()
    assert prediction_sentence(record) == ""
    (first, *rest) = record.attempts
    speedup = first.judgement.speedup
    assert speedup is not None
    guessed = first.model_copy(update={"expected_speedup": speedup / 2})
    scored = record.model_copy(update={"attempts": (guessed, *rest)})
    said = prediction_sentence(scored)
    assert "median off by a factor of 2 over 1 candidate; expected over found 0.5" in said
    assert said in markdown.run_report(scored).replace("\\", "")
