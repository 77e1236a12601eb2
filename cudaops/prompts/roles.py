"""The prompts of the four roles, made of a briefing, and how an answer is asked for again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.execution import TimeSource
from cudaops.domain.hypothesis import FAMILIES, Family, Hypothesis
from cudaops.domain.judgement import Attempt, Policy
from cudaops.domain.options import Precision, ProgramRun
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import AccessSummary, ResearchFindings, ValueSummary
from cudaops.domain.search import Branch
from cudaops.domain.workload import Workload
from cudaops.program import techniques
from cudaops.program.clusters import LEAST_CAPABILITY
from cudaops.program.hygiene import ALLOWED_INCLUDES
from cudaops.program.hygiene_ptx import NO_PTX, AuthorsPtx
from cudaops.prompts import wording
from cudaops.prompts.digests import MAX_SENTENCE, MOST_SENTENCES
from cudaops.prompts.hypotheses import MAX_LESSON, MAX_REASON, MAX_STEP
from cudaops.prompts.prompt import PartDraft, Prompt, prompt_of
from cudaops.prompts.surroundings import surroundings
from cudaops.prompts.text import fenced, line, visible

MAX_WORDS = 120
"""Words around the code of an answer. Judgement: room for a reason, none for an essay; every token
of an answer is paid for."""
MOST_LOG_LINES = 40
MOST_LOG_CHARACTERS = 3000
"""Of a log in a prompt. Judgement: several errors with their notes; later ones follow from them."""
_AROUND = 3
"""Source lines shown before and after the one that a message names."""
_MOST_PLACES = 5

_PLACE = re.compile(r"candidate\.cu[:(](\d{1,6})|\bline (\d{1,6})\b|(?<![\w:.])(\d{1,6}):\d{1,6}: ")
"""A line of the rewrite, as compilers, hygiene and plan errors name it."""
_TELLING = re.compile(r"error|fatal|fault|undefined|mismatch|race|refused", re.IGNORECASE)


class Judging(NamedTuple):
    """What decides about a rewrite: the clock, what it is applied to, the tolerances."""

    time_source: TimeSource
    runs: tuple[ProgramRun, ...]
    """How the program is run."""
    baseline_us: tuple[tuple[str, float, float], ...]
    """Workload, the author's time on it by the clock of the search, and its share of the author's
    time over all timed launches, 0-1."""
    policy: Policy


NEEDED: dict[Family, str] = {"async_copy": "cuda_pipeline.h", "tensor_cores": "mma.h"}
"""Families that nobody can write without a header: offered only where that may be included."""


class Briefing(NamedTuple):
    """The state of a run as a prompt shows it.

    Fields of the first group are to stay the same for a whole run: they make the prompts' common
    beginning, which providers cache. The second group changes from call to call.
    """

    program: Program
    kernel: Kernel
    workloads: tuple[Workload, ...]
    device: Device
    instances: tuple[str, ...] = ()
    """Of a template kernel: those that were captured, first the one that takes most time."""
    elsewhere: tuple[Workload, ...] = ()
    """Timed launches of its other instances: a rewrite that serves them is timed on them too."""
    accesses: tuple[AccessSummary, ...] = ()
    """What the author's kernel does with memory."""
    notes_catalogue: str = ""
    """Ids of the expert notes; part of every prompt."""
    transformations: tuple[str, ...] = ()
    """Names of what a hypothesis may ask for in a coder's place."""
    judging: Judging | None = None
    """How a rewrite is timed and judged; None: not said."""
    values: tuple[ValueSummary, ...] = ()
    """Contents of the captured buffers."""
    exemplar: str = ""
    """A rewrite to learn the form from, chosen once for a run: `exemplars.exemplar_for` of the
    baseline's verdict, or what a recipe that applies wrote."""
    memory_text: str = ""
    """What earlier runs learnt of this kernel, as it was when the run began."""
    patterns_text: str = ""
    """What paid on other kernels, as it was when the run began."""
    allow_libraries: bool = False
    allow_ptx: bool = False
    authors_ptx: AuthorsPtx = NO_PTX
    allow_precision: Precision | None = None
    """As in `Policy`."""
    includes: frozenset[str] = ALLOWED_INCLUDES
    """Headers that a rewrite may include where it will run."""
    tool_calls: int = 0
    """Calls of tools that who writes may make before one answer; 0: there are none."""
    max_words: int = MAX_WORDS
    """Words of prose that an answer may hold besides code."""

    profile: Profile | None = None
    """Of the incumbent; of the author's kernel where there is none. None: not profiled."""
    verdict: Verdict | None = None
    """On `profile`."""
    research: ResearchFindings | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """Id and text of the expert notes that the verdict fired."""
    incumbent: Rewrite | None = None
    attempts: tuple[Attempt, ...] = ()
    """Everything judged so far, oldest first."""
    explored: tuple[Branch, ...] = ()
    """Branches of the search under way."""
    bar: float = 1.0
    """Speedup over the author's kernel from which on a rewrite is kept."""
    author: Profile | None = None
    """Of the author's kernel, where `profile` is the incumbent's."""
    refused: Profile | None = None
    """Of the newest candidate, where it was not kept and was timed."""
    waiting: tuple[Hypothesis, ...] = ()
    """Planned before the newest candidate was judged, and not written yet."""

    @property
    def elements(self) -> frozenset[str]:
        """Element types of what the launches are given."""
        held = {a.element for w in self.workloads for a in w.allocations}
        passed = {a.element for w in self.workloads for a in w.arguments if a.kind == "scalar"}
        return frozenset(held | passed)


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


