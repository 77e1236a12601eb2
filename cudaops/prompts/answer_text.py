"""What a model typed, made plain: line ends, invisible characters, look-alikes, one-liners."""

from __future__ import annotations

import re
from unicodedata import category

from cudaops.program.lexing import byte_text, lex, plain_text

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Unicode categories: control, format (marks of direction, tags), halves, private, unassigned."""
_ENDS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_ALIKE = str.maketrans({
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\uff02", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    "\u2026": "...", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u00d7": "*",
    "\uff08": "(", "\uff09": ")", "\uff0c": ",", "\uff1b": ";", "\uff1a": ":",
})  # fmt: skip
"""Dashes, quotes, spaces and signs that stand for one ASCII spelling each."""
_THOUGHTS = re.compile(r"\A\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_DELIMITERS = re.compile(
    r"`{2,}|~{3,}|<\|[^|<>\n]{0,40}\|>|\[/?(?:INST|SYS)\]|<</?SYS>>|<SPECIAL_\d{1,3}>"
    r"|</?(?:system|user|assistant|human|think|thinking|reasoning|tool|function|instructions?"
    r"|prompt|data|s|bos|eos|start_of_turn|end_of_turn)\b[^<>\n]{0,40}>",
    re.IGNORECASE,
)
"""What chat templates, markdown and our own prompts take for structure."""
_ROLE = re.compile(
    r"(?:system|assistant|user|human|tool|developer|instructions?)\s*:\s*", re.IGNORECASE
)
_MARKUP = "#>*-+_=|`~ \t"
_ROLES = 4
"""Roles before a sentence that are taken off; nobody writes more in earnest."""


def visible(text: str) -> str:
    """Line ends as `\n`, nothing invisible, no halves of characters."""
    whole = _ENDS.sub("\n", text.encode("utf-8", "replace").decode("utf-8"))
    if whole.isascii() and whole.replace("\n", "").replace("\t", "").isprintable():
        return whole
    return "".join(c for c in whole if c in "\n\t" or category(c) not in _INVISIBLE)


def clean(text: str) -> str:
    """An answer made `visible`, without the thoughts that a thinking model puts before it."""
    whole = visible(text)
    ends = list(_THOUGHT_END.finditer(whole))
    if ends:
        return whole[ends[-1].end() :]
    return "" if _THOUGHTS.match(whole) else whole


def ascii_code(source: str) -> str:
    """Code in which look-alikes of ASCII signs are those signs, string literals left alone."""
    if source.isascii():
        return source
    raw = byte_text(source)
    pieces: list[str] = []
    at = 0
    for token in lex(raw).tokens:
        if token.kind in ("string", "char"):
            pieces += [plain_text(raw[at : token.start]).translate(_ALIKE)]
            pieces += [plain_text(raw[token.start : token.end])]
            at = token.end
    return "".join([*pieces, plain_text(raw[at:]).translate(_ALIKE)])


def one_line(text: str, most: int) -> str:
    """At most `most` characters on one line, fit to stand within a prompt: no fence, tag, role or
    other mark by which its reader could take it for something else than a sentence."""
    line = " ".join(_DELIMITERS.sub(" ", clean(text)[: 20 * most]).translate(_ALIKE).split())
    for _ in range(_ROLES):
        line = line.strip(_MARKUP)
        role = _ROLE.match(line)
        line = line[role.end() :] if role else line
    line = line.strip(_MARKUP)
    if len(line) <= most:
        return line
    return line[: most - 3].rsplit(" ", 1)[0] + "..."
