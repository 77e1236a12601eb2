"""`cudaops verify`: a rewrite that somebody else wrote, judged like any other."""

from __future__ import annotations

import time
from pathlib import Path

from cudaops.agents.supervisor import attempt_of
from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Attempt, Judgement
from cudaops.domain.profile import Profile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError, PlanError
from cudaops.gates.evaluate import evaluate
from cudaops.graph.events import EventLog, judgement_data
from cudaops.graph.folder import write_iteration
from cudaops.graph.state import State
from cudaops.program.launches import find_launches
from cudaops.program.lexing import byte_text, lex
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.program.splice import spliced_rewrite
from cudaops.program.whole_program import replaced_kernels
from cudaops.sandbox.stripping import strip
from cudaops.sandbox.workbench import Workbench


def judge_candidate(bench: Workbench, candidate: Path, events: EventLog) -> State:
    """Evaluate and judge the file against the open program.

    Raises InputError where the file is neither device source with directives nor a program.
    """
    started = time.monotonic()
    rewrite = read_candidate(bench, candidate)
    launched = ", ".join(step.kernel for step in rewrite.plan.launches)
    line = f"judging {candidate.name}: {launched} in the place of {bench.callee}"
    events.emit("sandbox", "sandbox", "started", line)
    evaluation = evaluate(
        bench,
        rewrite,
        bench.policy.min_speedup,
        events.announcing("sandbox", "sandbox"),
    )
    judgement = evaluation.judged(bench.policy)
    attempt = attempt_of(evaluation, judgement, 1)
    line = f"{judgement.outcome}: {judgement.reason}"
    events.emit("sandbox", "sandbox", "finished", line, judgement_data(judgement, attempt))
    return decided_state(bench, evaluation, judgement, attempt, time.monotonic() - started)


def decided_state(
    bench: Workbench,
    evaluation: Evaluation,
    judgement: Judgement,
    attempt: Attempt,
    seconds: float,
) -> State:
    """The state of a run whose one attempt was judged like this, which is written down."""
    dumped = evaluation.model_dump(mode="json")
    write_iteration(bench.folder, attempt, evaluation.rewrite, [], dumped)
    state: State = {
        "attempts": [attempt.model_dump(mode="json")],
        "notices": [],
        "reason": judgement.reason,
        "seconds_by_stage": {"sandbox": seconds},
    }
    timed = evaluation.comparisons[0].baseline.profile if evaluation.comparisons else None
    if timed is not None:
        _add_profile(state, timed)
    if judgement.outcome != "rejected":
        state["incumbent"] = {
            "rewrite": dumped["rewrite"],
            "judgement": judgement.model_dump(mode="json"),
            "evaluation": dumped,
            "iteration": 1,
        }
    return state


def _add_profile(state: State, profile: Profile) -> None:
    verdict = diagnose(profile, device(profile.device))
    state["profile"] = state["baseline_profile"] = profile.model_dump(mode="json")
    state["verdict"] = state["baseline_verdict"] = verdict.model_dump(mode="json")


def replaced_by(base: Path, candidate: Path) -> frozenset[str]:
    """Kernels of `base` that the candidate leaves not as they are; empty where it is no program.

    Raises InputError where one of the files cannot be read.
    """
    if _is_device_source(_text_of(candidate)):
        return frozenset()
    return replaced_kernels(load_program(base), load_program(candidate))


def require_replaced(bench: Workbench, replaced: frozenset[str]) -> None:
    """Raise InputError where the candidate leaves the kernel that was chosen for it as it is."""
    if replaced and bench.kernel.name not in replaced:
        others = ", ".join(f"`{name}`" for name in sorted(replaced))
        raise InputError(
            f"`{bench.kernel.name}` takes most of the time, and the candidate leaves it as it is; "
            f"it replaces {others}: say which is judged with --kernel"
        )


def _text_of(candidate: Path) -> str:
    try:
        return candidate.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{candidate} cannot be read: {error}") from error


def _is_device_source(text: str) -> bool:
    return "@launch" in text and not any(find_launches(lex(byte_text(text))))


def read_candidate(bench: Workbench, candidate: Path) -> Rewrite:
    """Device source with `@launch` directives as it stands; of a program that cudaops wrote the
    rewrite in it; of any other its kernels, launched as a run of it shows."""
    text = _text_of(candidate)
    if _is_device_source(text):
        try:
            rewrite = make_rewrite(
                text, proposer="user", title=candidate.name, why="given by the user"
            )
            for workload in bench.workloads_of(rewrite):
                bench.plan(workload, rewrite)
        except PlanError as error:
            raise InputError(f"{candidate.name}:{error}") from error
        return rewrite
    program = load_program(candidate)
    try:
        return spliced_rewrite(program, bench.spliced) or strip(bench, program).rewrite
    except InputError as error:
        raise InputError(f"{candidate.name}: {error}") from error
