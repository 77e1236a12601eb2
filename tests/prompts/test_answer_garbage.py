"""Whatever a model sends, the readers come back, with a value, in bounded time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.domain.hypothesis import Hypothesis
from cudaops.program.hygiene import check_source
from cudaops.program.plans import make_rewrite
from cudaops.prompts.answers import MAX_ANSWER, CoderAnswer, Unusable
from cudaops.prompts.hypotheses import read_hypotheses, read_lesson
from tests.lanes import examples, mostly_deep
from tests.prompts.answer_texts import TILES, read

PIECES = [
    "```cuda\n", "```\n", "~~~", "```json\n", "// @launch ", "@tune X = 1,", "// @requires ", "{",
    "}", "(", ")", "[", "]", '"', "'", "\\", "\n", "/*", "*/", "//", "...", "__global__ void k(",
    "<<<", ">>>", "template <", "#include <", "#if 0\n", "#endif\n", 'R"(',
    '{"source": "', '"title":',
    "<think>", "</think>", "int main() {", "TITLE:", "\x00", "\ud800", "\u2028", "\ufeff", "\u202e",
    "N % 16 == 0", "grid=(", "args=(A, B)", "namespace x {", "null", "1e999", "-", "\t",
]  # fmt: skip
GARBAGE = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.binary(max_size=300).map(lambda b: b.decode("latin-1")),
)


def check(text: str) -> None:
    """The three readers give values of their types, and what is taken passes the first gate."""
    answer = read(text)
    if isinstance(answer, CoderAnswer):
        assert check_source(answer.source) == ()
        assert make_rewrite(answer.source, "llm:test", "t", "w").plan.launches
    else:
        assert isinstance(answer, Unusable)
        assert answer.reask
    found = read_hypotheses(text, 3)
    assert isinstance(found, Unusable) or all(isinstance(h, Hypothesis) for h in found)
    lesson = read_lesson(text)
    assert len(lesson) <= 200
    assert lesson.isprintable()


@pytest.mark.parametrize("letter", ["\u00e0", "\u00c5", "\u2060", "\u4e85"])
def test_a_letter_whose_last_byte_looks_like_a_space_stays(letter: str) -> None:
    check(f"```cuda\n// @launch k grid=(1) block=(1) args=(A){letter};\n// grid={letter}\n```\n")


@settings(max_examples=examples(300), deadline=None)
@given(GARBAGE)
def test_garbage_is_read(text: str) -> None:
    check(text)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(0, len(TILES)), st.integers(0, 60), GARBAGE,
    st.sampled_from(["{}", "```cuda\n{}```", "Yes.\n```\n{}", "{}\n```\nmore\n```"]), st.booleans(),
)  # fmt: skip
def test_mangled_answers_are_read(at: int, cut: int, put: str, form: str, as_json: bool) -> None:
    text = TILES[:at] + put + TILES[at + cut :]
    body = json.dumps({"source": text}) if as_json else text
    check(form.replace("{}", body))


REPEATED = [
    "a", "{", "[", '{"', '{"a":"', '"', '\\"', "```\n", "```\n__global__ void k(){}\n", 'R"(',
    "template <", "namespace a {", "// todo insert here \n", "insert ", "// @launch ", " ", ", ",
    "<think>", "</think>", "/*", "... ", "@launch k grid=(\n", "(", "//", '"source": "', "#if 0\n",
    "#define a b\n", "\\\n", "system: ", "<", "TITLE: ", "x=x<",
]  # fmt: skip


@pytest.mark.parametrize("unit", mostly_deep(REPEATED, 2))
def test_a_megabyte_of_anything_takes_seconds(unit: str) -> None:
    """At most 3.9 s on a core of the development machine, 2026-11-20."""
    whole = (unit * (MAX_ANSWER // len(unit)))[:MAX_ANSWER]
    inside = f"```cuda\n{TILES}{unit * (90_000 // len(unit))}\n```"
    started = time.process_time()
    check(whole)
    check(inside)
    check(json.dumps({"source": inside}))
    assert time.process_time() - started < 60


def test_a_longer_answer_is_not_looked_at() -> None:
    answer = read("x" * (MAX_ANSWER + 1))
    assert isinstance(answer, Unusable)
    assert answer.kind == "too_long"
