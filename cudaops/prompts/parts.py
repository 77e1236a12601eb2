"""The parts that several roles' prompts share, each a template with its values."""

from __future__ import annotations

from cudaops.domain.judgement import Attempt
from cudaops.domain.rewrite import Rewrite
from cudaops.prompts import wording
from cudaops.prompts.briefing import Briefing
from cudaops.prompts.prompt import Draft
from cudaops.prompts.surroundings import surroundings
from cudaops.prompts.text import fenced
from cudaops.prompts.tried import tried_text


def common(b: Briefing) -> tuple[Draft, ...]:
    """What every prompt of a run begins with, byte for byte."""
    rules = {
        "includes": sorted(b.includes),
        "allow_libraries": b.allow_libraries,
        "allow_precision": b.allow_precision,
    }
    drafts = [
        Draft("rules", "rules.j2", rules, True),
        Draft("directives", "directives.j2",
              {"parameters": [p.name for p in b.kernel.parameters]}, True),
        Draft("device", "device.j2", {"facts": wording.device_lines(b.device)}, True),
        Draft("notes catalogue", "catalogue.j2", {"catalogue": b.notes_catalogue}, True),
        _kernel(b),
        _workloads(b),
        Draft("exemplar", "exemplar.j2", {"exemplar": fenced(b.exemplar)}, True),
        _memory(b),
    ]  # fmt: skip
    wanted = {
        "notes catalogue": b.notes_catalogue,
        "exemplar": b.exemplar,
        "memory": b.memory_text or b.patterns_text,
    }
    return tuple(draft for draft in drafts if wanted.get(draft.name, "always"))


def evidence(b: Briefing) -> tuple[Draft, ...]:
    """What limits the kernel now, and what is known about that: all but the verdict is
    optional, and what is last goes first."""
    drafts: list[Draft] = []
    if b.verdict is not None and b.profile is not None:
        drafts += [_verdict(b), _profile(b)]
    drafts += [
        Draft(f"note {id_}", "note.j2", {"id": id_, "text": text}, optional=True)
        for id_, text in b.notes
    ]
    if b.research is not None and b.research.citations:
        passages = fenced("\n".join(wording.citation_lines(b.research)))
        drafts.append(Draft("research", "research.j2", {"passages": passages}, optional=True))
    return tuple(drafts)


def incumbent(b: Briefing, verb: str) -> tuple[Draft, ...]:
    """The best rewrite so far with its tuned values and its time, if there is one."""
    if b.incumbent is None:
        return ()
    values = {
        "tuned": wording.tuned_text(b.incumbent),
        "standing": _standing(b.incumbent, b.attempts),
        "verb": verb,
        "source": fenced(b.incumbent.source),
    }
    return (Draft("incumbent", "incumbent.j2", values),)


def anti_context(b: Briefing) -> Draft:
    """Everything that was tried; in every prompt."""
    tried = tried_text(b.attempts, b.explored)
    return Draft("already tried", "tried.j2", {"tried": fenced(tried) if tried else ""})


def subject(b: Briefing) -> str:
    """What the profile and the verdict are about."""
    return "the author's kernel" if b.incumbent is None else "the incumbent"


def _kernel(b: Briefing) -> Draft:
    around = surroundings(b.program, b.kernel)
    values = {
        "kernel_name": b.kernel.qualified_name,
        "source": fenced(b.kernel.text),
        "around": fenced(around) if around else "",
    }
    return Draft("kernel", "kernel.j2", values, True)


def _workloads(b: Briefing) -> Draft:
    lines = [each for workload in b.workloads for each in wording.workload_lines(workload)]
    return Draft("workloads", "workloads.j2", {"launches": fenced("\n".join(lines))}, True)


def _memory(b: Briefing) -> Draft:
    values = {
        "memory": fenced(b.memory_text) if b.memory_text else "",
        "patterns": fenced(b.patterns_text) if b.patterns_text else "",
    }
    return Draft("memory", "memory.j2", values, True)


def _verdict(b: Briefing) -> Draft:
    assert b.verdict is not None
    assert b.profile is not None
    tools = [*wording.hot_line_texts(b.verdict), *wording.rule_lines(b.verdict)]
    values = {
        "subject": subject(b),
        "verdict": b.verdict,
        "provenance": wording.provenance(b.profile),
        "evidence": [wording.evidence_line(e, b.verdict, b.profile) for e in b.verdict.evidence],
        "roofline": wording.roofline_line(b.verdict.roofline, b.profile.duration_us),
        "findings": wording.finding_lines(b.verdict),
        "tools": fenced("\n".join(tools)) if tools else "",
    }
    return Draft("verdict", "verdict.j2", values)


def _profile(b: Briefing) -> Draft:
    assert b.verdict is not None
    assert b.profile is not None
    values = {
        "subject": subject(b),
        "provenance": wording.provenance(b.profile),
        "numbers": wording.profile_lines(b.profile, b.verdict.roofline),
    }
    return Draft("profile", "profile.j2", values, optional=True)


def _standing(rewrite: Rewrite, attempts: tuple[Attempt, ...]) -> str:
    """Time and speedup with which a rewrite was kept; empty where no attempt was this one."""
    kept = next((a for a in reversed(attempts) if a.rewrite_id == rewrite.id), None)
    if kept is None or kept.candidate_us is None:
        return ""
    speedup = kept.judgement.speedup
    times = f", {speedup:.2f}x the author's speed" if speedup is not None else ""
    source = kept.judgement.time_source
    return f"{wording.number(kept.candidate_us)} us{times}" + (f" ({source})" if source else "")