def reasoner_prompt(b: Briefing) -> Prompt:
    """Asks what the passages of `b.research` come to for the kernel."""
    return prompt_of(reasoner_drafts(b))


def reflector_prompt(b: Briefing, attempt: Attempt) -> Prompt:
    """Asks for one line on what an attempt teaches."""
    return prompt_of(reflector_drafts(b, attempt))


def reask(reason: str) -> str:
    """What is said after an answer that cannot be used; `reason` tells what was wrong with it.

    No prompt of its own: the conversation so far goes before it.
    """
    return reask_draft(reason).part().text


def planner_drafts(b: Briefing, wanted: int) -> tuple[PartDraft, ...]:
    """The planner's parts."""
    form = {
        "families": [f for f in FAMILIES if NEEDED.get(f) in (None, *b.includes)],
        "max_words": b.max_words,
        "transformations": b.transformations,
    }
    waiting = fenced("\n".join(map(hypothesis_text, b.waiting))) if b.waiting else ""
    task = {"wanted": wanted, "subject": _subject(b), "waiting": waiting}
    return (
        *_common(b),
        PartDraft("answer's form", "planner_format.j2", form, True),
        *_evidence(b),
        *_research(b),
        *_bar(b),
        *_incumbent(b, "propose"),
        _anti_context(b),
        PartDraft("task", "planner_task.j2", task),
    )


def coder_drafts(
    b: Briefing, hypothesis: Hypothesis, parents: Sequence[Rewrite] = ()
) -> tuple[PartDraft, ...]:
    """The coder's parts; an incumbent that is a parent is shown once, as the parent."""
    shown = [{"tuned": wording.tuned_text(p), "source": fenced(p.source)} for p in parents]
    task = {
        "hypothesis": fenced(hypothesis_text(hypothesis)),
        "parents": shown,
        "has_incumbent": b.incumbent is not None,
    }
    is_parent = b.incumbent is not None and b.incumbent.id in {p.id for p in parents}
    return (
        *_common(b),
        _code_form(b, "coder"),
        *_evidence(b),
        *_bar(b),
        *(() if is_parent else _incumbent(b, "write")),
        _anti_context(b),
        PartDraft("task", "coder_task.j2", task),
    )


