"""Candidates of finished runs as rows for reinforcement learning: staged reward, group advantage.

Source: the design article "AI-assisted GPU kernel optimisation", section on GRPO autotuning, after
Predibase's reinforcement fine-tuning: `kernel_reward` and `group_advantages` there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, TimeSource
from cudaops.domain.judge import REQUIRED_GATES
from cudaops.domain.judgement import Attempt, GateName
from cudaops.domain.run import RunRecord

FORMAT = 1
"""Of a row."""
WRONG = 0.1
"""Of what compiles and is wrong. Source: the article's `kernel_reward`."""
EPSILON = 1e-8
"""Added to a group's standard deviation: one whose rewards are equal gives 0. Source: the article's
`group_advantages`."""
_COMPILERS: tuple[GateName, ...] = ("compile", "nvcc_compile")
_SPEED: tuple[GateName, ...] = ("speedup", "remeasured", "review")
"""What says nothing about results."""


class RewardRow(Record):
    """One line of `cudaops export rewards`."""

    format: int = FORMAT
    run_id: str
    iteration: int
    kernel: str
    group: str
    """Of the candidates that `advantage` compares: the author's program, kernel, device, round, and
    the rewrite that the round begins from."""
    round: int
    """1 + candidates of its run that were kept before it: all of one round begin from the same
    rewrite and its profile."""
    group_size: int
    device: str
    time_source: TimeSource | None
    """Of `speedup`; `modelled` is no measurement."""
    proposer: str
    family: str | None
    title: str
    rewrite_id: str
    outcome: str
    compiled: bool
    correct: bool | None
    """None: too slow before every gate of results had run."""
    speedup: float | None
    """The author's time over the candidate's; None: not timed."""
    reward: float
    advantage: float
    source: str | None
    """The candidate's text; None where the run folder holds it no more."""


def staged_reward(compiled: bool, correct: bool | None, speedup: float | None) -> float:
    """0 for what does not compile, 0.1 for what is wrong, else 1 + max(0, speedup - 1).

    The bonus needs every gate of results: what was too slow to be put to all of them (`correct`
    None) has 1. So does what was not timed.
    """
    if not compiled:
        return 0.0
    if correct is False:
        return WRONG
    return 1.0 + max(0.0, (speedup or 1.0) - 1.0) if correct else 1.0


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(reward - mean) / (standard deviation of the population + EPSILON), at least one reward."""
    mean, deviation = fmean(rewards), pstdev(rewards)
    return [(r - mean) / (deviation + EPSILON) for r in rewards]


def reward_rows(runs: Iterable[tuple[RunRecord, Sequence[str | None]]]) -> list[RewardRow]:
    """A row for each candidate, in the order of runs and iterations; groups span the runs.

    Args:
        runs: Records of different runs, each with its candidates' texts, in order of `attempts`.
    """
    rows = [row for record, texts in runs for row in _rows(record, texts)]
    groups: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        groups[row.group].append(number)
    for members in groups.values():
        values = group_advantages([rows[n].reward for n in members])
        for n, value in zip(members, values, strict=True):
            update = {"advantage": value, "group_size": len(members)}
            rows[n] = rows[n].model_copy(update=update)
    return rows


def _rows(record: RunRecord, texts: Sequence[str | None]) -> Iterable[RewardRow]:
    program, turn, begun = record.program, 1, "author"
    if program is None:
        return
    for one, text in zip(record.attempts, texts, strict=True):
        judgement = one.judgement
        compiled, correct = _compiled(one), _correct(one)
        yield RewardRow(
            run_id=record.run_id,
            iteration=one.iteration,
            kernel=program.kernel,
            group=f"{program.source_sha256[:16]}/{program.kernel}/{record.device}/{turn}/{begun}",
            round=turn,
            group_size=1,
            device=record.device,
            time_source=judgement.time_source,
            proposer=one.proposer,
            family=one.family,
            title=one.title,
            rewrite_id=one.rewrite_id,
            outcome=judgement.outcome,
            compiled=compiled,
            correct=correct if compiled else False,
            speedup=judgement.speedup,
            reward=staged_reward(compiled, correct, judgement.speedup),
            advantage=0.0,
            source=text,
        )
        if judgement.outcome != "rejected":
            turn, begun = turn + 1, one.rewrite_id


def _compiled(attempt: Attempt) -> bool:
    if isinstance(attempt.failure, CompileFailed):
        return False
    found = [attempt.judgement.gate(name) for name in _COMPILERS]
    return found[0] is not None and all(gate.passed for gate in found if gate is not None)


def _correct(attempt: Attempt) -> bool | None:
    """Whether no gate but those of speed refused it; a person's yes counts."""
    judgement = attempt.judgement
    if judgement.outcome != "rejected":
        return True
    gates = {gate.name: gate for gate in judgement.gates if gate.name not in _SPEED}
    if not all(gate.passed for gate in gates.values()):
        return False
    return True if gates.keys() >= set(REQUIRED_GATES) else None
