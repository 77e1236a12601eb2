"""The HTML report: what it says, what it draws, and what it says is missing."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.domain.profile import Metric
from cudaops.domain.run import Event, RunRecord
from cudaops.graph.html_report import html_report
from cudaops.reports import html
from cudaops.reports.html import attribution, candidates, diff, drift, roofline
from cudaops.reports.html.diff import pieces
from cudaops.reports.html.scale import LogScale, log_scale
from cudaops.reports.recording import RecordedTrial, RunRecording, read_recording
from tests.reports import records

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "examples" / "recorded"
DIALOGUE = RECORDED / "dialogues" / "invert8"
MEASURED = RECORDED / "h200_naive_matmul"
RUNS = (
    ROOT / "tests" / "data" / "recorded" / "naive_matmul",
    DIALOGUE,
    RECORDED / "dialogues" / "histogram256",
    MEASURED,
)
VOID = {"meta", "br", "path", "circle", "rect", "polyline"}


class Page(HTMLParser):
    """Tags, attributes and texts of a document; fails on a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.tags if "id" in a]


def record_of(recording: RunRecording) -> RunRecord:
    assert recording.record is not None
    return recording.record


@pytest.mark.parametrize("folder", RUNS, ids=lambda f: f"{f.parent.name}-{f.name}")
def test_a_recorded_run_is_one_valid_file(folder: Path) -> None:
    text = html_report(folder)
    page = Page(text)
    assert len(page.ids()) == len(set(page.ids()))
    anchors = [str(a["href"]) for tag, a in page.tags if tag == "a"]
    assert all(anchor.startswith("#") and anchor[1:] in page.ids() for anchor in anchors)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "img", "iframe", "object", "form", "base")
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
    assert not re.search(r"url\(|@import|https?://", html.STYLE_FILE.read_text("utf-8"))


TIMED = re.compile(r"\d (?:ms|µs|us)\b|\d\.\d\d×")
"""A time of a kernel, or a speedup as reports write them; the bar is `1.2×`."""


@pytest.mark.parametrize("folder", RUNS[:3], ids=lambda f: f.name)
def test_no_modelled_time_or_speedup_stands_without_its_source(folder: Path) -> None:
    source = f"modelled for {record_of(read_recording(folder)).device}"
    text = html_report(folder).split("<body", 1)[1]
    # The notes say themselves where their numbers were measured.
    text = re.sub(r"<blockquote>.*?</blockquote>", "", text, flags=re.DOTALL)
    looked_at = 0
    for kind in ("table", "svg", "p", "dd", "figcaption", "summary", "h3", "li"):
        blocks = re.compile(rf"<{kind}\b.*?</{kind}>", re.DOTALL)
        for block in blocks.findall(text):
            said = re.sub("<[^>]+>", " ", block)
            if TIMED.search(said):
                looked_at += 1
                assert source in said, said
        text = blocks.sub("", text)
    assert looked_at >= 12
    assert not TIMED.search(re.sub("<[^>]+>", " ", text))


def test_the_first_sentence_says_what_kind_of_number_it_is() -> None:
    page = Page(html_report(RUNS[0]))
    assert "naive_matmul: speedup 7.37× (modelled for A10)" in page.text
    assert "not measured: no GPU took part" in page.text
    assert "modelled for A10; no interval" in page.text


def test_a_measured_run_shows_its_interval_and_no_word_of_a_model() -> None:
    page = Page(html_report(MEASURED))
    assert "6.11×" in page.text
    assert "% interval 6.10× to 6.12×" in page.text
    assert "measured on H200, CUDA events" in page.text
    assert "modelled" not in page.text


def test_the_fragment_is_the_document_without_its_frame() -> None:
    recording = read_recording(DIALOGUE)
    record, beside = record_of(recording), html.beside_of(recording)
    fragment = html.sections(record, recording.events, beside)
    assert html.fragment_of(html.document(record, recording.events, beside)) == fragment.strip()
    page = Page(fragment)
    assert page.tags[0] == ("div", {"class": "r-report"})
    assert not {"main", "header", "footer", "style", "h1"} & {tag for tag, _ in page.tags}
    assert all(name.startswith("r-") for name in page.ids())
    assert html.fragment_of("anything else") == ""


