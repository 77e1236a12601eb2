"""What can come of a coder's answer, and how it is asked for again."""

from __future__ import annotations

from typing import Literal, NamedTuple

UnusableKind = Literal[
    "no_code", "elided", "several_answers", "malformed", "forbidden_library", "host_code",
    "bad_plan", "too_long", "whole_program",
]  # fmt: skip

_WHOLE = (
    "Send the whole device text in one ```cuda block: its `// @launch` lines and every line of "
    "every kernel and device function, and nothing of the host."
)
_REASKS: dict[UnusableKind, str] = {
    "no_code": f"There was no rewrite in it: {{detail}}. {_WHOLE}",
    "elided": (
        "It leaves code out: {detail}. What is left out is compiled as nothing; no text is at hand "
        f"that could fill it in. {_WHOLE}"
    ),
    "several_answers": (
        "It could not be told which code was meant: {detail}. Choose the best and send that one "
        f"alone. {_WHOLE}"
    ),
    "malformed": f"It could not be read: {{detail}}. {_WHOLE}",
    "forbidden_library": (
        "It uses what it may not: {detail}. Write that part by hand, as device code of your own; a "
        f"step that all blocks must have finished is a second `// @launch`. {_WHOLE}"
    ),
    "host_code": (
        "It is not device code alone: {detail}. Launches are written as `// @launch` lines, "
        f"temporary memory as `// @scratch`; there is no other host code. {_WHOLE}"
    ),
    "bad_plan": (
        "A directive is wrong: {detail}. The form is `// @launch KERNEL grid=(x, y, z) "
        "block=(x, y, z) smem=BYTES args=(a, b)` in one line, with the author's parameters, your "
        f"`@scratch` and `@tune` names and integers in its expressions. {_WHOLE}"
    ),
    "too_long": f"It is too long: {{detail}}. {_WHOLE} A rewrite has a few hundred lines at most.",
    "whole_program": (
        f"It is a whole program with host code, and its launches could not be taken over. {_WHOLE}"
    ),
}


class CoderAnswer(NamedTuple):
    """A rewrite that can be compiled."""

    source: str
    """Device text with directives; ASCII but for string literals and comments."""
    title: str
    """A few words; empty where the answer has none."""
    why: str
    """One line; empty where the answer has none."""
    notices: tuple[str, ...]
    """What was mended, a line each."""


class Unusable(NamedTuple):
    """An answer that cannot be used."""

    kind: UnusableKind
    reask: str
    """One paragraph for the model: what was wrong, and what to send."""
    detail: str
    """One line for people and for the record."""
    program: str = ""
    """`whole_program`: its text."""


def unusable(kind: UnusableKind, detail: str, program: str = "") -> Unusable:
    """The value with the paragraph that belongs to its kind."""
    flat = " ".join(detail.split()).rstrip(".")[:600]
    return Unusable(kind, _REASKS[kind].format(detail=flat), flat, program)
