"""Text on its way into a prompt or out of an answer: nothing invisible, nothing that passes for an
instruction, code in its fences."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import NamedTuple

MARK_DIGITS = 6
"""Hex digits of a fence's mark: enough that a second try is rare, few enough to cost few tokens."""
MAX_BLOCKS = 64
"""More fenced blocks than an answer has; what follows is not looked at."""

_CONTROL = re.compile(
    r"<(?=[|\uff5c])|<(?=/?s>)|<(?=/?(?:start|end)_of_turn>)|<(?=SPECIAL_\d)|\[(?=/?INST\])"
    r"|/(?=(?:no_)?think\b)",
    re.IGNORECASE,
)
"""Beginnings of what chat templates and tokenizers take for control words of their own, wherever
they are in a message: `<|eot_id|>`, `</s>`, `<start_of_turn>`, `[INST]`, and of Nemotron
`<SPECIAL_12>` and `/no_think`. None of them is needed in CUDA source."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Control, format (direction marks, tag characters), surrogate, private and unassigned."""
_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")

_THOUGHTS = re.compile(r"\A\s*<(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_STRUCTURE = re.compile(
    r"`{2,}|~{3,}|<\|[^|<>\n]{0,40}\|>|\[/?(?:INST|SYS)\]|<</?SYS>>|<SPECIAL_\d{1,3}>"
    r"|</?(?:system|user|assistant|human|think|thinking|reasoning|tool|function|instructions?"
    r"|prompt|data|s|bos|eos|start_of_turn|end_of_turn)\b[^<>\n]{0,40}>",
    re.IGNORECASE,
)
"""What chat templates, markdown and our own prompts take for structure."""
_LEAD = re.compile(
    r"[*~|=\s]+|[#>+-]+\s+|(?:system|assistant|user|human|tool|developer|instructions?)\s*[:：]",
    re.IGNORECASE,
)
"""Markdown or a role before a sentence. `#pragma`, `__ldcs` and `-1` are none."""
_LEADS = 12
"""Of them that are taken off; nobody writes more in earnest."""
_BLOCK = re.compile(
    r"^[ \t]*(?:(?:[-*+]|\d\.)[ \t]+)?(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[\w+-]*)[^`\n]*\n"
    r"(?P<text>.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$"
    r"|(?=^[ \t]*(?:`{3,}|~{3,})(?:cuda|cu|cpp|c\+\+|json)\b)|(?P<open>\Z))",
    re.MULTILINE | re.DOTALL,
)


class FencedBlock(NamedTuple):
    """One fenced block of an answer."""

    info: str
    """First word after the opening fence, in lower case: `cuda`, `json`; empty without."""
    text: str
    is_open: bool
    """Whether the answer ends before its closing fence."""


def fenced_blocks(answer: str) -> tuple[FencedBlock, ...]:
    """The fenced blocks of an answer in order, what is said twice once."""
    found: dict[str, FencedBlock] = {}
    for match in _BLOCK.finditer(answer):
        block = FencedBlock(match["info"].lower(), match["text"], match["open"] is not None)
        found.setdefault(" ".join(block.text.split()), block)
        if len(found) == MAX_BLOCKS:
            break
    return tuple(found.values())


def prose(answer: str) -> str:
    """An answer without its fenced blocks."""
    return _BLOCK.sub("\n", answer)


def printable(text: str) -> str:
    """Line ends as `\\n`, no control or invisible characters, no halves of characters."""
    whole = _ENDS.sub("\n", text)
    if whole.isascii() and whole.replace("\n", "").replace("\t", "").isprintable():
        return whole
    return "".join(c for c in whole if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)


def answer_text(answer: str) -> str:
    """An answer as `printable`, without the thoughts that a thinking model puts before it."""
    whole = printable(answer)
    ends = list(_THOUGHT_END.finditer(whole))
    if ends:
        return whole[ends[-1].end() :]
    return "" if _THOUGHTS.match(whole) else whole


def one_line(text: str, most: int) -> str:
    """At most `most` characters of a model's words on one line, fit to be put into a prompt: no
    fence, tag, role or other mark by which its reader could take it for something else."""
    flat = " ".join(_STRUCTURE.sub(" ", printable(text[: 20 * most])).split())
    for _ in range(_LEADS):
        lead = _LEAD.match(flat)
        flat = flat[lead.end() :] if lead else flat
    flat = flat.rstrip("*~|= \t")
    flat = flat if "`" in flat.strip("`") else flat.strip("`")
    return flat if len(flat) <= most else flat[: most - 3].rsplit(" ", 1)[0] + "..."


def visible(text: str) -> str:
    """The text as a model may see it: `printable`, and a space inside of whatever a chat template
    would take for a control word."""
    return _CONTROL.sub(lambda found: found.group() + " ", printable(text))


def fenced(text: str) -> str:
    """The text between `<data-X>` and `</data-X>`, X being hex digits that it does not hold.

    The same text has the same fence, so that a prompt's beginning stays the same from call to call.
    X comes from a digest of the text, so that whoever writes the text cannot know it either.
    """
    shown = visible(text).strip("\n")
    mark = _mark(shown)
    return f"<data-{mark}>\n{shown}\n</data-{mark}>"


def _mark(text: str) -> str:
    held = text.lower()
    mark = hashlib.sha256(text.encode()).hexdigest()
    while mark[:MARK_DIGITS] in held:
        mark = hashlib.sha256(mark.encode()).hexdigest()
    return mark[:MARK_DIGITS]


def line(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= most else flat[: most - 3].rstrip() + "..."
