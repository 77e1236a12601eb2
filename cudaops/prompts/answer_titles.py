"""`TITLE:` and `WHY:` lines, in whatever markdown they come."""

from __future__ import annotations

import re

from cudaops.prompts.answer_text import one_line

MAX_TITLE = 80
MAX_WHY = 400
"""Characters; more is no title and no line."""
_TAGGED = re.compile(
    r"[\s>#*_/+`.\d)•-]{0,16}(title|why)(?![a-z])[\s*_`]{0,8}[:：–—-]{1,2}[\s*_`]{0,8}(.*)",
    re.IGNORECASE,
)
_BARE = re.compile(r"[\s>#*_/+`.\d)•-]{0,16}(title|why)[\s*_`]{0,8}", re.IGNORECASE)


def title_and_why(answer: str) -> tuple[str, str]:
    """Both as one line each, from the first place that has them; empty where none has."""
    found: dict[str, str] = {}
    waiting = ""
    for line in answer.split("\n"):
        if match := _TAGGED.fullmatch(line[:2000]):
            tag, said = match[1].lower(), match[2].strip(" *_`")
        elif heading := _BARE.fullmatch(line[:200]):
            tag, said = heading[1].lower(), ""
        elif waiting and line.strip():
            tag, said = waiting, line.strip()
        else:
            continue
        waiting = "" if said else tag
        if said:
            found.setdefault(tag, said)
    return one_line(found.get("title", ""), MAX_TITLE), one_line(found.get("why", ""), MAX_WHY)
