"""examples/scripts/naive_matmul.json: each of its answers can be read as its reader reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.hypothesis import Hypothesis
from cudaops.models.scripted import Script, read_script
from cudaops.program.fingerprint import near_duplicate
from cudaops.program.parse import load_program
from cudaops.prompts.answers import CoderAnswer, read_rewrite
from cudaops.prompts.hypotheses import read_hypotheses, read_lesson

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script() -> Script:
    return read_script(EXAMPLES / "scripts" / "naive_matmul.json")


def rewrites(script: Script) -> list[CoderAnswer]:
    (kernel,) = load_program(EXAMPLES / "naive_matmul.cu").kernels
    texts = [answer.text for answer in script.answers if answer.role in ("coder", "fixer")]
    read = [read_rewrite(text, kernel=kernel) for text in texts]
    assert [answer for answer in read if not isinstance(answer, CoderAnswer)] == []
    return [answer for answer in read if isinstance(answer, CoderAnswer)]


def test_every_rewrite_can_be_read_and_none_repeats_another(script: Script) -> None:
    read = rewrites(script)
    assert len(read) == 6
    assert all(answer.title and answer.why for answer in read)
    judged = [(read[index].title, read[index].source) for index in (2, 3, 4, 5)]
    for number, (_, source) in enumerate(judged):
        assert near_duplicate(source, judged[:number]) is None


def test_the_plan_names_what_is_written(script: Script) -> None:
    planned = read_hypotheses(script.answers[0].text, 3)
    assert all(isinstance(entry, Hypothesis) for entry in planned)
    titles = [entry.title for entry in planned if isinstance(entry, Hypothesis)]
    written = {answer.title for answer in rewrites(script)}
    assert len(titles) == 3
    assert set(titles) <= written


def test_lessons_are_one_line(script: Script) -> None:
    lessons = [answer.text for answer in script.answers if answer.role == "reflector"]
    assert [read_lesson(text) for text in lessons] == lessons
    assert len(lessons) == 2
