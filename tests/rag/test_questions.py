"""What `make eval-knowledge` measures: remedies first, sections found, or nothing found."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.knowledge import CITED, PARTS, Question, in_order, ndcg, questions, recall, sections
from cudaops.rag.knowledge import Knowledge

ASKED = questions()


def found(knowledge: Knowledge, question: Question, limit: int = 10) -> list[str]:
    return sections(knowledge.search(question.text, limit, question.subtype))


@pytest.mark.parametrize("question", [q for q in ASKED if q.subtype], ids=lambda q: q.subtype)
def test_a_verdict_brings_remedy_then_why_then_cost(
    knowledge: Knowledge, question: Question
) -> None:
    got = found(knowledge, question, CITED)
    assert got[0] == question.answers[0]
    assert in_order(question, got)


LEAST = ((0.9, 0.85), (0.9, 0.85), (0.9, 0.75), (0.85, 0.8), (0.8, 0.7))
"""recall@5 and nDCG@10 of each part."""


@pytest.mark.parametrize(("part", "least"), list(zip(PARTS, LEAST, strict=True)))
def test_sections_that_answer_are_found(
    knowledge: Knowledge, part: str, least: tuple[float, float]
) -> None:
    asked = [q for q in ASKED if q.answers and q.part == part]
    got = {q: found(knowledge, q) for q in asked}
    assert statistics.fmean(recall(q, got[q]) for q in asked) >= least[0]
    assert statistics.fmean(ndcg(q, got[q]) for q in asked) >= least[1]


@pytest.mark.parametrize(
    "question", [q for q in ASKED if q.kind == "foreign"], ids=lambda q: q.text
)
def test_nothing_is_found_for_a_foreign_question(knowledge: Knowledge, question: Question) -> None:
    assert found(knowledge, question) == []


def test_the_set_is_large_enough() -> None:
    answered = [q for q in ASKED if q.answers]
    assert len(answered) >= 200
    split = [q for q in answered if q.part in PARTS[:2]]
    assert 0.25 <= statistics.fmean(q.part == "held back" for q in split) <= 0.4
    assert len({q.text for q in ASKED}) == len(ASKED)
