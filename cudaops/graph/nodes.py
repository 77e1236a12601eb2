"""The nodes: each calls one agent and returns a partial update."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.agents import optimizer, profiler, research, supervisor
from cudaops.agents.verify import attempt_of
from cudaops.cuda.ncu_launch import metrics_parsed
from cudaops.domain.judgement import Attempt, Judgement
from cudaops.domain.profile import Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.graph.context import Context
from cudaops.graph.folder import write_iteration
from cudaops.graph.state import State
from cudaops.mcp_servers.sandbox import Judged, TrialResult
from cudaops.sandbox.evaluation import Evaluation

IMPROVEMENT = 1.02
"""A later rewrite must beat the incumbent by this factor: below 2 % two runs of one kernel differ.
Source: the no-gain threshold of seed document 001."""


def attempts_of(state: State) -> tuple[Attempt, ...]:
    """The attempts so far as records."""
    return tuple(Attempt.model_validate(a) for a in state.get("attempts", []))


def incumbent_of(state: State) -> Rewrite | None:
    """The best rewrite so far; None while the baseline leads."""
    incumbent = state.get("incumbent")
    return Rewrite.model_validate(incumbent["rewrite"]) if incumbent else None


async def supervise(state: State, context: Context) -> tuple[State, str]:
    """Decide what happens next."""
    raw = state.get("verdict")
    verdict = Verdict.model_validate(raw) if raw else None
    decision = supervisor.decide(attempts_of(state), verdict, context.options.max_iterations)
    return {"decision": decision.next, "reason": decision.reason}, decision.reason


async def profile(state: State, context: Context) -> tuple[State, str]:
    """Metrics of the incumbent into a verdict."""
    diagnosis = await profiler.profile(context.toolbox, incumbent_of(state))
    update: State = {
        "profile": diagnosis.profile.model_dump(mode="json"),
        "verdict": diagnosis.verdict.model_dump(mode="json"),
    }
    if "baseline_profile" not in state:
        update["baseline_profile"] = update["profile"]
        update["baseline_verdict"] = update["verdict"]
    metrics = metrics_parsed(diagnosis.profile)
    return update, f"{diagnosis.verdict.summary} ({metrics} metrics, {diagnosis.profile.source})"


async def look_up(state: State, context: Context) -> tuple[State, str]:
    """What the knowledge base says about the verdict."""
    verdict = Verdict.model_validate(state["verdict"])
    findings = await research.research(context.toolbox, verdict, context.bench.kernel.text)
    update: State = {"research": findings.model_dump(mode="json")}
    if "baseline_research" not in state:
        update["baseline_research"] = update["research"]
    if findings.degraded:
        notice = f"research: {findings.degraded}"
        context.events.emit("research", "research", "notice", notice)
        return {**update, "notices": [notice]}, findings.summary
    return update, f"{findings.summary} ({len(findings.citations)} passages)"


async def optimize(state: State, context: Context) -> tuple[State, str]:
    """Propose the next rewrite and tune it."""
    bench = context.bench
    subject = optimizer.Subject(bench.program, bench.kernel, bench.workloads)
    proposal = optimizer.propose_next(
        subject, Verdict.model_validate(state["verdict"]), attempts_of(state)
    )
    if proposal is None:
        tried = len(state.get("attempts", []))
        found = "no recipe knows this kernel" if not tried else "no further recipe applies"
        return {"proposal": None, "reason": found}, found
    context.events.emit(
        "optimizer", "optimizer", "progress", f"proposes {proposal.title}: {proposal.why}"
    )
    if not proposal.plan.tune:
        return _proposed(proposal, []), f"{proposal.title}, nothing to tune"
    tuned = await optimizer.tune_rewrite(
        context.toolbox,
        proposal,
        context.max_trials,
        context.max_tune_seconds,
        context.announce("optimizer", "optimizer"),
        _incumbent_us(state),
    )
    if tuned.best is None:
        failures = next(
            (t.failure for t in tuned.trials if t.failure), "no configuration was feasible"
        )
        return _proposed(
            proposal, tuned.trials
        ), f"no configuration of {proposal.title} ran: {failures}"
    best = proposal.tuned_with(tuned.best)
    values = ", ".join(f"{name}={value}" for name, value in tuned.best.items())
    return _proposed(best, tuned.trials), f"{best.title}: best of {len(tuned.trials)} is {values}"


def _incumbent_us(state: State) -> float | None:
    kept = [a for a in attempts_of(state) if a.judgement.outcome != "rejected"]
    return kept[-1].candidate_us if kept else None


def _proposed(rewrite: Rewrite, trials: Sequence[TrialResult]) -> State:
    return {
        "proposal": rewrite.model_dump(mode="json"),
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }


def bar_of(state: State, context: Context) -> float:
    """The speedup over the baseline that the proposal must reach: the user's, or the incumbent's
    and a little more."""
    bar = context.options.policy.min_speedup
    incumbent = state.get("incumbent")
    return max(bar, incumbent["judgement"]["speedup"] * IMPROVEMENT) if incumbent else bar


async def evaluate(state: State, context: Context) -> tuple[State, str]:
    """Compile, verify and time the proposal."""
    rewrite = Rewrite.model_validate(state["proposal"])
    arguments = {
        "source": rewrite.source,
        "tuned": rewrite.values(),
        "min_speedup": bar_of(state, context),
        "proposer": rewrite.proposer,
        "title": rewrite.title,
        "why": rewrite.why,
    }
    judged = await context.toolbox.call(
        "sandbox", "judge_rewrite", Judged, arguments, context.announce("sandbox", "sandbox")
    )
    update: State = {
        "evaluation": judged.evaluation.model_dump(mode="json"),
        "judgement": judged.judgement.model_dump(mode="json"),
    }
    return update, f"{len(judged.judgement.gates)} gates, {judged.judgement.outcome}"


async def verify(state: State, context: Context) -> tuple[State, str]:
    """Keep the attempt, whatever came of it."""
    judgement = Judgement.model_validate(state["judgement"])
    evaluation = Evaluation.model_validate(state["evaluation"])
    trials = state["trials"]
    iteration = len(state.get("attempts", [])) + 1
    attempt = attempt_of(evaluation, judgement, iteration, max(1, len(trials)))
    write_iteration(context.bench.folder, attempt, evaluation.rewrite, trials, state["evaluation"])
    found = f"iteration {attempt.iteration}: {judgement.outcome}, {judgement.reason}"
    return {"attempts": [attempt.model_dump(mode="json")], "reason": judgement.reason}, found


async def accept(state: State, context: Context) -> tuple[State, str]:
    """Make the candidate the incumbent. A conditional edge could not write this."""
    iteration = len(state["attempts"])
    incumbent = {
        "rewrite": state["evaluation"]["rewrite"],
        "judgement": state["judgement"],
        "evaluation": state["evaluation"],
        "iteration": iteration,
    }
    title = state["evaluation"]["rewrite"]["title"]
    return {"incumbent": incumbent}, f"{title} is the new incumbent"


async def report(state: State, context: Context) -> tuple[State, str]:
    """The end of the graph; the record is written by whoever started it."""
    incumbent = state.get("incumbent")
    if not incumbent:
        return {}, f"nothing beat the bar: {state.get('reason', 'no attempt was made')}"
    speedup = incumbent["judgement"]["speedup"]
    return (
        {},
        f"{incumbent['rewrite']['title']}, {speedup:.2f}x {incumbent['judgement']['time_source']}",
    )
