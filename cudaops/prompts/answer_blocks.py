"""Where in an answer its code stands: fenced blocks, or a bare text with sentences around it."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_BLOCKS = 64
"""More blocks than an answer has; what follows is not looked at."""

_FENCE = re.compile(r"[ \t>]{0,12}(?:[-*+]|\d{1,2}\.)?[ \t]{0,8}(`{3,}|~{3,})[ \t]*([^`\n]*)")
_LANGUAGES = frozenset({"cuda", "cu", "cpp", "c++", "c", "cc", "cxx", "json"})
_FIRST = re.compile(
    r"\s*(?://|/\*|#\s*(?:include|define|undef|pragma|if|ifdef|ifndef)\b"
    r"|(?:#\s*)?@(?:launch|tune|scratch|requires)\b"
    r"|__\w+__\b|template\s*<|(?:extern|static|constexpr|const|using|typedef|struct|namespace"
    r"|inline|class|union|enum|float|double|int|unsigned|void|auto|char|bool|half)\s+[\w\"*])"
)
"""How a line of CUDA at file scope can begin."""
_LAST = re.compile(r".*(?:[;}]|\*/)\s*(?://.*)?|\s*(?://|#).*")


class Block(NamedTuple):
    """One fenced block."""

    info: str
    """First word after the opening fence, in lower case: `cuda`, `json`; empty without."""
    text: str
    closed: bool
    """Whether its closing fence is there."""


def fenced(text: str) -> tuple[tuple[Block, ...], str]:
    """The blocks of a cleaned answer, and the sentences between them."""
    blocks: list[Block] = []
    prose: list[str] = []
    info, fence, lines = "", "", prose
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        word = match[2].split()[0].lower().strip("{}.:,") if match and match[2].strip() else ""
        opens = match and (not fence or word in _LANGUAGES)
        closes = match and fence and match[1].startswith(fence) and not match[2].strip()
        if (opens or closes) and fence:
            blocks.append(Block(info, "\n".join(lines), bool(closes)))
            fence, lines = "", prose
        if match and opens and len(blocks) < MAX_BLOCKS:
            info, fence, lines = word, match[1], []
        elif not closes:
            lines.append(line)
    if fence:
        blocks.append(Block(info, "\n".join(lines), False))
    return tuple(blocks), "\n".join(prose)


def bare(text: str) -> str:
    """The lines from the first that can begin CUDA to the last that can end it; empty without."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _FIRST.match(line[:200])), len(lines))
    last = next(
        (i for i in range(len(lines) - 1, first - 1, -1) if _LAST.fullmatch(lines[i][-200:])), -1
    )
    return "\n".join(lines[first : last + 1])


def is_diff(block: Block) -> bool:
    """Whether a block holds changes to a text and not a text."""
    if block.info in ("diff", "patch"):
        return True
    return any(line.startswith(("@@ -", "--- a/", "+++ b/")) for line in block.text.split("\n"))
