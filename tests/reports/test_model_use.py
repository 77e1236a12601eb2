"""What a report says of the model, and that it says nothing where none was asked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cudaops.domain.model_use import TokenCount
from cudaops.domain.run import RunRecord
from cudaops.reports import content, markdown, terminal
from cudaops.reports.costs import model_sentences, role_rows, tokens_text
from cudaops.reports.quantities import dollars, plain_lines
from tests.reports import recordings, records


def on_terminal(record: RunRecord) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(terminal.run_summary(record), crop=False)
    return stream.getvalue()


@pytest.mark.parametrize("render", [on_terminal, markdown.run_report])
def test_reports_say_what_the_model_took(render: object) -> None:
    text = " ".join(render(recordings.record(Path("/r"))).split())  # type: ignore[operator]
    for wanted in (
        "Language model",
        f"{recordings.MODEL}: 2 calls, 13,624 tokens in (5,900 cached), 1,302 out, $0.006, 14.2 s",
        "Price per million tokens: $0.40 in, $0.40 out (set by the user, 2026-11-20)",
        "Recipes proposed instead: --max-cost 0.01 is spent",
        "planner",
        "family tiling",
    ):
        assert wanted in text, wanted
    assert "Language model" not in render(records.provisional())  # type: ignore[operator]


def test_every_attempt_has_its_proposer() -> None:
    rows = content.attempt_rows(recordings.record(Path("/r")))
    assert [
        f"llm:{recordings.MODEL}, family tiling" in rows[0].what,
        "recipe:matmul" in rows[1].what,
    ]
    assert "family" not in rows[1].what


def test_what_is_not_known_is_said() -> None:
    bare = recordings.use().model_copy(
        update={
            "cost_usd": None, "price": None, "fell_back": None,
            "tokens": TokenCount(input_tokens=10, output_tokens=2, estimated=True),
        }
    )  # fmt: skip
    said = model_sentences(bare)
    assert said[0].endswith("2 calls, about 10 tokens in, 2 out, no price known, 14.2 s")
    assert "estimates" in said[1]
    assert len(said) == 2
    assert [row.role for row in role_rows(bare)] == ["planner", "coder"]
    assert tokens_text(TokenCount()) == "0 tokens in, 0 out"


def test_dollars() -> None:
    assert [dollars(x) for x in (None, 0.0, 0.00001, 0.0412, 0.4, 0.125, 12.345, 1234.0)] == [
        "no price known", "$0.00", "less than $0.0001", "$0.0412", "$0.40", "$0.125", "$12.35",
        "$1,234.00",
    ]  # fmt: skip


def test_texts_of_many_lines_keep_their_shape() -> None:
    assert plain_lines("a\r\n\tb  c\x1b[31m\u202e\x00\n") == ["a", "    b  c[31m", ""]
