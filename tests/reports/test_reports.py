"""Reports say where every time comes from, and let nothing of a program's text act on a reader."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from cudaops.domain.instructions import InstructionChange, KernelInstructions
from cudaops.domain.judgement import Gate, Qualification
from cudaops.domain.run import Event, RunRecord
from cudaops.domain.search import FoundSequence, SearchCost, SearchSummary, StepShare
from cudaops.errors import InputError
from cudaops.reports import content, markdown, terminal
from cudaops.reports import json as run_json
from cudaops.reports.html import render as page_of
from cudaops.reports.quantities import Clock, microseconds, milliseconds, one_line, significant
from cudaops.reports.terminal import Progress
from tests.reports import records

CLOCK = Clock("modelled", "A10")


def on_terminal(record: RunRecord, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(
        terminal.run_summary(record), crop=False
    )
    return stream.getvalue()


def test_summary_has_everything_a_person_needs() -> None:
    text = on_terminal(records.provisional())
    for wanted in (
        "PROVISIONAL", "speedup 5.56× (modelled for A10)",
        "one launch: baseline 1.24 ms (modelled for A10)",
        "0.223 ms (modelled for A10)", "Limited by L1 load throughput", "97.3 %", ">= 80 %",
        "5.54 % of the arithmetic roofline", "naive_matmul.cu:27", "register tiling",
        "BM=128", "best of 12 configurations", "rejected", "correctness_captured",
        "min_speedup 1.2 (modelled for A10)", "static word vectors", "best.cu",
        "nvcc -O3 -arch=sm_86",
        "/tmp/runs/naive_matmul/20261120T080000Z", "took 42.1 s",
    ):  # fmt: skip
        assert wanted in " ".join(text.split()), wanted
    assert "cudaops confirm /tmp/runs" in text


def test_the_short_summary_answers_in_forty_lines() -> None:
    stream = io.StringIO()
    record = records.provisional()
    Console(file=stream, width=100, highlight=False).print(
        terminal.short_summary(record), crop=False
    )
    text = stream.getvalue()
    assert len(text.splitlines()) <= 40
    for wanted in (
        "PROVISIONAL", "5.56× (modelled for A10)", "Limited by L1 load throughput", "What helps",
        "best.cu", "cudaops confirm /tmp/runs", "cudaops report /tmp/runs",
    ):  # fmt: skip
        assert wanted in " ".join(text.split()), wanted
    headings = ("PROVISIONAL", "Correctness", "What limits", "What to do next", "Candidates")
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


@pytest.mark.parametrize("render", [on_terminal, markdown.run_report])
def test_every_modelled_time_and_speedup_says_so(render: object) -> None:
    text = " ".join(render(records.provisional()).split())  # type: ignore[operator]
    times = list(re.finditer(r"\d ms|\d µs|\d×", text))
    assert len(times) > 8
    for found in times:
        after = text[found.end() : found.end() + 25]
        bar = text[: found.start() + 1].endswith("threshold 1.2")
        peak = "by its published peaks" in after
        assert "modelled" in after or bar or peak, text[found.start() - 40 : found.end() + 40]


def test_one_speedup_over_all_launch_configurations() -> None:
    """Headline, times and table are of one formula: 53.98 us of four launches over 11.95."""
    record = records.several_configurations()
    text = " ".join(on_terminal(record).split())
    assert "speedup 4.52× (modelled for A10) over 2 launch configurations" in text
    assert "mean of all launches: baseline 0.0135 ms (modelled for A10)" in text
    assert "best candidate 0.002987 ms" in text
    for row in (
        "w0 (128,1,1) x (32,1,1) N = 4096 3 82.3 % 14.8 µs 2.65 µs 5.58×",
        "w1 (64,1,1) x (32,1,1) N = 2048 1 17.7 % 9.58 µs 4 µs 2.40×",
    ):
        assert row in text, text
    assert "harmonic mean of the ratios, weighted by share of the baseline's time" in text
    assert "| w1 | (64,1,1) x (32,1,1) N = 2048 | 1 | 17.7 % |" in markdown.run_report(record)
    assert "harmonic mean" in page_of.sections(record, ())
    assert "launch configurations" not in on_terminal(records.provisional())


def test_nothing_found_says_how_far_from_the_roofline() -> None:
    text = " ".join(on_terminal(records.nothing_found()).split())
    assert "NOTHING FOUND" in text
    assert "5.54 % of the arithmetic roofline (modelled for A10)" in text
    assert "best.cu" not in text
    assert "1.01× (modelled for A10)" in text


def test_a_rewrite_that_was_handed_in_and_is_wrong_is_rejected_for_its_results() -> None:
    told = "captured inputs: C: 3 of 9 elements differ; first C[2] is 1, the author's 2"
    gate = Gate(name="correctness_captured", passed=False, summary=told, numbers={"C_max_abs": 1.0})
    reason = f"correctness_captured: {told}"
    tried = records.attempt("rejected")
    judgement = tried.judgement.model_copy(update={"gates": (gate,), "reason": reason})
    handed_in = tried.model_copy(update={"proposer": "user", "judgement": judgement})
    record = records.nothing_found()
    verify = record.verify.model_copy(update={"gates": (gate,)})
    record = record.model_copy(update={"attempts": (handed_in,), "verify": verify})
    text = " ".join(on_terminal(record).split())
    assert f"REJECTED naive_matmul: results differ: {told}" in text
    assert "the rewrite has not passed all gates" in text
    assert markdown.run_report(record).startswith("# naive\\_matmul: rejected")
    gate = gate.model_copy(update={"summary": "k.cu:4: read past the end", "numbers": {}})
    verify = record.verify.model_copy(update={"gates": (gate,)})
    record = record.model_copy(update={"verify": verify})
    assert "results differ" not in content.headline(record)
    assert content.outcome_word(records.nothing_found()) == "nothing found"


def test_a_rewrite_that_was_compared_and_not_timed_is_not_called_rejected() -> None:
    handed_in = records.attempt("rejected").model_copy(update={"proposer": "user"})
    record = records.nothing_found()
    reason = "all 9 gates passed and results match; no time was taken"
    gate = Gate(name="correctness_captured", passed=True, summary="equal")
    verify = record.verify.model_copy(
        update={"correctness": "match", "speedup": None, "gates": (gate,)}
    )
    record = record.model_copy(
        update={"attempts": (handed_in,), "verify": verify, "reason": reason}
    )
    text = " ".join(on_terminal(record).split())
    assert f"RESULTS MATCH naive_matmul: {reason}" in text
    assert "not passed" not in text
    slow = verify.model_copy(update={"speedup": 0.9})
    assert content.outcome_word(record.model_copy(update={"verify": slow})) == "rejected"


def test_of_launches_alike_the_first_is_the_input_set() -> None:
    qualification = Qualification(
        controls=(), statistics=(), input_sets=5, yardstick=True, baseline_passes=True
    )
    record = records.provisional().model_copy(update={"qualification": qualification})
    told = (
        "Captured: the inputs of 1 of 23 launches, the first with each grid, block and arguments."
    )
    assert told in content.oracle_sentences(record)
    assert record.program is not None
    program = record.program.model_copy(update={"launches": 1})
    alone = record.model_copy(update={"program": program})
    assert not any("Captured: the inputs" in one for one in content.oracle_sentences(alone))


def test_a_run_that_ended_before_profiling_still_has_a_report() -> None:
    bare = records.nothing_found().model_copy(
        update={"profile": None, "research": None, "program": None, "attempts": ()}
    )
    assert "naive_matmul.cu" in on_terminal(bare)
    assert markdown.run_report(bare).startswith("# naive")


def test_markdown_keeps_text_from_becoming_markup() -> None:
    record = records.provisional().model_copy(
        update={"reason": "a | b <script>alert(1)</script>\n# heading", "notices": ("[x](y) `z`",)}
    )
    text = markdown.run_report(record)
    assert "<script>" not in text
    assert "\n# heading" not in text
    assert "\\[x](y)" in text
    assert "````cuda\n" in text, "the rewrite holds ``` itself, so its fence is longer"


def test_what_each_transformation_of_the_winner_brings() -> None:
    record = records.provisional()
    assert record.best is not None
    steps = (
        StepShare(name="index32", setting={}, factor=1.31),
        StepShare(name="unroll", setting={"line": 7, "by": 4}, factor=None),
    )
    search = SearchSummary(
        cost=SearchCost(trials=60, seconds=24.0, parts={"building": 9.5, "measuring": 3.25}),
        baseline_us=10.0,
        stopped="no step gains",
        found={record.best.source_id: FoundSequence(time_us=5.0, steps=steps)},
    )
    record = record.model_copy(update={"transformations": (search,)})
    shown = markdown.run_report(record)
    assert (
        "60 trials in 24.0 s (150 a minute); by part, overlapping: building 9.5 s, measuring 3.2 s"
        in shown
    )
    assert "| index32 |  | 1.31× (modelled for A10) |" in shown
    assert "| unroll | line 7, by 4 | unknown: other steps depend on it |" in shown
    page = page_of.document(record, ())
    assert '<td class="r-nowrap">unknown: other steps depend on it</td>' in page
    assert "60 trials in 24.0 s" in page
    other = record.model_copy(update={"best": None, "judgement": None})
    assert content.share_rows(other) == []


def test_what_changed_in_sass_and_that_it_is_not_known() -> None:
    def kernel(registers: int, **counts: int) -> KernelInstructions:
        return KernelInstructions(
            kernel="k", sm_arch="sm_86", registers=registers, spilled_bytes=8, counts=counts
        )

    change = InstructionChange(author=(kernel(40, FP32=9),), best=(kernel(64, FP32=3, MUFU=1),))
    record = records.provisional().model_copy(update={"instructions": change})
    shown = markdown.run_report(record)
    assert "## What changed in SASS" in shown
    for row in ("| instructions | 9 | 4 |", "| MUFU | 0 | 1 |", "| registers a thread | 40 | 64 |"):
        assert row in shown
    assert '<th scope="row">registers a thread</th><td>40</td>' in page_of.document(record, ())
    unknown = InstructionChange(missing="nvdisasm is not here")
    record = record.model_copy(update={"instructions": unknown})
    assert "Not known: nvdisasm is not here." in markdown.run_report(record)
    assert "is not known: nvdisasm is not here." in page_of.document(record, ())
    assert "SASS" not in markdown.run_report(records.provisional())


def test_no_control_character_reaches_the_terminal() -> None:
    record = records.nothing_found().model_copy(
        update={"reason": "bad \x1b[2J\x1b]0;title\x07 [red]x[/red]"}
    )
    text = on_terminal(record)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red]" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_summary_fits_any_width_and_breaks_no_path(width: int) -> None:
    record = records.provisional()
    lines = on_terminal(record, width).splitlines()
    for_copying = [line for line in lines if record.options.out in line]
    assert len(for_copying) == 5
    wide = {line for line in lines if len(line) > width}
    said = ("$ ", "Measure both", "Check the certificate")
    assert all(line in for_copying or any(s in line for s in said) for line in wide), wide


def test_json_round_trip_and_its_errors() -> None:
    record = records.provisional()
    text = run_json.dumps(record)
    assert run_json.loads(text, "run.json") == record
    raw = json.loads(text)
    assert raw["profile"]["metrics_parsed"] == 2
    assert raw["verify"]["correctness"] == "match"
    assert raw["verify"]["accept_threshold"] == 1.2
    with pytest.raises(InputError, match=r"^run.json is not a run record: "):
        run_json.loads(text.replace('"run_id"', '"id"'), "run.json")
    with pytest.raises(InputError, match="is not a run record"):
        run_json.loads("{", "run.json")


def test_progress_is_one_plain_line_an_event() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=20)) as progress:
        for kind in ("started", "finished", "notice", "failed"):
            progress(
                Event.model_validate(
                    {
                        "seq": 0, "time": "2026-11-20T08:00:00.000Z", "stage": "profiler",
                        "agent": "profiler", "kind": kind,
                        "message": f"{kind}: a\nb \x1b[31m" + "x" * 60,
                    }
                )
            )  # fmt: skip
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all(
        re.match(r" +\d+\.\d s  profiler    \w+: a b \[31mx{60}$", line) for line in lines
    ), lines


def test_progress_on_a_terminal_shows_who_is_at_work() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    event = Event(
        seq=0,
        time="t",
        stage="optimizer",
        agent="optimizer",
        kind="started",
        message="tuning 12 ways",
    )
    with Progress(console) as progress:
        progress(event)
        progress(event.model_copy(update={"kind": "finished", "message": "done"}))
    assert "optimizer" in stream.getvalue()
    assert "done" in stream.getvalue()


def test_quantities() -> None:
    assert microseconds(223.0, CLOCK) == "223 µs (modelled for A10)"
    assert microseconds(1240.0, CLOCK) == "1.24 ms (modelled for A10)"
    assert (
        milliseconds(0.4161, Clock("cuda_event", "H200"))
        == "0.4161 ms (measured on H200, CUDA events)"
    )
    assert microseconds(None, CLOCK) == "not timed"
    assert [significant(x) for x in (0.0, 1.0, 12345.678, 1e9, 1.4e-7, 0.000477)] == [
        "0", "1", "12,346", "1.000e+09", "1.400e-07", "0.000477",
    ]  # fmt: skip
    assert (significant(170.4, 3), significant(float("inf"))) == ("170", "inf")
    assert one_line("a\n\tb\x00c" + "x" * 500, 10) == "a bcxxxxx…"


def test_attempt_that_never_compiled_has_no_time() -> None:
    attempt = records.attempt("rejected")
    judgement = attempt.judgement.model_copy(update={"speedup": None, "time_source": None})
    record = records.nothing_found().model_copy(
        update={
            "attempts": (attempt.model_copy(update={"judgement": judgement, "candidate_us": None}),)
        }
    )
    row = content.attempt_rows(record)[0]
    assert (row.time, row.speedup) == ("not timed", "not timed")