def test_every_class_is_ours_and_every_rule_stands_below_one() -> None:
    style = re.sub(r"/\*.*?\*/", "", html.STYLE_FILE.read_text("utf-8"), flags=re.DOTALL)
    page = Page(html_report(DIALOGUE))
    used = {c for _, a in page.tags for c in str(a.get("class") or "").split()}
    assert all(name.startswith("r-") for name in used), used
    selectors = re.findall(r"([^{}]+)\{", re.sub(r"@media[^{]*\{", "", style))
    for selector in (one.strip() for group in selectors for one in group.split(",")):
        assert re.match(r"(body)?\.r-", selector), selector


def test_the_roofline_stands_where_the_numbers_are() -> None:
    record = record_of(read_recording(ROOT / "tests" / "data" / "recorded" / "naive_matmul"))
    found = roofline.view(record)
    assert found.drawing is not None
    assert record.profile is not None
    recorded = record.profile.verdict_detail.roofline
    assert recorded is not None
    baseline = found.points[0]
    assert baseline.gflops == recorded.attained_gflops
    assert baseline.share_pct == pytest.approx(recorded.attained_pct)
    assert [roof.name for roof in found.drawing.roofs] == ["DRAM", "FP32"]
    assert any("L2 roof of A10" in line for line in found.missing)
    base, best = found.drawing.marks
    assert best.y < base.y, "faster is higher"
    assert best.x > base.x, "fewer bytes is further right"
    assert all(mark.roof_y <= mark.y for mark in (base, best)), "nothing is above its roof"
    measured = roofline.view(record_of(read_recording(MEASURED)))
    assert {(p.who, p.level) for p in measured.points} == {
        (who, level) for who in ("author's kernel", "best rewrite") for level in ("DRAM", "L2")
    }


def test_what_was_not_counted_is_said_and_not_drawn() -> None:
    record = records.provisional()
    assert record.profile is not None
    bare = record.profile.verdict_detail.model_copy(update={"roofline": None})
    profile = record.profile.model_copy(
        update={"verdict_detail": bare, "best_verdict": None, "best": records.profile(223.0)}
    )
    found = roofline.view(record.model_copy(update={"profile": profile}))
    assert found.drawing is None
    assert found.points == []
    assert [line.split(":")[0] for line in found.missing[:2]] == ["author's kernel", "best rewrite"]
    assert "were not counted" in found.missing[0]
    elsewhere = profile.model_copy(
        update={"baseline": profile.baseline.model_copy(update={"device": "Z9"})}
    )
    found = roofline.view(record.model_copy(update={"profile": elsewhere}))
    assert any("Z9 is not in the device table" in line for line in found.missing)


def test_candidates_stand_in_order_with_their_trials() -> None:
    recording = read_recording(DIALOGUE)
    record = record_of(recording)
    first, *others = record.attempts
    unbuilt = first.model_copy(update={"candidate_us": None, "configurations_tried": 1})
    record = record.model_copy(update={"attempts": (unbuilt, *others)})
    found = candidates.view(record, recording.events, html.beside_of(recording).trials)
    assert [(e.iteration, e.word) for e in found.entries] == [
        (1, "tried"), (1, "tried"), (1, "tried"), (1, "rejected"),
        (2, "tried"), (2, "tried"), (2, "tried"), (2, "provisional"),
        (3, "tried"), (3, "tried"), (3, "tried"), (3, "provisional"),
        (4, "tried"), (4, "tried"), (4, "tried"), (4, "rejected"),
    ]  # fmt: skip
    assert found.drawing is not None
    assert found.drawing.marks[3].y == found.drawing.strip_y, "it never ran: no time, not 0"
    assert found.drawing.words == ["provisional", "rejected", "tried"]
    assert all(
        (e.time == "not timed") if number == 3 else "modelled for H200" in e.time
        for number, e in enumerate(found.entries)
    )
    without = candidates.view(record, (), {})
    assert len(without.entries) == 4
    assert without.missing == ["The tuner's trials of candidate 2, 3, 4 are missing."]


