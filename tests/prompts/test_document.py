"""docs/prompts.md shows the prompts as they are, and tokens are counted by a tokenizer."""

from __future__ import annotations

from cudaops.prompts.prompt import count_tokens, counted_by
from tests.prompts.document import MARK, PAGE, page, size_table


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tests.prompts.document`"


def test_the_page_shows_all_four_roles_and_the_sizes() -> None:
    generated = PAGE.read_text("utf-8").partition(MARK)[2]
    for heading in ("Sizes", "Planner", "Coder", "Fixer", "Reflector", "Asking again"):
        assert f"\n## {heading}" in generated


def test_tokens_are_counted_by_the_tokenizer_that_is_installed() -> None:
    assert "Llama" in counted_by()
    assert count_tokens("") == 0
    assert 2 <= count_tokens("hello world") <= 4
    assert count_tokens("x" * 1000) > 50


def test_rows_of_the_table_stand_where_their_prompt_has_them() -> None:
    table = size_table({"one": {"a": 1000, "c": 2}, "two": {"a": 1, "b": 3, "c": 4}})
    assert table.splitlines()[2:] == [
        "| a | 1,000 | 1 |", "| b |  | 3 |", "| c | 2 | 4 |", "| **total** | **1,002** | **8** |",
    ]  # fmt: skip
