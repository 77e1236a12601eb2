"""Run folders for the replay: what a run with a model leaves behind, written by the records that
write it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cudaops.domain.judgement import Attempt
from cudaops.domain.model_use import ModelCall, ModelRole, ModelUse, Price, RoleUse, TokenCount
from cudaops.domain.run import Event, RunRecord
from cudaops.models.journal import CallEntry, Journal
from tests.reports import records

BEGAN = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
MODEL = "nvidia/llama-3.3-nemotron-super-49b-v1.5"
PATCH = "--- a/naive_matmul.cu\n+++ b/naive_matmul.cu\n@@ -1 +1 @@\n-slow();\n+\tfast();\n"
ANSWER = "TITLE: tiles\nWHY: reuse\n```cuda\n" + "\n".join(f"line {n}" for n in range(20)) + "\n```"
SYSTEM = "You write CUDA kernels."
HUMAN = "The kernel:\n__global__ void k() {}\n"
NOTE = "Tile through shared memory.\nThen through registers."


def at(seconds: float) -> str:
    """So many seconds after the run began."""
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def event(seq: int, seconds: float, stage: str, kind: str, message: str, **data: Any) -> Event:
    agent = "supervisor" if stage == "accepted" else stage
    return Event.model_validate(
        {
            "seq": seq, "time": at(seconds), "stage": stage, "agent": agent, "kind": kind,
            "message": message, "data": data,
        }
    )  # fmt: skip


def events() -> list[Event]:
    """Two candidates; the run was killed in the sandbox, and resumed two days later."""
    two_days = 48 * 3600.0
    told = [
        (0.0, "intake", "started", "reading naive_matmul.cu and running it once"),
        (4.0, "intake", "finished", "naive_matmul, 1 workload captured"),
        (4.0, "profiler", "started", "profiling the kernel"),
        (9.0, "profiler", "finished", f"{records.verdict().summary} (2 metrics, modelled)"),
        (9.0, "optimizer", "started", "writing and tuning a rewrite"),
        (20.0, "optimizer", "progress", "proposes tiles"),
        (21.0, "optimizer", "finished", "tiles, nothing to tune"),
        (21.0, "sandbox", "started", "compiling, verifying and timing it"),
        (two_days, "supervisor", "notice", "resumed"),
        (two_days + 1, "sandbox", "started", "compiling, verifying and timing it"),
        (two_days + 3, "sandbox", "finished", "3 gates, rejected"),
        (two_days + 4, "verify", "finished", "iteration 1: rejected, speedup: 1.01 < 1.2"),
        (two_days + 5, "optimizer", "started", "writing and tuning a rewrite"),
        (two_days + 9, "optimizer", "finished", "best of 2 is BM=128"),
        (two_days + 10, "verify", "finished", "iteration 2: provisional, clears the bar"),
        (two_days + 10, "accepted", "finished", "tiles is the best so far"),
        (two_days + 11, "report", "finished", "tiles, 5.56x modelled"),
    ]
    return [event(seq, *line) for seq, line in enumerate(told)]


def use() -> ModelUse:
    tokens = TokenCount(input_tokens=13_624, cached_input_tokens=5_900, output_tokens=1_302)
    price = Price(
        input_usd_per_mtok=0.4, output_usd_per_mtok=0.4, source="set by the user, 2026-11-20"
    )
    roles: dict[ModelRole, RoleUse] = {
        "planner": RoleUse(calls=1, tokens=TokenCount(input_tokens=6_812), cost_usd=0.0027),
        "coder": RoleUse(calls=1, tokens=TokenCount(output_tokens=1_240), cost_usd=None),
    }
    return ModelUse(
        model=MODEL, calls=2, tokens=tokens, cost_usd=price.cost_usd(tokens), price=price,
        seconds=14.2, by_role=roles, fell_back="--max-cost 0.01 is spent",
    )  # fmt: skip


def attempts() -> tuple[Attempt, Attempt]:
    first = records.attempt("rejected").model_copy(
        update={"proposer": f"llm:{MODEL}", "family": "tiling"}
    )
    second = records.attempt("provisional", 2)
    return first, second.model_copy(update={"tuned": {"BM": 128}})


def record(folder: Path) -> RunRecord:
    verify = records.provisional().verify.model_copy(update={"iteration_accepted": 2})
    return records.provisional(str(folder)).model_copy(
        update={"attempts": attempts(), "verify": verify, "model": use()}
    )


def call(role: ModelRole, started: float, seconds: float, scope: str = "01") -> ModelCall:
    return ModelCall(
        scope=scope, role=role, model=MODEL, key="0123456789abcdef", started=at(started),
        seconds=seconds, cost_usd=0.0027, tries=2, outcome="answered",
        tokens=TokenCount(input_tokens=6_812, cached_input_tokens=5_900, output_tokens=1_240),
        problem="429, asked again",
    )  # fmt: skip


def write(folder: Path, *, finished: bool = True) -> Path:
    """A run folder as the graph and the journal of calls leave it."""
    folder.mkdir(parents=True)
    lines = [e.model_dump_json() + "\n" for e in events()]
    (folder / "events.jsonl").write_text("".join(lines if finished else lines[:8]), "utf-8")
    run = record(folder)
    if finished:
        (folder / "run.json").write_text(run.model_dump_json(indent=2), "utf-8")
        (folder / "best.patch").write_text(PATCH, "utf-8")
        for attempt in run.attempts:
            _write_iteration(folder / "iterations" / f"{attempt.iteration:02d}", attempt)
    (folder / "state").mkdir()
    (folder / "state" / "options.json").write_text(run.options.model_dump_json(), "utf-8")
    write_journal(folder)
    return folder


def write_journal(folder: Path, secrets: tuple[str, ...] = ()) -> None:
    """Three entries, by the journal that runs write."""
    journal = Journal(folder / "state" / "calls", secrets)
    asked = ({"role": "system", "content": SYSTEM}, {"role": "human", "content": HUMAN})
    tool = {"name": "read_note", "args": {"note": "l1-load-throughput"}, "id": "call-1"}
    planned = '[{"family": "tiling"}]'
    journal.record(CallEntry(call=call("planner", 9.5, 3.0), messages=asked, answer=planned))
    journal.record_tool("01", "read_note", {"note": "l1-load-throughput"}, NOTE)
    told = (
        *asked,
        {"role": "ai", "content": "", "tool_calls": [tool]},
        {"role": "tool", "content": NOTE, "tool_call_id": "call-1"},
    )
    made = call("coder", 12.5, 6.0)
    message = {"type": "ai", "data": {"content": ANSWER}}
    journal.record(CallEntry(call=made, messages=told, answer=ANSWER, message=message))


def _write_iteration(folder: Path, attempt: Attempt) -> None:
    folder.mkdir(parents=True)
    rewrite = records.rewrite().model_dump(mode="json")
    trials = [
        {"values": {"BM": 64}, "time_us": 240.0, "failure": None},
        {"values": {"BM": 128}, "time_us": 223.0, "failure": None},
        {"values": {"BM": 256}, "time_us": None, "failure": "too much shared memory"},
    ]
    gates = [gate.model_dump(mode="json") for gate in attempt.judgement.gates]
    for name, value in (
        ("attempt.json", attempt.model_dump(mode="json")),
        ("trials.json", trials if attempt.iteration == 2 else []),
        ("evaluation.json", {"rewrite": rewrite, "gates": gates}),
    ):
        (folder / name).write_text(json.dumps(value, indent=2), "utf-8")
    (folder / "candidate.cu").write_text(records.rewrite().source, "utf-8")
