"""compute-sanitizer's text (`tests/data/sanitizer`): every known shape, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.cuda.sanitizer_report import (
    Nearest,
    SanitizerFinding,
    SanitizerLocation,
    SanitizerReport,
    parse_report,
)
from tests.lanes import examples

DATA = Path(__file__).parents[1] / "data" / "sanitizer"
LOGS = {path.stem: path.read_text() for path in sorted(DATA.glob("*.log"))}
A = 0x7F02D3A00000


def report(name: str) -> SanitizerReport:
    return parse_report(LOGS[name])


def test_an_access_past_the_end() -> None:
    read = report("memcheck_past_the_end")
    first, second = read.findings
    assert first == SanitizerFinding(
        kind="access",
        text="Invalid __global__ write of size 4 bytes",
        places=(SanitizerLocation("_Z4fastPKfPfif", "candidate.cu", 5),),
        space="global",
        access="write",
        size_bytes=4,
        trouble="out of bounds",
        address=0x7F02D3A01FA0,
        nearest=Nearest(0x7F02D3A01000, 4000),
        thread=(104, 0, 0),
        block=(7, 0, 0),
    )
    assert second.address == 0x7F02D3A01FA4
    assert (read.errors, read.problems, read.lost, read.clean) == (24, (), 0, False)


def test_every_kind_of_memcheck() -> None:
    read = report("memcheck_kinds")
    assert [f.kind for f in read.findings] == [
        "access", "access", "access", "access", "access", "access", "hardware", "heap", "api",
        "leak",
    ]  # fmt: skip
    before, misaligned, shared, local, null, across, trap, heap, failed, _ = read.findings
    assert before.nearest == Nearest(A, 4000)
    assert before.address == A - 32
    assert (misaligned.trouble, misaligned.size_bytes) == ("misaligned", 16)
    assert misaligned.places == (
        SanitizerLocation("_ZN4tile4loadEPKf", "tile.cuh", 40),
        SanitizerLocation("_Z4fastPKfPfif", "candidate.cu", 9),
    )
    assert (misaligned.thread, misaligned.block) == ((31, 1, 0), (2, 3, 1))
    assert (shared.space, shared.address, shared.nearest) == ("shared", 0x440, None)
    assert (local.space, local.access, local.size_bytes) == ("local", "read", 8)
    assert (null.access, null.address) == ("atomic", 0)
    assert across.nearest == Nearest(A, 4000)
    assert trap.places == (SanitizerLocation("_Z4fastPKfPfif", "candidate.cu", 12),)
    assert (heap.trouble, heap.places) == ("Double free", (SanitizerLocation("", None, None),))
    assert failed.trouble == "CUDA_ERROR_LAUNCH_FAILED"
    assert [f.kind for f in read.counted] == ["access"] * 6 + ["hardware", "heap"]
    assert (read.errors, read.lost) == (10, 0)


def test_older_spellings() -> None:
    read = report("memcheck_older")
    assert [f.places[0] for f in read.findings] == [
        SanitizerLocation("_Z4fastPKfPfif", "/build/w/candidate.cu", 42),
        SanitizerLocation("_Z5scalePd", None, None),
        SanitizerLocation("plain_kernel()", "plain.cu", 6),
    ]
    assert [f.size_bytes for f in read.findings] == [4, 8, 4]
    assert (read.errors, read.lost) == (3, 0)


def test_races_with_both_ends() -> None:
    read = report("racecheck")
    error, warning = read.findings
    assert (error.access, error.places[0].line) == ("write", 6)
    assert [(o.access, o.place.line) for o in error.others] == [("read", 7), ("write", 6)]
    assert (warning.access, warning.places[0]) == (
        "read",
        SanitizerLocation("_Z4fastPKfPfi", "/build/w/candidate.cu", 12),
    )
    assert [(o.access, o.place.line) for o in warning.others] == [("write", 13)]
    assert (read.errors, read.clean) == (2, False)


def test_single_hazards() -> None:
    (hazard,) = report("racecheck_hazards").findings
    assert (hazard.access, hazard.places[0].line, hazard.block) == ("write", 6, (2, 0, 0))
    assert [(o.access, o.place.line) for o in hazard.others] == [("read", 8)]


def test_barriers() -> None:
    read = report("synccheck")
    assert [f.trouble for f in read.findings] == [
        "Divergent thread(s) in block", "Divergent thread(s) in warp", "Invalid arguments",
    ]  # fmt: skip
    assert [p.line for p in read.findings[0].places] == [42, 6]
    assert [p.line for p in read.findings[2].places] == [None, 110, 15]
    assert read.errors == 3


def test_unwritten_memory() -> None:
    read = report("initcheck")
    assert [(f.kind, f.space) for f in read.findings] == [
        ("uninitialised", "shared"), ("uninitialised", "global"), ("unused", ""),
    ]  # fmt: skip
    assert [f.places[0].line for f in read.counted] == [8, 9]


@pytest.mark.parametrize("name", ["clean", "clean_races"])
def test_nothing_found(name: str) -> None:
    assert report(name).clean


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("device_not_supported", "Device not supported"),
        ("not_tracked", "didn't track the launch"),
        ("never_started", "terminated before first instrumented API call"),
        ("no_process", "No attachable process found"),
    ],
)
def test_what_the_tool_says_of_itself(name: str, problem: str) -> None:
    read = report(name)
    assert not read.clean
    assert not read.findings
    assert any(problem in p for p in read.problems), read.problems


def test_a_finding_in_unknown_words_is_not_overlooked() -> None:
    read = report("unknown")
    assert [f.kind for f in read.counted] == ["unknown"]
    assert not read.clean


def test_a_text_without_its_end_is_not_clean() -> None:
    assert not parse_report("").clean
    assert not parse_report("========= COMPUTE-SANITIZER\n").clean
    assert parse_report("========= ERROR SUMMARY: 0 errors\n").clean
    assert not parse_report("========= ERROR SUMMARY: 0 errors").clean


def test_what_the_program_prints_is_not_the_tools() -> None:
    text = "Invalid __global__ write of size 4 bytes\nERROR SUMMARY: 9 errors\n"
    assert parse_report(text + LOGS["clean"]).clean


def test_a_distance_that_contradicts_its_addresses_is_dropped() -> None:
    text = LOGS["memcheck_past_the_end"].replace("is 1 bytes after", "is 96 bytes after")
    first, second = parse_report(text).findings
    assert first.nearest is None
    assert second.nearest is not None


def facts(read: SanitizerReport) -> set[tuple[object, ...]]:
    """Everything a finding ties together that a reader would act on."""
    told: set[tuple[object, ...]] = set()
    for f in read.findings:
        told |= {(f.text, place) for place in f.places if place.line is not None}
        told |= {(f.text, o.place) for o in f.others}
        told |= {(f.text, frozenset((f.places[0], o.place))) for o in f.others}
        told.add((f.text, f.size_bytes))
        if f.nearest is not None:
            told.add((f.text, f.address, f.nearest))
    return told


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.integers(0, 4000))
def test_a_text_cut_anywhere_tells_nothing_new(name: str, length: int) -> None:
    cut = parse_report(LOGS[name][:length])
    assert facts(cut) <= facts(report(name))
    whole = LOGS[name]
    assert not cut.clean or (length >= len(whole) and report(name).clean)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.integers(0, 60))
def test_a_lost_line_ties_nothing_together_that_was_apart(name: str, number: int) -> None:
    lines = LOGS[name].splitlines(keepends=True)
    del lines[number % len(lines)]
    read = parse_report("".join(lines))
    for told in facts(read) - facts(report(name)):
        assert told[-1] is None, told
    assert not read.clean or report(name).clean


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.lists(st.integers(0, 60), max_size=6))
def test_shuffled_and_doubled_lines_never_look_clean(name: str, doubled: list[int]) -> None:
    lines = LOGS[name].splitlines(keepends=True)
    for number in doubled:
        lines.insert(number % len(lines), lines[(number * 7) % len(lines)])
    read = parse_report("".join(lines))
    assert not read.clean or report(name).clean


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    marked = "".join(f"========= {line}\n" for line in text.splitlines())
    for read in (parse_report(text), parse_report(marked)):
        assert isinstance(read, SanitizerReport)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.binary(max_size=40), st.integers(0, 3000))
def test_garbage_between_raises_nothing(name: str, garbage: bytes, at: int) -> None:
    text = LOGS[name].encode()
    damaged = (text[:at] + garbage + text[at:]).decode("utf-8", "replace")
    assert isinstance(parse_report(damaged), SanitizerReport)
