"""Reasoners' answers: what passages come to, each sentence with its source."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudaops.domain.run import Citation
from cudaops.prompts.answers import MAX_ANSWER
from cudaops.prompts.text import answer_text, one_line, prose

MOST_SENTENCES = 6
"""Of a digest. Chosen: a remedy or two, why, what it costs; more is the passages again."""

MAX_SENTENCE = 300
"""Characters; a longer sentence is dropped: cut, it could lose its source."""

_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n+")
_CITED = re.compile(r"\[(\d{1,3})\]")


def read_digest(text: str, citations: Sequence[Citation]) -> str:
    """The sentences that name a passage, `[2]`, by the note it is of; empty where none does.

    A sentence without one, or with a number that no passage has, is dropped.
    """
    kept = []
    for each in _ENDS.split(prose(answer_text(text[:MAX_ANSWER]))):
        sentence = one_line(each.strip("-* "), MAX_ANSWER)
        numbers = [int(number) for number in _CITED.findall(sentence)]
        there = all(1 <= number <= len(citations) for number in numbers)
        if numbers and there and len(sentence) <= MAX_SENTENCE:
            kept.append(_CITED.sub(lambda one: f"[{citations[int(one[1]) - 1].note}]", sentence))
    return " ".join(kept[:MOST_SENTENCES])