def test_trials_are_read_from_the_folder() -> None:
    recording = read_recording(ROOT / "tests" / "data" / "recorded" / "naive_matmul")
    trials = html.beside_of(recording).trials
    found = candidates.view(record_of(recording), (), trials)
    assert len(found.entries) == len(trials[1]) + 1
    assert {e.word for e in found.entries[:-1]} <= {"tried", "did not run"}
    assert found.entries[-1].word == "provisional"
    assert found.missing == []


def test_trials_are_read_from_events_where_there_is_no_folder() -> None:
    trial = {"values": {"BM": 64}, "time_us": 300.0, "failure": None}
    given = [trial, {**trial, "time_us": None, "failure": "over 49152 bytes"}]
    events = [
        event("optimizer", "finished", {"trials": given}),
        event("verify", "finished", {"outcome": "rejected"}),
        event("optimizer", "finished", {"trials": [{"of": "another version"}]}),
        event("verify", "finished", {}),
    ]
    found = candidates.view(records.provisional(), events, {})
    assert [(e.iteration, e.word, e.values) for e in found.entries] == [
        (1, "tried", "BM=64"),
        (1, "did not run", "BM=64"),
        (1, "rejected", "BM=128"),
        (2, "provisional", "BM=128"),
    ]
    assert found.missing == ["The tuner's trials of candidate 2 are missing."]


def event(stage: str, kind: str, data: dict[str, object]) -> Event:
    return Event.model_validate(
        {"seq": 0, "time": "2026-11-20T08:00:00.000Z", "stage": stage, "agent": "supervisor",
         "kind": kind, "message": "", "data": data}
    )  # fmt: skip


def test_drift_names_every_incumbent_that_events_tell_of() -> None:
    def profiled(subtype: str, time_us: float) -> Event:
        evidence = [{"label": "L1/TEX", "value": 97.3, "unit": "%"}]
        data: dict[str, object] = {
            "subtype": subtype,
            "bottleneck_class": "memory_bound",
            "summary": "Limited.",
            "time_us": time_us,
            "evidence": evidence,
            "provenance": "modelled for A10",
        }
        return event("profiler", "finished", data)

    kept = {"outcome": "provisional", "iteration": 1, "title": "tiles"}
    events = [
        profiled("l1_load_throughput", 1240.0),
        event("verify", "finished", kept),
        profiled("shared_throughput", 400.0),
        event("verify", "finished", {**kept, "iteration": 2, "title": "registers"}),
        profiled("issue_slots", 223.0),
    ]
    stages = drift.view(records.provisional(), events).stages
    assert [(stage.who, stage.subtype) for stage in stages] == [
        ("author's kernel", "l1_load_throughput"),
        ("1, tiles", "shared_throughput"),
        ("2, registers", "issue_slots"),
    ]
    assert stages[0].numbers == ["1.24 ms (modelled for A10)", "L1/TEX 97.3 %"]
    recorded = drift.view(records.provisional(), ()).stages
    assert [stage.subtype for stage in recorded] == ["l1_load_throughput", "issue_slots"]


def test_shares_of_the_gain_add_up() -> None:
    first = records.attempt("provisional")
    judgement = first.judgement.model_copy(update={"speedup": 8.0})
    second = first.model_copy(update={"iteration": 3, "judgement": judgement})
    half = first.judgement.model_copy(update={"speedup": 2.0})
    first = first.model_copy(update={"judgement": half})
    rejected = records.attempt("rejected", 2)
    record = records.provisional().model_copy(update={"attempts": (first, rejected, second)})
    found = attribution.view(record)
    assert [(s.iteration, s.share) for s in found.steps] == [(1, "33 %"), (3, "67 %")]
    assert [s.factor for s in found.steps] == [
        "2.00× (modelled for A10)",
        "4.00× (modelled for A10)",
    ]


