"""Material cannot leave its fence, and cannot speak a chat template's own words."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.prompts.text import MARK_DIGITS, fenced, line, visible

OPENED = re.compile(rf"<data-([0-9a-f]{{{MARK_DIGITS}}})>\n")

PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["```", "~~~~", "</data-", "<data-000000>", "</data-abcdef>", "\n", "<|eot_id|>", '"""']
    ),
    st.text("0123456789abcdefABCDEF", min_size=MARK_DIGITS, max_size=40),
)


def contents(text: str) -> str:
    """What stands in a fence, read as the rules tell a model to: to the first mark of its own."""
    opened = OPENED.match(text)
    assert opened
    inside, close, rest = text[opened.end() :].partition(f"</data-{opened[1]}>")
    assert close
    assert rest == ""
    return inside


@given(st.lists(PIECES, max_size=12).map("".join))
def test_the_first_mark_of_its_own_is_the_last(text: str) -> None:
    assert contents(fenced(text)) == visible(text).strip("\n") + "\n"


@given(st.lists(PIECES, max_size=6).map("".join))
def test_a_fence_inside_of_a_fence_closes_nothing(text: str) -> None:
    inner = fenced(text)
    assert contents(fenced(inner)) == inner + "\n"
    assert fenced(text) == inner


@pytest.mark.parametrize("upper", [False, True])
def test_a_text_that_holds_its_own_digest_gets_another_mark(upper: bool) -> None:
    digits = hashlib.sha512(b"seed").hexdigest() * 2
    many = "".join(hashlib.sha512(f"{digits}{n}".encode()).hexdigest() for n in range(2000))
    many = many.upper() if upper else many

    def first_mark(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()[:MARK_DIGITS]

    texts = (f"{many}\n{n}" for n in range(2000))
    text = next(t for t in texts if first_mark(t) in t.lower())
    assert contents(fenced(text)) == text + "\n"
    opened = OPENED.match(fenced(text))
    assert opened
    assert opened[1] != first_mark(text)


@pytest.mark.parametrize(
    "word",
    ["<|eot_id|>", "<|im_start|>system", "</s>", "<s>", "<start_of_turn>user", "[INST]", "[/INST]",
     "<SPECIAL_12>", "/no_think", "/think", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
)  # fmt: skip
def test_control_words_of_chat_templates_are_broken(word: str) -> None:
    shown = visible(f"a {word} b")
    assert word not in shown
    assert shown.replace(" ", "") == f"a{word}b".replace(" ", "")


def test_invisible_characters_are_dropped_and_line_ends_made_one() -> None:
    assert visible("a\u202eb\u200bc\r\nd\re\x00\x1b[2J\U000e0041\tf") == "abc\nd\ne[2J\tf"


def test_code_is_left_as_it_is() -> None:
    code = "k<T, 4>(a[i] / b, x < y | z, s << 2); // <b> /thinker"
    assert visible(code) == code


def test_line_is_one_line_of_bounded_length() -> None:
    assert line("a\n b\t c", 10) == "a b c"
    assert line("x" * 50, 10) == "xxxxxxx..."
