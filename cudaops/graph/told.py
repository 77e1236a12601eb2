"""Numbers for machines in an event's `data`: a page draws from them and reads no sentence."""

from __future__ import annotations

import re
from typing import Any, get_args

from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.judgement import Attempt, GateName, Judgement
from cudaops.domain.profile import Profile, Verdict
from cudaops.graph.state import State

_BRANCH = r"(?:branch \d+: )?"
_TRIED = re.compile(_BRANCH + r"tried (?P<values>\w+=.*): (?P<time>\d+(?:\.\d+)?) us\b")
_VALUE = re.compile(r"(\w+)=(-?\d+)")
_GATES = "|".join(get_args(GateName))
_GATE = re.compile(_BRANCH + rf"(?P<gate>{_GATES}) (?P<word>passed|FAILED|QUARANTINED): ")


def provenance(source: str, device: str) -> str:
    """What must stand behind a number (design D5): `modelled for A10`; empty where measured."""
    return UNMEASURED_WORDS.get(source, "").format(device=device)


def spoken(line: str) -> dict[str, Any]:
    """What a line of a tool says in numbers: a configuration with its time, or a gate's outcome.

    Tools speak in MCP progress messages, which carry text alone. Empty for any other line.
    """
    tried = _TRIED.match(line)
    if tried is not None:
        values = {name: int(value) for name, value in _VALUE.findall(tried["values"])}
        return {"values": values, "time_us": float(tried["time"])}
    gate = _GATE.match(line)
    return {} if gate is None else {"gate": gate["gate"], "outcome": gate["word"].lower()}


def found(stage: str, update: State) -> dict[str, Any]:
    """What a finished stage found, small; empty for stages whose line says it all."""
    if stage == "profiler":
        profile = Profile.model_validate(update["profile"])
        told = profiled(profile, Verdict.model_validate(update["verdict"]))
        return {**told, "baseline": "baseline_profile" in update}
    if stage in ("optimizer", "gather"):
        return _proposed(update)
    if stage == "sandbox":
        return judged(Judgement.model_validate(update["judgement"]))
    if stage == "verify":
        attempt = Attempt.model_validate(update["attempts"][-1])
        return judged(attempt.judgement, attempt)
    return {}


def profiled(profile: Profile, verdict: Verdict) -> dict[str, Any]:
    """The verdict with its evidence, and the time of the launch."""
    return {
        **verdict.model_dump(
            mode="json", include={"bottleneck_class", "subtype", "summary", "relief"}
        ),
        "evidence": [
            one.model_dump(include={"label", "value", "unit", "comparison", "threshold"})
            for one in verdict.evidence
        ],
        "time_us": profile.duration_us,
        "provenance": provenance(profile.source, profile.device),
    }


def _proposed(update: State) -> dict[str, Any]:
    proposal = update.get("proposal")
    if not proposal:
        return {}
    return {
        "title": proposal["title"],
        "proposer": proposal["proposer"],
        "why": proposal["why"],
        "trials": update.get("trials", []),
    }


def judged(judgement: Judgement, attempt: Attempt | None = None) -> dict[str, Any]:
    """What was decided, on which gates in the order in which they were reached; with the attempt
    also of which candidate and with what times."""
    kept = {"name", "passed", "quarantined", "summary", "seconds"}
    told = {
        **judgement.model_dump(include=_DECIDED),
        "gates": [gate.model_dump(include=kept) for gate in judgement.gates],
    }
    return told if attempt is None else {**told, **attempt.model_dump(include=_TRIED_FACTS)}


_DECIDED = {"outcome", "reason", "speedup", "speedup_low", "speedup_high", "time_source"}
_TRIED_FACTS = {"iteration", "title", "proposer", "tuned", "baseline_us", "candidate_us"}
