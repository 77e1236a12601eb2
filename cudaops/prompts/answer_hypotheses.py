"""Planners' and reflectors' answers: hypotheses from JSON, a lesson in one line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from cudaops.domain.hypothesis import FAMILIES, Family, Hypothesis
from cudaops.prompts.answer_blocks import fenced
from cudaops.prompts.answer_json import json_values
from cudaops.prompts.answer_kinds import Unusable
from cudaops.prompts.answer_text import clean, one_line
from cudaops.prompts.answer_titles import MAX_TITLE

MAX_ANSWER = 1_000_000
MAX_LESSON = 200
_MAX_WHY = 500
_MAX_STEPS = 12
_MAX_STEP = 300
_MAX_READ = 64
"""Objects that are looked at."""
_MAX_SPEEDUP = 1000.0
"""A larger guess is none."""

_LISTS = ("hypotheses", "ideas", "candidates", "plan", "strategies", "proposals")
_TITLES = ("title", "name", "hypothesis", "idea", "strategy")
_WHYS = ("why", "reason", "rationale", "because", "explanation")
_STEPS = ("steps", "plan", "how", "actions", "changes")
_NUMBER = re.compile(r"(?<![\w.])(\d{1,6}(?:\.\d{1,6})?)\s{0,4}(%?)")
_LABEL = re.compile(r"(?:lesson|learn(?:t|ed)|takeaway|answer|note|memo)\b\s*[:：-]\s*", re.I)
_QUOTES = "\"'` "


def read_hypotheses(text: str, wanted: int) -> tuple[Hypothesis, ...] | Unusable:
    """Up to `wanted` hypotheses, in the answer's order, without repetitions.

    An unknown family is `other`; one without a title is left out. Of a speedup given as a range the
    lower end counts, and a percentage counts as none. `Unusable` (`malformed`, `no_code` where
    there is no JSON at all) where nothing is left.
    """
    answer = clean(text[:MAX_ANSWER])
    values = _values(answer)
    found: dict[tuple[str, str], Hypothesis] = {}
    for value in values:
        hypothesis = _hypothesis(value)
        if hypothesis is not None:
            found.setdefault((hypothesis.family, hypothesis.title.lower()), hypothesis)
    if found:
        return tuple(found.values())[: max(wanted, 0)]
    problem = "its objects have no `title`" if values else "there is no JSON in it that can be read"
    return Unusable(
        "malformed" if "{" in answer else "no_code",
        f"No hypothesis could be read from it: {problem}. Send one fenced ```json block and "
        'nothing else: a list of objects, each with "family", "title", "why", "steps" and '
        '"expected_speedup".',
        problem,
    )


def read_lesson(text: str) -> str:
    """The first line that says something, without markdown, at most MAX_LESSON characters, fit to
    stand in later prompts; empty where nothing is left."""
    answer = clean(text[:MAX_ANSWER])
    blocks, prose = fenced(answer)
    for value in json_values(answer)[:1]:
        if isinstance(value, dict) and isinstance(value.get("lesson"), str):
            prose = value["lesson"]
    for line in (prose if prose.strip() else "\n".join(b.text for b in blocks)).split("\n"):
        said = one_line(_LABEL.sub("", one_line(line, 4 * MAX_LESSON), count=1), MAX_LESSON)
        said = said.strip(_QUOTES)
        if len(re.findall(r"\w", said)) > 1:
            return said
    return ""


def _values(answer: str) -> list[dict[str, Any]]:
    """Objects that may be hypotheses: from fenced blocks where any has them, else from the text."""
    blocks, _ = fenced(answer)
    for texts in ([b.text for b in blocks], [answer]):
        found = [v for text in texts for value in json_values(text) for v in _objects(value, 0)]
        if found:
            return found[:_MAX_READ]
    return []


def _objects(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if isinstance(value, list) and depth < 3:
        for one in value[:_MAX_READ]:
            yield from _objects(one, depth + 1)
    elif isinstance(value, dict):
        held = next((value[k] for k in _LISTS if _is_list_of_objects(value.get(k))), None)
        if held is not None and depth < 3:
            yield from _objects(held, depth + 1)
        else:
            yield value


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(v, dict) for v in value)


def _hypothesis(value: dict[str, Any]) -> Hypothesis | None:
    title = one_line(_text(value, _TITLES), MAX_TITLE)
    if not title:
        return None
    return Hypothesis(
        family=_family(value.get("family")),
        title=title,
        why=one_line(_text(value, _WHYS), _MAX_WHY),
        steps=_steps(next((value[k] for k in _STEPS if k in value), ())),
        expected_speedup=_speedup(value.get("expected_speedup", value.get("speedup"))),
    )


def _text(value: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((value[k] for k in keys if isinstance(value.get(k), str) and value[k].strip()), "")


def _family(value: Any) -> Family:
    name = re.sub(r"\W+", "_", value[:80].strip().lower()) if isinstance(value, str) else ""
    return next((family for family in FAMILIES if family == name.strip("_")), "other")


def _steps(value: Any) -> tuple[str, ...]:
    listed = value.split("\n") if isinstance(value, str) else value
    if not isinstance(listed, list):
        return ()
    lines = (one_line(step, _MAX_STEP) for step in listed if isinstance(step, str))
    return tuple([line for line in lines if line][:_MAX_STEPS])


def _speedup(value: Any) -> float | None:
    """The first number of `2`, `"2x"`, `"about 1.5-2x"`."""
    if isinstance(value, str):
        match = _NUMBER.search(value[:200])
        value = float(match[1]) if match and not match[2] else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 < number <= _MAX_SPEEDUP else None
