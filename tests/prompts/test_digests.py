"""A digest keeps the sentences that name a passage which is there."""

from __future__ import annotations

import pytest

from cudaops.prompts.digests import MAX_SENTENCE, MOST_SENTENCES, read_digest
from tests.prompts.samples import findings

CITATIONS = findings().citations


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("Tile it in registers [3].", "Tile it in registers [technique-register-tiling]."),
        (
            "Fill [1][3]. It will be faster.\nNow 0.5 [2].",
            "Fill [l1-load-throughput][technique-register-tiling]. Now 0.5 [l1-load-throughput].",
        ),
        ("There is no such passage [9]. Nor this [0].", ""),
        ("One is there [1], the other is not [9].", ""),
        ("No source at all.", ""),
        ("x" * MAX_SENTENCE + " [1].", ""),
        ("", ""),
    ],
)
def test_only_sentences_with_a_source_stay(answer: str, kept: str) -> None:
    assert read_digest(answer, CITATIONS) == kept


def test_it_is_short() -> None:
    assert read_digest("Do this [1]. " * 50, CITATIONS).count("Do this") == MOST_SENTENCES