def fixer_drafts(
    b: Briefing, hypothesis: Hypothesis, source: str, problem: str, log: str
) -> tuple[PartDraft, ...]:
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
        *_common(b),
        _code_form(b, "fixer"),
        *_bar(b),
        _anti_context(b),
        PartDraft("task", "fixer_task.j2", task),
    )


def reasoner_drafts(b: Briefing) -> tuple[PartDraft, ...]:
    """The reasoner's parts: the kernel, what limits it, the passages by number."""
    assert b.research is not None
    form = {"most": MOST_SENTENCES, "longest": MAX_SENTENCE}
    passages = "\n\n".join(
        f"[{number}] {c.title}, {c.heading}\n{c.text}"
        for number, c in enumerate(b.research.citations, 1)
    )
    return (
        PartDraft("material", "material.j2", {}, True),
        PartDraft("answer's form", "reasoner_format.j2", form, True),
        _kernel(b),
        _verdict(b),
        PartDraft("task", "reasoner_task.j2", {"passages": fenced(passages)}),
    )


def reflector_drafts(b: Briefing, attempt: Attempt) -> tuple[PartDraft, ...]:
    """The reflector's parts, without any source: what the attempt was, how it ended, what came
    before."""
    before = b._replace(attempts=tuple(a for a in b.attempts if a != attempt))
    return (
        PartDraft("material", "material.j2", {}, True),
        *_judging(b),
        PartDraft("answer's form", "reflector_format.j2", {"most": MAX_LESSON}, True),
        *_bar(b),
        _anti_context(before),
        PartDraft("task", "reflector_task.j2", {"attempt": fenced(wording.attempt_text(attempt))}),
    )


def hypothesis_text(hypothesis: Hypothesis) -> str:
    """A hypothesis in lines, its steps numbered."""
    steps = [f"{n}. {line(step, MAX_STEP)}" for n, step in enumerate(hypothesis.steps, 1)]
    head = f"[{hypothesis.family}] {line(hypothesis.title, 120)}"
    return "\n".join([head, f"Why: {line(hypothesis.why, MAX_REASON)}", *steps])


def reask_draft(reason: str) -> PartDraft:
    """The one part of asking again."""
    return PartDraft("reask", "reask.j2", {"reason": visible(reason).strip()})


def _code_form(b: Briefing, role: str) -> PartDraft:
    values = {
        "role": role,
        "max_words": b.max_words,
        "tool_calls": b.tool_calls,
        "techniques": techniques.MOST,
    }
    return PartDraft("answer's form", "coder_format.j2", values, True)


def named_lines(*texts: str) -> tuple[int, ...]:
    """Lines of the rewrite that messages name, in order of appearance, each once."""
    found = (int(next(filter(None, m.groups()))) for t in texts for m in _PLACE.finditer(t))
    return tuple(dict.fromkeys(found))[:_MOST_PLACES]


def excerpt(source: str, lines: Iterable[int]) -> str:
    """Those lines with some around them, numbered, `>` before the ones named; empty where none of
    them is in the source."""
    texts = source.splitlines()
    named = {n for n in lines if 1 <= n <= len(texts)}
    shown = sorted(
        {near for n in named for near in range(n - _AROUND, n + _AROUND + 1)}
        & set(range(1, len(texts) + 1))
    )
    rows = []
    for before, n in zip([0, *shown], shown, strict=False):
        if n != before + 1 and before:
            rows.append("...")
        rows.append(f"{'>' if n in named else ' '} {n:4} {texts[n - 1]}")
    return "\n".join(rows)


def bounded_log(log: str) -> str:
    """The lines of a log that tell something, with those around them; else its end.

    Says how many lines were left out.
    """
    lines = [line.rstrip()[:300] for line in log.splitlines() if line.strip()]
    telling = [i for i, line in enumerate(lines) if _TELLING.search(line)]
    if telling:
        near = {j for i in telling for j in range(i - 1, i + 4) if 0 <= j < len(lines)}
        kept = [lines[i] for i in sorted(near)][:MOST_LOG_LINES]
    else:
        kept = lines[-MOST_LOG_LINES:]
    while kept and sum(map(len, kept)) > MOST_LOG_CHARACTERS:
        kept.pop()
    left_out = len(lines) - len(kept)
    return "\n".join([*kept, f"[{left_out} lines left out]"] if left_out else kept)


