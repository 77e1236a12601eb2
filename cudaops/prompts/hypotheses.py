"""Planners' and reflectors' answers: hypotheses as JSON, a lesson in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator

from cudaops.domain.hypothesis import FAMILIES, Family, Hypothesis
from cudaops.prompts.answers import MAX_ANSWER, MAX_TITLE, Unusable
from cudaops.prompts.text import answer_text, fenced_blocks, one_line, prose

MAX_LESSON = 200
NO_REASON = "no reason given"
MAX_REASON = 500
_MAX_STEPS = 12
MAX_STEP = 600
_MAX_SPEEDUP = 1000.0
"""A larger guess is none."""

_NUMBER = re.compile(r"(?<![\w.])(\d{1,6}(?:\.\d{1,6})?)\s{0,4}(%?)")
_BEGINS = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
_AFTER = re.compile(r"[ \t]*[^\s/#(]")
"""What follows a value on its line and is neither a remark nor the end of the line."""
_LABEL = re.compile(r"(?:lesson|learn(?:t|ed)|takeaway|answer|note|memo)\b\s*[:：-]\s*", re.I)
_FORM = (
    "Send one fenced ```json block and nothing else: a list of objects, each with "
    '"family", "title", "why", "steps" and "expected_speedup".'
)


class _Planned(BaseModel):
    """One object of a planner's answer; what it may leave out or spell otherwise is put right."""

    title: str = Field(min_length=1)
    family: Family = "other"
    why: str = ""
    steps: tuple[str, ...] = ()
    transformation: str = ""
    expected_speedup: float | None = None

    @field_validator("transformation", mode="before")
    @classmethod
    def _transformation(cls, value: Any) -> str:
        return re.sub(r"\W+", "_", value[:80].strip().lower()) if isinstance(value, str) else ""

    @field_validator("title", mode="before")
    @classmethod
    def _title(cls, value: Any) -> Any:
        return one_line(value, MAX_TITLE) if isinstance(value, str) else value

    @field_validator("why", mode="before")
    @classmethod
    def _why(cls, value: Any) -> str:
        return one_line(value, MAX_REASON) if isinstance(value, str) else ""

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, value: Any) -> Family:
        name = re.sub(r"\W+", "_", value[:80].strip().lower()) if isinstance(value, str) else ""
        return next((family for family in FAMILIES if family == name), "other")

    @field_validator("steps", mode="before")
    @classmethod
    def _steps(cls, value: Any) -> tuple[str, ...]:
        listed = value.split("\n") if isinstance(value, str) else value
        written = [s for s in listed if isinstance(s, str)] if isinstance(listed, list) else []
        return tuple([said for s in written if (said := one_line(s, MAX_STEP))][:_MAX_STEPS])

    @field_validator("expected_speedup", mode="before")
    @classmethod
    def _speedup(cls, value: Any) -> float | None:
        """The first number of `2`, `"2x"`, `"about 1.5-2x"`; a percentage is none."""
        if isinstance(value, str):
            match = _NUMBER.search(value[:200])
            value = float(match[1]) if match and not match[2] else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if 0 < value <= _MAX_SPEEDUP else None


_PLAN: TypeAdapter[list[_Planned]] = TypeAdapter(list[_Planned])


def read_hypotheses(
    text: str, wanted: int, transformations: Collection[str] = ()
) -> tuple[Hypothesis, ...] | Unusable:
    """Up to `wanted` hypotheses, in the answer's order, without repetitions; none where the answer
    is `[]` or `{"nothing": "..."}`.

    `transformations`: names that one may ask for; a name that is none of them asks for a coder. An
    unknown family is `other`. Of a speedup given as a range the lower end counts, and a
    percentage counts as none. `Unusable` (`malformed`, `no_code` where there is no JSON at all)
    where the answer is not one list of objects with titles.
    """
    answer = answer_text(text[:MAX_ANSWER])
    texts = [b.text for b in fenced_blocks(answer) if b.text.lstrip()[:1] in ("[", "{")] or [answer]
    try:
        planned = _planned(texts[0])
        if len(texts) > 1:
            raise ValueError(f"{len(texts)} blocks hold JSON")
    except (ValueError, RecursionError) as error:
        problem = _fault(error)
        return Unusable(
            "malformed" if "{" in answer or "[" in answer else "no_code",
            f"No hypothesis could be read from it: {problem}. {_FORM}",
            problem,
        )
    found: dict[tuple[str, str], Hypothesis] = {}
    for each in planned:
        known = each.transformation in transformations
        hypothesis = Hypothesis(
            **each.model_dump(exclude={"transformation"}),
            transformation=each.transformation if known else "",
        )
        found.setdefault((hypothesis.family, hypothesis.title.lower()), hypothesis)
    return tuple(found.values())[: max(wanted, 0)]


def read_nothing(text: str) -> str:
    """Why nothing is worth trying, of an answer that names no hypothesis."""
    answer = answer_text(text[:MAX_ANSWER])
    texts = [b.text for b in fenced_blocks(answer) if b.text.lstrip()[:1] in ("[", "{")] or [answer]
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        said = _without_hypothesis(_json(texts[0])) or {}
        reasons = [said[name] for name in ("nothing", "why", "reason") if name in said]
        lines = (one_line(r, MAX_REASON) for r in reasons if isinstance(r, str) and r)
        return next(lines, NO_REASON)
    return NO_REASON


def read_lesson(text: str) -> str:
    """The first line that says something, without markdown, at most MAX_LESSON characters, fit to
    are in later prompts; empty where nothing is left."""
    answer = answer_text(text[:MAX_ANSWER])
    answer = prose(answer).strip() or "\n".join(block.text for block in fenced_blocks(answer))
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        answer = str(json.loads(answer, strict=False)["lesson"])
    for line in (line for line in answer.split("\n") if re.search(r"\w", line)):
        said = one_line(_LABEL.sub("", one_line(line, 4 * MAX_LESSON), count=1), MAX_LESSON)
        said = said.strip("\"'` ")
        if len(re.findall(r"\w", said)) > 1:
            return said
    return ""


def _planned(text: str) -> list[_Planned]:
    """Raises ValueError (ValidationError is one) or RecursionError."""
    value = _json(text)
    if _without_hypothesis(value) is not None:
        return []
    if isinstance(value, dict):
        value = value.get("hypotheses", [value])
    return _PLAN.validate_python(value)


def _without_hypothesis(value: Any) -> dict[str, Any] | None:
    """`{"nothing": why}`, alone or in a list."""
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(alone, dict) and "nothing" in alone and not alone.keys() & {"title", "family"}:
        return alone if not alone.get("hypotheses") else None
    return None


def _json(text: str) -> Any:
    """The one JSON value of a text, with sentences before or after it where no line of them begins
    as another value would. Raises ValueError or RecursionError."""
    begins = list(_BEGINS.finditer(text))
    if not begins:
        return json.loads(text, strict=False)
    value, end = json.JSONDecoder(strict=False).raw_decode(text, begins[0].end() - 1)
    if _BEGINS.search(text, end) or _AFTER.match(text, end):
        return json.loads(text, strict=False)
    return value


def _fault(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = [f"object {p + 1}" if isinstance(p, int) else f'"{p}"' for p in first["loc"]]
        return " ".join([*place, first["msg"].lower()])
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}"
    return str(error) if isinstance(error, ValueError) else "it is nested too deep"
