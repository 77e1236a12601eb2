"""Answers made whole: continuations joined, thoughts left out."""

from __future__ import annotations

import pytest

from cudaops.models.streaming import LEAST_OVERLAP, join, without_thinking

CODE = (
    "TITLE: tiles\n```cuda\n__global__ void k(float *a) {\n  float sum = 0.0f;\n"
    "  for (int i = 0; i < 16; ++i) {\n    sum += a[i];\n  }\n  a[0] = sum;\n}\n```\n"
)


@pytest.mark.parametrize("cut", range(1, len(CODE)))
def test_a_clean_continuation_is_put_behind(cut: int) -> None:
    assert join(CODE[:cut], CODE[cut:]) == CODE


@pytest.mark.parametrize("overlap", [LEAST_OVERLAP, 30, 60])
def test_what_is_said_twice_is_kept_once(overlap: int) -> None:
    cut = CODE.index("sum += a[i]")
    assert join(CODE[:cut], CODE[cut - overlap :]) == CODE


@pytest.mark.parametrize("opening", ["```cuda\n", "```\n", "Here is the rest:\n\n```c++\n"])
def test_a_fence_opened_again_is_dropped(opening: str) -> None:
    cut = CODE.index("    sum += a[i]")
    assert join(CODE[:cut], opening + CODE[cut:]) == CODE


def test_an_introduction_with_no_fence_stays_to_be_read() -> None:
    assert join("```cuda\nx;\n", "Sure:\ny;\n```\n") == "```cuda\nx;\nSure:\ny;\n```\n"


def test_a_fence_after_a_closed_one_stays() -> None:
    assert join("```cuda\nx\n```\n", "```json\n{}\n```") == "```cuda\nx\n```\n```json\n{}\n```"


def test_an_answer_that_starts_over_replaces_what_it_repeats() -> None:
    assert join(CODE[:90], CODE) == CODE
    assert join(CODE[:90], CODE[:70]) == CODE[:90]


def test_closing_braces_are_no_repetition() -> None:
    assert join("  }\n  }\n", "  }\n}\n") == "  }\n  }\n  }\n}\n"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("plain", "plain"),
        ("<think>a < b</think>\nanswer", "\nanswer"),
        ("<think>one</think>a<think>two</think>b", "ab"),
        ("thoughts that the template began</think>answer", "answer"),
        ("answer<think>cut off in", "answer"),
        ("if (a<b) think>c", "if (a<b) think>c"),
    ],
)
def test_thoughts_are_left_out(said: str, answer: str) -> None:
    assert without_thinking(said) == answer