def _common(b: Briefing) -> tuple[PartDraft, ...]:
    """What every prompt of a run begins with, byte for byte."""
    rules = {
        "includes": sorted(b.includes),
        "allow_libraries": b.allow_libraries,
        "allow_ptx": b.allow_ptx,
        "allow_precision": b.allow_precision,
        "clusters": b.device.compute_capability >= LEAST_CAPABILITY,
    }
    drafts = [
        PartDraft("rules", "rules.j2", rules, True),
        PartDraft("material", "material.j2", {}, True),
        PartDraft("directives", "directives.j2",
              {"parameters": [p.name for p in b.kernel.parameters],
               "template_parameters": b.kernel.template_parameters,
               "instances": b.instances or (b.kernel.qualified_name,)}, True),
        PartDraft("device", "device.j2",
                  {"facts": wording.device_lines(b.device, b.elements)}, True),
        *_judging(b),
        PartDraft("notes catalogue", "catalogue.j2", {"catalogue": b.notes_catalogue}, True),
        _kernel(b),
        _workloads(b),
        _accesses(b),
        PartDraft("exemplar", "exemplar.j2", {"exemplar": fenced(b.exemplar)}),
        _memory(b),
    ]  # fmt: skip
    wanted = {
        "notes catalogue": b.notes_catalogue,
        "exemplar": b.exemplar if b.incumbent is None else "",  # which shows the form as well
        "memory": b.memory_text or b.patterns_text,
        "accesses": b.accesses,
    }
    return tuple(draft for draft in drafts if wanted.get(draft.name, "always"))


def _evidence(b: Briefing) -> tuple[PartDraft, ...]:
    """What limits the kernel now, and what is known about that: all but the verdict is
    optional, and what is last goes first."""
    drafts: list[PartDraft] = []
    if b.verdict is not None and b.profile is not None:
        drafts += [_verdict(b), _profile(b)]
    drafts += [
        PartDraft(f"note {id_}", "note.j2", {"id": id_, "text": text}, optional=True)
        for id_, text in b.notes
    ]
    return tuple(drafts)


def _research(b: Briefing) -> tuple[PartDraft, ...]:
    """What the knowledge base says, for who plans."""
    if b.research is None or not b.research.citations:
        return ()
    passages = fenced("\n".join(wording.citation_lines(b.research)))
    return (PartDraft("research", "research.j2", {"passages": passages}, optional=True),)


def _judging(b: Briefing) -> tuple[PartDraft, ...]:
    """How a rewrite is timed and judged: the same for a whole run."""
    if b.judging is None:
        return ()
    judging = b.judging
    lines = wording.judging_lines(
        judging.time_source, judging.runs, judging.baseline_us, judging.policy, b.device
    )
    return (PartDraft("judging", "judging.j2", {"facts": lines}, True),)


def _bar(b: Briefing) -> tuple[PartDraft, ...]:
    """What a rewrite must reach now, in the time that decides."""
    if b.judging is None or not b.judging.baseline_us:
        return ()
    line = wording.bar_line(b.judging.baseline_us, b.bar, elsewhere=bool(b.elsewhere))
    return (PartDraft("bar", "bar.j2", {"bar": line}),)


def _incumbent(b: Briefing, verb: str) -> tuple[PartDraft, ...]:
    """The best rewrite so far with its tuned values and its time, if there is one."""
    if b.incumbent is None:
        return ()
    values = {
        "tuned": wording.tuned_text(b.incumbent),
        "standing": _standing(b.incumbent, b.attempts),
        "verb": verb,
        "source": fenced(b.incumbent.source),
    }
    return (PartDraft("incumbent", "incumbent.j2", values),)