def test_a_metric_on_one_side_alone_is_not_compared() -> None:
    before, after = records.profile(), records.profile(223.0)
    known = Metric(name=ncu.REGISTERS, value=32, unit="register/thread", source="ptxas")
    before = before.model_copy(update={"metrics": {**before.metrics, known.name: known}})
    record = records.provisional()
    assert record.profile is not None
    profile = record.profile.model_copy(update={"baseline": before, "best": after})
    rows = attribution.view(record.model_copy(update={"profile": profile})).changes
    row = next(r for r in rows if r.name == ncu.REGISTERS)
    assert (row.after, row.change) == ("not collected", "cannot be compared")


@pytest.mark.parametrize(
    "record",
    [
        records.provisional(),
        records.nothing_found(),
        records.provisional().model_copy(
            update={"outcome": "failed", "profile": None, "research": None, "attempts": (),
                    "best": None, "judgement": None, "program": None}
        ),
    ],
    ids=lambda r: r.outcome,
)  # fmt: skip
def test_a_record_with_parts_missing_says_so(record: RunRecord) -> None:
    page = Page(html.document(record, ()))
    missing = sum("r-missing" in str(a.get("class")) for _, a in page.tags)
    assert missing >= 3
    missing = page.text.count("The certificate file is missing")
    assert missing + page.text.count("no certificate") == 1
    if record.outcome == "failed":
        assert "The run ended before the kernel was profiled." in page.text
        assert "nothing was accepted" in page.text


def test_no_folder_of_the_machine_is_in_it() -> None:
    text = html.document(records.provisional("/home/dev/runs/x"), ())
    assert "/home/" not in text
    assert "python -m cudaops confirm ." in text
    assert "python -m cudaops certify check certificate.json" in text


def test_a_certificate_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    copy = shutil.copytree(MEASURED, tmp_path / "run")
    unsigned = {"cudaops_version": "0.1.0", "verdict": "accepted"}
    (copy / "certificate.json").write_text(json.dumps(unsigned), encoding="utf-8")
    page = Page(html_report(copy))
    assert "certificate.json cannot be read" in page.text


def test_a_patch_is_read_by_its_counts() -> None:
    patch = (
        "--- a/k.cu\n+++ b/k.cu\n@@ -1,3 +1,3 @@\n same\n--- gone\n+++ come\n\\ No newline\n same\n"
        "--- a/other.cu\n+++ b/other.cu\n@@ -7 +7,0 @@\n-gone\n"
    )
    found = diff.read_patch(patch)
    assert [line.kind for line in found.lines] == [
        "file", "file", "hunk", "same", "del", "add", "note", "same", "file", "file", "hunk", "del",
    ]  # fmt: skip
    assert (found.added, found.removed) == (1, 2)
    assert [line.number for line in found.lines if line.kind in ("same", "add", "del")] == [
        "1", "2", "2", "3", "7",
    ]  # fmt: skip


def test_characters_without_shape_are_named() -> None:
    line = pieces("a\u202eb\u200bc\x00\t.")
    assert [piece.text for piece in line if piece.hidden] == ["U+202E", "U+200B", "U+0000"]


def test_a_long_patch_is_cut_and_says_so() -> None:
    found = diff.read_text("x\n" * (diff.MOST_LINES + 5))
    assert (len(found.lines), found.left_out) == (diff.MOST_LINES, 5)


def test_scales_carry_round_values() -> None:
    axis = log_scale([3.0, 2000.0], 0, 100)
    assert [tick.label for tick in axis.ticks()] == ["10", "100", "1,000"] or axis.low < 2.5
    assert axis(axis.low) == 0
    assert axis(axis.high) == 100
    same = log_scale([5.0], 0, 100)
    assert same.high / same.low == pytest.approx(2.0)
    assert len(LogScale(1e-3, 1e12, 0, 100).ticks()) < 20


def test_beside_keeps_trials_and_damage(tmp_path: Path) -> None:
    trial = RecordedTrial(values={"BM": 1}, time_us=None, failure="why")
    beside = html.Beside(trials={1: (trial,)}, damage=("run.json: cut short",))
    page = Page(html.document(records.provisional(), (), beside))
    assert "Cannot be read: run.json: cut short" in page.text
    assert "why" in page.text
