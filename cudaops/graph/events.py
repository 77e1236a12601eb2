"""events.jsonl: one line an event, written before the next thing happens; and the numbers in an
event's `data`, which a page draws from and reads no sentence."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudaops.domain.execution import UNMEASURED_WORDS
from cudaops.domain.judgement import Attempt, Judgement
from cudaops.domain.profile import Profile, Verdict
from cudaops.domain.run import AgentName, Event, Progress, Say, event_data, line_of
from cudaops.graph.state import State

OnEvent = Callable[[Event], None]


def utc_now() -> str:
    """ISO 8601 with milliseconds, UTC."""
    return (
        datetime.datetime.now(datetime.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


class EventLog:
    """Appends events to a file and hands each to a listener. A resumed run continues the file."""

    def __init__(self, path: Path, on_event: OnEvent) -> None:
        self._path = path
        self._on_event = on_event
        self._lock = threading.RLock()  # a listener may emit
        self._seq = _count_lines(path)

    def announcing(self, stage: str, agent: AgentName, before: str = "", **about: Any) -> Say:
        """Makes progress events of what a stage is doing, `before` in front of every line; `about`
        goes with the data of those that have any."""

        def say(progress: Progress) -> None:
            data = event_data(progress)
            line = before + line_of(progress)
            self.emit(stage, agent, "progress", line, {**data, **about} if data else None)

        return say

    def emit(
        self,
        stage: str,
        agent: AgentName,
        kind: str,
        message: str,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Write one event and flush it to the file."""
        with self._lock:
            event = Event.model_validate(
                {
                    "seq": self._seq,
                    "time": utc_now(),
                    "stage": stage,
                    "agent": agent,
                    "kind": kind,
                    "message": message,
                    "data": data or {},
                }
            )
            self._seq += 1
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(event.model_dump_json() + "\n")
            self._on_event(event)


def _count_lines(path: Path) -> int:
    """Whole lines in the file; a line that a kill cut short is ended, so that the next is whole."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("ab") as stream:
            stream.write(b"\n")
    return len(data.splitlines())


def read_events(path: Path) -> list[Event]:
    """All whole events of a file; a line that a kill cut short is left out."""
    events = []
    for line in path.read_text("utf-8").splitlines():
        try:
            events.append(Event.model_validate_json(line))
        except ValueError:
            continue
    return events


def provenance(source: str, device: str) -> str:
    """The qualifier of a number: `modelled for A10`; empty where measured."""
    return UNMEASURED_WORDS.get(source, "").format(device=device)


def stage_data(stage: str, update: State) -> dict[str, Any]:
    """What a finished stage found, small; empty for stages whose line says it all."""
    if stage == "profiler":
        profile = Profile.model_validate(update["profile"])
        found = profile_data(profile, Verdict.model_validate(update["verdict"]))
        return {**found, "baseline": "baseline_profile" in update}
    if stage in ("optimizer", "gather"):
        return _proposed(update)
    if stage == "sandbox":
        return judgement_data(Judgement.model_validate(update["judgement"]))
    if stage == "verify":
        attempt = Attempt.model_validate(update["attempts"][-1])
        return judgement_data(attempt.judgement, attempt)
    return {}


def profile_data(profile: Profile, verdict: Verdict) -> dict[str, Any]:
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


def judgement_data(judgement: Judgement, attempt: Attempt | None = None) -> dict[str, Any]:
    """What was decided, on which gates in the order in which they were reached; with the attempt
    also of which candidate and with what times."""
    kept = {"name", "passed", "quarantined", "summary", "seconds"}
    data = {
        **judgement.model_dump(include=_DECIDED),
        "gates": [gate.model_dump(include=kept) for gate in judgement.gates],
    }
    return data if attempt is None else {**data, **attempt.model_dump(include=_TRIED_FACTS)}


_DECIDED = {"outcome", "reason", "speedup", "speedup_low", "speedup_high", "time_source"}
_TRIED_FACTS = {"iteration", "title", "proposer", "tuned", "baseline_us", "candidate_us"}
