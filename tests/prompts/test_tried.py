"""Anti-context: nothing is lost, what is newest is last, and long lists stay short."""

from __future__ import annotations

from cudaops.domain.judgement import TunedSetting
from cudaops.prompts.prompt import count_tokens
from cudaops.prompts.wording import NEWEST, attempt_text, failed_groups, kept_lines, tried_text
from tests.prompts.samples import FAILED, attempt


def test_groups_are_by_gate_and_the_newest_group_is_last() -> None:
    attempts = [
        attempt(1, "a", "compile", "compile: x"),
        attempt(2, "b", "speedup", "0.9x", times=(10.0, 11.0)),
        attempt(3, "c", "compile", "compile: y"),
    ]
    groups = failed_groups(attempts)
    assert [gate for gate, _ in groups] == ["speedup", "compile"]
    assert [line[:2] for line in groups[1][1]] == ["#1", "#3"]
    assert "0.91x measured; 0.9x" in groups[0][1][0]


def test_older_attempts_are_shortened_and_none_is_dropped() -> None:
    attempts = [
        attempt(n, f"title {n} " + "of many words " * 9, "speedup", "slow because " * 20,
                times=(10.0, 11.0), tuned={"TILE": n})
        for n in range(1, 41)
    ]  # fmt: skip
    ((_, lines),) = failed_groups(attempts)
    assert [f"#{n} " in line for n, line in enumerate(lines, 1)] == [True] * 40
    assert [f"(TILE={n})" in line for n, line in enumerate(lines, 1)].count(True) == NEWEST
    assert all("0.91x measured" in line for line in lines)
    assert count_tokens(tried_text(attempts, ())) < 3500


def test_kept_attempts_are_no_failures() -> None:
    kept = attempt(4, "tiles", "speedup", "4x", outcome="accepted", times=(40.0, 10.0))
    assert kept_lines([*FAILED, kept]) == ("#4 [tiling] tiles: 4.00x measured; 4x",)
    assert "tiles: 4.00x" in tried_text([kept], ()).split("rejected")[0]


def test_a_lesson_is_shown_where_it_says_more_than_the_reason() -> None:
    assert "learnt: the barrier before" in tried_text(FAILED, ())
    assert tried_text(FAILED, ()).count("learnt:") == 1


def test_nothing_tried_is_an_empty_text() -> None:
    assert tried_text((), ()) == ""


def test_what_was_just_judged_is_said_to_have_failed_only_where_it_did() -> None:
    kept = attempt(4, "tiles", "speedup", "4x", outcome="provisional", times=(40.0, 10.0))
    assert attempt_text(kept).splitlines()[0] == "provisional, every gate passed"
    assert attempt_text(FAILED[1]).splitlines()[0] == "rejected, correctness_captured"


def test_a_setting_that_left_the_authors_kernel_in_place_is_told_as_such() -> None:
    kept = attempt(4, "tiles", "speedup", "4x", outcome="provisional", times=(40.0, 10.0))
    tried = [TunedSetting(values={"PER": n}, time_us=t) for n, t in ((4, 10.0), (2, 40.0))]
    shown = attempt_text(kept.model_copy(update={"settings": tuple(tried)}))
    assert "tried: PER=4 10 us, PER=2 40 us (the author's kernel: `@requires` does not" in shown
