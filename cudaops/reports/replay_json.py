"""A step of a replay as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from cudaops.domain.run import Event
from cudaops.reports.recorded_calls import RecordedCall, RecordedTool
from cudaops.reports.recording import Damage, Recording
from cudaops.reports.replay import Content, Ending, Judged, Patch, Step, time_source


def json_line(step: Step, *, prompts: bool) -> str:
    """One JSON object on one line, in ASCII: nothing in it acts on a terminal. A number that JSON
    has not, such as an infinite one, stands as text."""
    text = json.dumps(_finite(step_json(step, prompts=prompts)), allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def step_json(step: Step, *, prompts: bool) -> dict[str, Any]:
    """The step as JSON. `prompts`: with every word that the model was asked."""
    head = {"kind": step.kind, "seconds": step.seconds, "iteration": step.iteration}
    return {**head, **_content_json(step.content, prompts)}


def _content_json(content: Content, prompts: bool) -> dict[str, Any]:
    match content:
        case Event():
            return {"event": content.model_dump(mode="json")}
        case RecordedCall():
            return {"number": content.number, **_call_json(content, prompts)}
        case RecordedTool():
            told = {"result": content.result} if prompts else {}
            return {
                "number": content.number,
                "scope": content.scope,
                "tool": content.tool,
                "characters": content.characters,
                **told,
            }
        case Judged():
            return _judged_json(content)
        case Recording():
            return _opening_json(content)
        case Ending():
            return _ending_json(content)
        case Damage() | Patch():
            return content._asdict()


def _call_json(content: RecordedCall, prompts: bool) -> dict[str, Any]:
    return {
        "call": content.call.model_dump(mode="json"),
        "messages": [
            {"role": m.role, "characters": m.characters, **({"text": m.text} if prompts else {})}
            for m in content.messages
        ],
        "answer": content.answer,
        "tool_calls": list(content.tool_calls),
    }


def _judged_json(content: Judged) -> dict[str, Any]:
    attempt = content.iteration.attempt
    return {
        "verdict": content.verdict,
        "attempt": attempt.model_dump(mode="json") if attempt else None,
        "why": content.iteration.why,
        "trials": [trial.model_dump(mode="json") for trial in content.iteration.trials],
    }


def _opening_json(content: Recording) -> dict[str, Any]:
    record, options = content.record, content.options
    return {
        "folder": str(content.folder),
        "run_id": record.run_id if record else None,
        "date": record.date if record else None,
        "cudaops_version": record.cudaops_version if record else None,
        "device": record.device if record else options.device if options else None,
        "time_source": time_source(content),
        "options": options.model_dump(mode="json") if options else None,
    }


def _ending_json(content: Ending) -> dict[str, Any]:
    record = content.record
    if record is None:
        return {
            "finished": False,
            "under_way": content.under_way.stage if content.under_way else None,
        }
    told = {"outcome", "reason", "verify", "model", "loop_time_seconds", "seconds_by_tool"}
    return {"finished": True, "under_way": None, **record.model_dump(mode="json", include=told)}
