"""What of a complaint reaches the fixer."""

from __future__ import annotations

import pytest

from cudaops.prompts.roles import (
    MOST_LOG_CHARACTERS,
    MOST_LOG_LINES,
    bounded_log,
    excerpt,
    named_lines,
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("candidate.cu(12): error: x", (12,)),
        ("candidate.cu:7:3: error: x\ncandidate.cu:9: note", (7, 9)),
        ("line 4: `asm`: inline assembly is not device code", (4,)),
        ("launch directive at 2:24: unknown name `M`", (2,)),
        ("w0 C: relative L2 error 3.1e-01; ratio 1:2", ()),
        ("header.h:99:1: note", ()),
    ],
)
def test_lines_that_are_named(text: str, lines: tuple[int, ...]) -> None:
    assert named_lines(text) == lines


def test_excerpt_shows_what_stands_around() -> None:
    source = "\n".join(f"l{n}" for n in range(1, 31))
    shown = excerpt(source, [2, 20]).splitlines()
    assert shown[0] == "     1 l1"
    assert shown[1] == ">    2 l2"
    assert shown[5] == "..."
    assert ">   20 l20" in shown
    assert excerpt(source, [99]) == ""


def test_a_long_log_keeps_its_errors() -> None:
    log = "\n".join(
        ["noise"] * 500 + ["candidate.cu(3): error: bad", "  x = y;", "  ^"] + ["n"] * 99
    )
    kept = bounded_log(log)
    assert kept.splitlines()[1:3] == ["candidate.cu(3): error: bad", "  x = y;"]
    assert kept.splitlines()[-1] == "[597 lines left out]"


def test_a_log_of_nothing_but_errors_is_bounded() -> None:
    kept = bounded_log("\n".join(f"error {n} " + "x" * 400 for n in range(999)))
    assert len(kept) < MOST_LOG_CHARACTERS + 40
    assert len(kept.splitlines()) <= MOST_LOG_LINES + 1


def test_a_log_without_an_error_keeps_its_end() -> None:
    assert bounded_log("\n".join(map(str, range(100)))).splitlines()[-2:] == [
        "99", "[60 lines left out]",
    ]  # fmt: skip
