"""The prompts of the four roles, and what is said where an answer cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.domain.hypothesis import FAMILIES, Hypothesis
from cudaops.domain.judgement import Attempt
from cudaops.domain.rewrite import Rewrite
from cudaops.prompts import parts, wording
from cudaops.prompts.briefing import Briefing
from cudaops.prompts.faults import bounded_log, excerpt, named_lines
from cudaops.prompts.prompt import Draft, Prompt, prompt_of
from cudaops.prompts.text import fenced, line, visible
from cudaops.prompts.tried import attempt_text

__all__ = [
    "Prompt",
    "coder_prompt",
    "fixer_prompt",
    "planner_prompt",
    "reask",
    "reflector_prompt",
]

LESSON_CHARACTERS = 200
"""Of a reflector's line."""


def planner_prompt(b: Briefing, wanted: int) -> Prompt:
    """Asks for `wanted` hypotheses as JSON, most promising first."""
    return prompt_of(planner_drafts(b, wanted))


def coder_prompt(b: Briefing, hypothesis: Hypothesis, parents: Sequence[Rewrite] = ()) -> Prompt:
    """Asks for one rewrite. `parents`: one to improve or two to join."""
    return prompt_of(coder_drafts(b, hypothesis, parents))


def fixer_prompt(
    b: Briefing, hypothesis: Hypothesis, source: str, problem: str, log: str
) -> Prompt:
    """Asks for `source` again, mended.

    `problem`: what the compiler or the gate says, in one line. `log`: all of what it said, which is
    cut to what tells something; empty where there is none.
    """
    return prompt_of(fixer_drafts(b, hypothesis, source, problem, log))


def reflector_prompt(b: Briefing, attempt: Attempt) -> Prompt:
    """Asks for one line on what an attempt teaches."""
    return prompt_of(reflector_drafts(b, attempt))


def reask(reason: str) -> str:
    """What is said after an answer that cannot be used; `reason` tells what was wrong with it.

    No prompt of its own: the conversation so far goes before it.
    """
    return reask_draft(reason).part().text


def planner_drafts(b: Briefing, wanted: int) -> tuple[Draft, ...]:
    """The planner's parts."""
    form = {"families": FAMILIES, "max_words": b.max_words}
    task = {"wanted": wanted, "subject": parts.subject(b)}
    return (
        *parts.common(b),
        Draft("answer's form", "planner_format.j2", form, True),
        *parts.evidence(b),
        *parts.incumbent(b, "propose"),
        parts.anti_context(b),
        Draft("task", "planner_task.j2", task),
    )


def coder_drafts(
    b: Briefing, hypothesis: Hypothesis, parents: Sequence[Rewrite] = ()
) -> tuple[Draft, ...]:
    """The coder's parts; an incumbent that is a parent is shown once, as the parent."""
    shown = [{"tuned": wording.tuned_text(p), "source": fenced(p.source)} for p in parents]
    task = {
        "hypothesis": fenced(hypothesis_text(hypothesis)),
        "parents": shown,
        "has_incumbent": b.incumbent is not None,
    }
    is_parent = b.incumbent is not None and b.incumbent.id in {p.id for p in parents}
    return (
        *parts.common(b),
        _code_form(b, "coder"),
        *parts.evidence(b),
        *(() if is_parent else parts.incumbent(b, "write")),
        parts.anti_context(b),
        Draft("task", "coder_task.j2", task),
    )


def fixer_drafts(
    b: Briefing, hypothesis: Hypothesis, source: str, problem: str, log: str
) -> tuple[Draft, ...]:
    """The fixer's parts: without evidence, which is not what is at stake."""
    lines = excerpt(source, named_lines(problem, log))
    task = {
        "hypothesis": fenced(hypothesis_text(hypothesis)),
        "source": fenced(source),
        "problem": fenced(line(problem, 600)),
        "excerpt": fenced(lines) if lines else "",
        "log": fenced(bounded_log(log)) if log.strip() else "",
    }
    return (
        *parts.common(b),
        _code_form(b, "fixer"),
        parts.anti_context(b),
        Draft("task", "fixer_task.j2", task),
    )


def reflector_drafts(b: Briefing, attempt: Attempt) -> tuple[Draft, ...]:
    """The reflector's parts. The anti-context holds what came before the attempt."""
    before = b._replace(attempts=tuple(a for a in b.attempts if a != attempt))
    return (
        *parts.common(b),
        Draft("answer's form", "reflector_format.j2", {"most": LESSON_CHARACTERS}, True),
        parts.anti_context(before),
        Draft("task", "reflector_task.j2", {"attempt": fenced(attempt_text(attempt))}),
    )


def hypothesis_text(hypothesis: Hypothesis) -> str:
    """A hypothesis in lines, its steps numbered."""
    steps = [f"{n}. {line(step, 300)}" for n, step in enumerate(hypothesis.steps, 1)]
    head = f"[{hypothesis.family}] {line(hypothesis.title, 120)}"
    return "\n".join([head, f"Why: {line(hypothesis.why, 400)}", *steps])


def reask_draft(reason: str) -> Draft:
    """The one part of asking again."""
    return Draft("reask", "reask.j2", {"reason": visible(reason).strip()})


def _code_form(b: Briefing, role: str) -> Draft:
    values = {"role": role, "max_words": b.max_words}
    return Draft("answer's form", "coder_format.j2", values, True)