def _anti_context(b: Briefing) -> PartDraft:
    """Everything that was tried; in every prompt."""
    tried = wording.tried_text(b.attempts, b.explored)
    return PartDraft("already tried", "tried.j2", {"tried": fenced(tried) if tried else ""})


def _subject(b: Briefing) -> str:
    """What the profile and the verdict are about."""
    return "the author's kernel" if b.incumbent is None else "the incumbent"


def _profiled(b: Briefing) -> str:
    """What was profiled: of a plan of several launches only one, whose time is not the plan's."""
    launches = 1 if b.incumbent is None else len(b.incumbent.plan.launches)
    if launches == 1:
        return _subject(b)
    return f"the most expensive of {_subject(b)}'s {launches} launches"


def _kernel(b: Briefing) -> PartDraft:
    around = surroundings(b.program, b.kernel)
    values = {
        "kernel_name": b.kernel.qualified_name,
        "source": fenced(b.kernel.text),
        "around": fenced(around) if around else "",
    }
    return PartDraft("kernel", "kernel.j2", values, True)


def _workloads(b: Briefing) -> PartDraft:
    times = b.judging.baseline_us if b.judging is not None else ()
    shares = {name: share for name, _, share in times}
    lines = [
        each
        for workload in b.workloads
        for each in wording.workload_lines(workload, b.values, shares.get(workload.id), b.accesses)
    ]
    lines += [wording.elsewhere_line(workload) for workload in b.elsewhere[:_MOST_PLACES]]
    return PartDraft("workloads", "workloads.j2", {"launches": fenced("\n".join(lines))}, True)


def _accesses(b: Briefing) -> PartDraft:
    lines = fenced("\n".join(wording.access_lines(b.accesses)))
    return PartDraft("accesses", "accesses.j2", {"accesses": lines}, True)


def _memory(b: Briefing) -> PartDraft:
    values = {
        "memory": fenced(b.memory_text) if b.memory_text else "",
        "patterns": fenced(b.patterns_text) if b.patterns_text else "",
    }
    return PartDraft("memory", "memory.j2", values, True)


def _verdict(b: Briefing) -> PartDraft:
    assert b.verdict is not None
    assert b.profile is not None
    tools = [*wording.hot_line_texts(b.verdict), *wording.rule_lines(b.verdict)]
    values = {
        "subject": _profiled(b),
        "verdict": b.verdict,
        "provenance": wording.provenance(b.profile),
        "evidence": [wording.evidence_line(e, b.verdict, b.profile) for e in b.verdict.evidence],
        "roofline": wording.roofline_line(b.verdict.roofline, b.profile.duration_us),
        "findings": wording.finding_lines(b.verdict),
        "tools": fenced("\n".join(tools)) if tools else "",
    }
    return PartDraft("verdict", "verdict.j2", values)


def _profile(b: Briefing) -> PartDraft:
    assert b.verdict is not None
    assert b.profile is not None
    beside = {"the author's": b.author} if b.incumbent is not None and b.author else {}
    if b.refused is not None and b.attempts:
        beside[f"#{b.attempts[-1].iteration}, refused"] = b.refused
    values = {
        "subject": _profiled(b),
        "provenance": wording.provenance(b.profile),
        "others": ", ".join(beside),
        "numbers": wording.profile_lines(b.profile, b.verdict.roofline, tuple(beside.values())),
    }
    return PartDraft("profile", "profile.j2", values, optional=True)


def _standing(rewrite: Rewrite, attempts: tuple[Attempt, ...]) -> str:
    """Time and speedup with which a rewrite was kept; empty where no attempt was this one."""
    kept = next((a for a in reversed(attempts) if a.rewrite_id == rewrite.id), None)
    if kept is None or kept.candidate_us is None:
        return ""
    speedup = kept.judgement.speedup
    times = f", {speedup:.2f}x the author's speed" if speedup is not None else ""
    source = kept.judgement.time_source
    return f"{wording.number(kept.candidate_us)} us{times}" + (f" ({source})" if source else "")
