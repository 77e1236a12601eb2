"""`cudaops verify`: a rewrite that somebody else wrote, judged like any other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from cudaops.agents.supervisor import attempt_of
from cudaops.cuda.devices import device
from cudaops.cuda.verdict import diagnose
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Attempt, Gate, Judgement
from cudaops.domain.profile import Profile
from cudaops.domain.program import PLAIN, Compilation, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Progress
from cudaops.errors import InputError, PlanError
from cudaops.gates.handed_in import HandedIn, evaluated
from cudaops.graph.events import EventLog, judgement_data
from cudaops.graph.folder import CANDIDATE, write_iteration
from cudaops.graph.state import State
from cudaops.program.candidate import FILE
from cudaops.program.launches import find_launches
from cudaops.program.lexing import byte_text, lex
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.program.splice import spliced_rewrite
from cudaops.program.whole_program import replaced_kernels, standing_beside
from cudaops.sandbox.stripping import strip
from cudaops.sandbox.workbench import Workbench

CLEARLY = 3.0
"""How many times as long as another one a kernel must take here to be the one that is meant.
Chosen: what other work on the processor may add to one kernel and not to the other."""
_LINE = re.compile(rf"\b{re.escape(FILE)}(?=:\d)")
"""A line of the rewrite as compilers and checkers name it."""


def judge_candidate(bench: Workbench, candidate: Path, events: EventLog) -> State:
    """Evaluate and judge the file against the open program.

    Raises InputError where the file is neither device source with directives nor a program.
    """
    started = time.monotonic()
    rewrite, given = _read(bench, candidate)
    launched = ", ".join(step.kernel for step in rewrite.plan.launches)
    line = f"judging {candidate.name}: {launched} instead of {bench.callee}"
    events.emit("sandbox", "sandbox", "started", line)
    place = candidate.name if given is None else f"iterations/01/{CANDIDATE}"
    tell = events.announcing("sandbox", "sandbox")

    def say(progress: Progress) -> None:
        tell(_placed(progress, place))

    evaluation, notices = evaluated(bench, rewrite, given, bench.policy, say)
    gates = tuple(_placed(gate, place) for gate in evaluation.gates)
    evaluation = evaluation.model_copy(update={"gates": gates})
    judgement = evaluation.judged(bench.policy)
    attempt = attempt_of(evaluation, judgement, 1)
    line = f"{judgement.outcome}: {judgement.reason}"
    events.emit("sandbox", "sandbox", "finished", line, judgement_data(judgement, attempt))
    seconds = time.monotonic() - started
    return {
        **decided_state(bench, evaluation, judgement, attempt, seconds),
        "notices": notices,
    }


Told = TypeVar("Told", bound=Progress)


def _placed(told: Told, place: str) -> Told:
    """The same, with the user's file where compilers and checkers say the name that a rewrite is
    compiled under. `place`: of its lines."""
    if isinstance(told, str):
        return _LINE.sub(place, told)  # type: ignore[return-value]
    if isinstance(told, Gate):
        return told.model_copy(update={"summary": _LINE.sub(place, told.summary)})
    return told


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


def replaced_by(base: Path, candidate: Path, compilation: Compilation = PLAIN) -> frozenset[str]:
    """Kernels of `base` that the candidate leaves not as they are; empty where it is no program.

    Raises InputError where one of the files cannot be read, and where it launches fewer new kernels
    than kernels of the author's are gone: which one they stand for is not to be told.
    """
    text = _text_of(candidate)
    if _is_device_source(text):
        return frozenset()
    author = load_program(base, compilation)
    other = _program(candidate, text, compilation)
    replaced = replaced_kernels(author, other)
    launched = {site.kernel for site in other.launches}
    left = {k.name for name in launched for k in other.kernels_named(name)}
    theirs = [k.name for s in author.launches for k in author.kernels_named(s.kernel)]
    gone = [k for k in dict.fromkeys(theirs) if k in replaced - left]
    new = sorted(launched - {k.plain_name for k in author.kernels})
    if new and len(gone) > len(new):
        raise InputError(
            f"{candidate.name} launches {_listed(new)} instead of {_listed(gone)}: a rewrite "
            "stands in the place of one kernel's launches, and the author's program goes on with "
            "the others; put them together in the author's program first, or say with --kernel "
            "which one it is"
        )
    return replaced


def require_replaced(bench: Workbench, replaced: frozenset[str]) -> None:
    """Raise InputError where the candidate leaves the kernel that was chosen for it as it is, or
    replaces another one that may take as much time: seconds of one run are no choice."""
    others = sorted(replaced - {bench.kernel.name})
    if replaced and bench.kernel.name not in replaced:
        raise InputError(
            f"`{bench.kernel.name}` takes most of the time, and the candidate does not change it; "
            f"it replaces {_listed(others)}: choose one with --kernel"
        )
    seconds = {c.kernel: c.counted_seconds for c in bench.captured.timed.captured.counts}
    least = seconds.get(bench.kernel.name, 0.0) / CLEARLY
    if rivals := [name for name in others if seconds.get(name, 0.0) > least]:
        raise InputError(
            f"it replaces {_listed([bench.kernel.name, *rivals])}, and none of them takes clearly "
            "most of the time: choose one with --kernel"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _text_of(candidate: Path) -> str:
    try:
        return candidate.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{candidate} cannot be read: {error}") from error


def _is_device_source(text: str) -> bool:
    return "@launch" in text and not any(find_launches(lex(byte_text(text))))


def read_candidate(bench: Workbench, candidate: Path) -> Rewrite:
    """Device source with `@launch` directives as it is; of a program that cudaops wrote the
    rewrite in it; of any other its kernels, launched as a run of it shows."""
    return _read(bench, candidate)[0]


def _read(bench: Workbench, candidate: Path) -> tuple[Rewrite, HandedIn | None]:
    """The rewrite, and the program whose kernels it has."""
    text = _text_of(candidate)
    if _is_device_source(text):
        try:
            rewrite = make_rewrite(
                standing_beside(bench.program, text),
                proposer="user",
                title=candidate.name,
                why="submitted by the user",
            )
            for workload in bench.workloads_of(rewrite):
                bench.plan(workload, rewrite)
        except PlanError as error:
            raise InputError(f"{candidate.name}:{error}") from error
        return rewrite, None
    program = _program(candidate, text, bench.program.compilation)
    try:
        spliced = spliced_rewrite(program, bench.spliced)
        if spliced is not None:
            return spliced, None
        stripped = strip(bench, program)
    except InputError as error:
        raise InputError(f"{candidate.name}: {error}") from error
    return stripped.rewrite, HandedIn(candidate.name, program, stripped)


def _program(candidate: Path, text: str, compilation: Compilation) -> Program:
    """Raises InputError where it is none, and says what device code lacks to be a rewrite."""
    try:
        return load_program(candidate, compilation)
    except InputError as error:
        words = [t.text for t in lex(byte_text(text)).tokens]
        if "__global__" not in words or "main" in words:
            raise
        raise InputError(
            f"{candidate.name} is device code without a line that says how it is launched: add "
            "`// @launch KERNEL grid=(..) block=(..) args=(..)` with the parameters of the "
            "author's kernel (docs/launch-plans.md), or hand in a whole program"
        ) from error
