"""The nodes: each calls one agent, or a person, and returns a partial update."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from langgraph.types import interrupt

from cudaops.agents import optimizer, profiler, research, supervisor
from cudaops.agents.llm_developer import ModelDeveloper
from cudaops.agents.supervisor import attempt_of
from cudaops.cuda.ncu_pages import metrics_parsed
from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Attempt, Gate, Judgement, Policy, TunedSetting
from cudaops.domain.profile import Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import ReviewAnswer, ReviewRequest
from cudaops.domain.search import TransformationSearch, Transformed
from cudaops.errors import ModelUnavailable
from cudaops.graph import performance_limit
from cudaops.graph.context import (
    PROBES,
    Context,
    attempts_of,
    bar_of,
    end_of_state,
    incumbent_of,
    kept_us,
    speedup_of,
    why_nothing,
)
from cudaops.graph.folder import taken_home, write_iteration
from cudaops.graph.model_optimizer import digested, lesson, model_out, next_rewrite
from cudaops.graph.remembering import remember
from cudaops.graph.state import State
from cudaops.graph.techniques import attributed
from cudaops.mcp_servers.judging import RewriteDecision
from cudaops.mcp_servers.sandbox import TrialResult
from cudaops.recipes.registry import family_of
from cudaops.sandbox.workbench import Workbench

TRANSFORMED_FURTHER = ("llm:", "mcp:", "user")
"""Whose rewrites a search over transformations goes on from. Its own it has searched already, and a
pattern's kernel was tuned as it is."""
EXHAUSTED = "no step gains"
"""Of a search that came to its end."""
OF_RESULTS = frozenset({
    "correctness_captured", "correctness_exact", "correctness_perturbed", "correctness_domain",
    "repeat", "whole_program",
})  # fmt: skip
"""Gates that refuse a rewrite for what it computes."""
NO_FURTHER = "no further recipe applies"
WORTH_JUDGING = 0.5
"""Share of the wanted gain that a search must have seen. Chosen: the search's clock has launches'
gaps in it, which the judge's leaves out for short kernels, but what is far from the bar is not
worth half a minute of gates."""


async def supervise(state: State, context: Context) -> tuple[State, str]:
    """Decide what happens next."""
    raw = state.get("verdict")
    verdict = Verdict.model_validate(raw) if raw else None
    late = context.out_of_time()
    most, end = context.options.max_iterations, end_of_state(state)
    decision = supervisor.decide(attempts_of(state), verdict, most, late, end)
    return {"decision": decision.next, "reason": decision.reason}, decision.reason


async def profile(state: State, context: Context) -> tuple[State, str]:
    """Metrics of the incumbent into a verdict."""
    incumbent = incumbent_of(state)
    diagnosis = await profiler.profile(context.toolbox, incumbent)
    end = await performance_limit.end_of(
        context.bench, incumbent, diagnosis.profile, diagnosis.verdict
    )
    if end is not None:
        context.events.emit("profiler", "profiler", "progress", end.says, {"end": end.kind})
    update: State = {
        "profile": diagnosis.profile.model_dump(mode="json"),
        "verdict": diagnosis.verdict.model_dump(mode="json"),
        "end": None if end is None else end.model_dump(mode="json"),
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
    if context.memory:
        lessons = context.memory.snapshot.lessons_on(verdict.subtype)
        findings = findings.model_copy(update={"citations": (*findings.citations, *lessons)})
    update: State = {"research": findings.model_dump(mode="json")}
    if context.options.digest and findings.citations:
        update |= await digested(state | update, context)
    if "baseline_research" not in state:
        update["baseline_research"] = update["research"]
    if findings.degraded:
        notice = f"research: {findings.degraded}"
        context.events.emit("research", "research", "notice", notice)
        return {**update, "notices": [notice]}, findings.summary
    return update, f"{findings.summary} ({len(findings.citations)} passages)"


async def optimize(state: State, context: Context) -> tuple[State, str]:
    """Propose the next rewrite, a model's or a recipe's, and tune it."""
    late = context.out_of_time()
    if late is not None:
        return {"proposal": None, "reason": late}, late
    if (
        nothing := state.get("nothing_left")
    ) is not None:  # said before the polished one was judged
        return _planner_ends(nothing, {})
    update: State = {}
    developer = context.developer
    if isinstance(developer, ModelDeveloper) and not state.get("model_out"):
        left = context.options.max_iterations - len(state.get("attempts", []))
        if left == 1 and (polished := await _polished(state, context)) is not None:
            return polished
        try:
            given = await next_rewrite(state, context, developer)
        except ModelUnavailable as error:
            late = context.out_of_time()
            if late is not None:
                return {"proposal": None, "reason": late}, late
            update = model_out(context, error)
        else:
            if given.rewrite is not None:
                return await _tuned(given.rewrite, state, context, given.update)
            if given.nothing:
                if (polished := await _polished(state, context)) is not None:
                    return {**polished[0], "nothing_left": given.nothing}, polished[1]
                return _planner_ends(given.nothing, given.update)
            notice = f"the model has no testable candidate: {given.problem}; trying a recipe"
            context.events.emit("optimizer", "optimizer", "notice", notice)
            update = {**given.update, "notices": [notice]}
    return await _by_recipe(state, context, {**update, "hypothesis": None})


def _planner_ends(nothing: str, update: State) -> tuple[State, str]:
    """The end of a run, by what the planner says."""
    ended = f"the planner has no further hypothesis: {nothing}"
    return {**update, "proposal": None, "reason": ended, "notices": [ended]}, ended


async def _by_recipe(state: State, context: Context, update: State) -> tuple[State, str]:
    bench = context.bench
    subject = optimizer.RewriteTarget(bench.program, bench.kernel, bench.workloads)
    verdict = Verdict.model_validate(state["verdict"])
    if end_of_state(state) is not None:
        return await _by_transformations(state, context, update, verdict)
    favour = context.memory.snapshot.ranking(verdict.subtype) if context.memory else None
    proposal = optimizer.propose_next(
        subject, verdict, attempts_of(state), favour,
        allow_reassociation=bench.policy.allow_reassociation,
    )  # fmt: skip
    if proposal is None:
        return await _by_transformations(state, context, update, verdict)
    data = {"title": proposal.title, "proposer": proposal.proposer}
    line = f"proposes {proposal.title}: {proposal.why}"
    context.events.emit("optimizer", "optimizer", "progress", line, data)
    return await _tuned(proposal, state, context, update)


async def _polished(state: State, context: Context) -> tuple[State, str] | None:
    """What transformations make of the rewrite that a model wrote and that leads, before the run
    ends; None where there is no such rewrite, or nothing is worth judging."""
    incumbent = incumbent_of(state)
    if incumbent is None or not incumbent.proposer.startswith("llm:"):
        return None
    verdict = Verdict.model_validate(state["verdict"])
    update, told = await _by_transformations(state, context, {"hypothesis": None}, verdict)
    return (update, f"polished: {told}") if update.get("proposal") else None


async def _by_transformations(
    state: State, context: Context, update: State, verdict: Verdict
) -> tuple[State, str]:
    """What no pattern covers: the best sequence of transformations that was not judged yet. A
    kernel that was made for its pattern is not transformed further."""
    incumbent = incumbent_of(state)
    attempts = attempts_of(state)
    if not may_transform(incumbent):
        return {**update, "proposal": None, "reason": NO_FURTHER}, NO_FURTHER
    end, (trials_most, seconds) = end_of_state(state), context.search_limits
    if end is not None and incumbent is not None:
        return {**update, "proposal": None, "reason": NO_FURTHER}, NO_FURTHER
    limits = (trials_most if end is None else min(PROBES, trials_most), seconds)
    say = context.events.announcing("optimizer", "optimizer", title="transformations")
    searched = await optimizer.search_transformations(
        context.toolbox, incumbent, verdict.subtype, limits, say
    )
    update = {**update, **kept_search(state, searched)}
    tried = {attempt.source_id for attempt in attempts}
    least = 1 + WORTH_JUDGING * (bar_of(state, context) / speedup_of(state) - 1)
    found = next(
        (
            x
            for x in _in_turn(searched, attempts)
            if context.bench.served_alone(x.rewrite).source_id not in tried
            and searched.baseline_us >= least * x.time_us
        ),
        None,
    )
    if found is None:
        reason = NO_FURTHER if attempts else _nothing_found(searched)
        if not attempts and end is None and searched.stopped == EXHAUSTED:
            end = await asyncio.to_thread(performance_limit.atomic_order, context.bench, verdict)
            update = {**update, "end": None if end is None else end.model_dump(mode="json")}
        return {**update, "proposal": None, "reason": reason}, reason
    trials = [
        TrialResult(title=x.title, values={}, time_us=x.time_us, failure=x.failure)
        for x in searched.tried
    ]
    factor = searched.baseline_us / found.time_us
    told = f"{found.rewrite.title}: {factor:.2f}x, best of {len(trials)} sequences"
    return {**update, **_proposed(context, found.rewrite, trials)}, told


def _in_turn(searched: TransformationSearch, attempts: Sequence[Attempt]) -> Sequence[Transformed]:
    """What a search found, the fastest first; after a rewrite that was refused for its results,
    what rounds as the author's kernel does."""
    stopped = [g.name for g in attempts[-1].judgement.gates if not g.passed] if attempts else []
    if not OF_RESULTS.intersection(stopped):
        return searched.found
    return sorted(searched.found, key=lambda x: x.rerounds)


def kept_search(state: State, searched: TransformationSearch) -> State:
    """What the run keeps of a search; nothing where it has it, for the same is made once."""
    summary = searched.summary.model_dump(mode="json")
    return {} if summary in state.get("transformations", []) else {"transformations": [summary]}


def may_transform(incumbent: Rewrite | None) -> bool:
    """Whether a search over transformations may find more: the author's kernel, or a rewrite that
    came from elsewhere."""
    return incumbent is None or incumbent.proposer.startswith(TRANSFORMED_FURTHER)


def _nothing_found(searched: TransformationSearch) -> str:
    cut = searched.stopped == "seconds"
    if not searched.tried and cut:
        return "the time budget ended before a transformation was tried; raise --budget-minutes"
    why = f"; most frequent reason: {searched.in_the_way}" if searched.in_the_way else ""
    if not searched.tried:
        return f"no recipe and no transformation applies to this kernel{why}"
    count = f"{len(searched.tried)} sequences of transformations"
    count += " within the time budget" if cut else ""
    why = f"; others do not apply{why}" if why else ""
    if not searched.found:
        return f"none of {count} makes it faster{why}"
    best = searched.found[0]
    factor = searched.baseline_us / best.time_us
    return f"the best of {count}, {best.rewrite.title}, makes it {factor:.2f}x as fast{why}"


async def _tuned(
    proposal: Rewrite, state: State, context: Context, update: State
) -> tuple[State, str]:
    """The proposal with the best of its tune values."""
    if not proposal.plan.tune:
        return {**update, **_proposed(context, proposal, [])}, f"{proposal.title}, nothing to tune"
    tuned = await optimizer.tune_rewrite(
        context.toolbox,
        proposal,
        context.options.max_trials,
        context.max_tune_seconds,
        context.events.announcing("optimizer", "optimizer", title=proposal.title),
        kept_us(state),
    )
    best, found = proposal, ""
    if tuned.best is None:
        failure = next((t.failure for t in tuned.trials if t.failure), "no configuration feasible")
        found = f"no configuration of {proposal.title} ran: {failure}"
    else:
        best = proposal.tuned_with(tuned.best)
        values = ", ".join(f"{name}={value}" for name, value in tuned.best.items())
        found = f"{best.title}: best of {len(tuned.trials)} is {values}"
    return {**update, **_proposed(context, best, tuned.trials)}, found


def _proposed(context: Context, rewrite: Rewrite, trials: Sequence[TrialResult]) -> State:
    return {
        "proposal": context.bench.served_alone(rewrite).model_dump(mode="json"),
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }


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
        "everything": True,
    }
    iteration = len(state.get("attempts", [])) + 1
    say = context.events.announcing("sandbox", "sandbox", title=rewrite.title, iteration=iteration)
    judged = await context.toolbox.call("sandbox", "judge_rewrite", RewriteDecision, arguments, say)
    assert judged.evaluation is not None
    update: State = {
        "evaluation": judged.evaluation.model_dump(mode="json"),
        "judgement": judged.judgement.model_dump(mode="json"),
    }
    return update, f"{len(judged.judgement.gates)} gates, {judged.judgement.outcome}"


async def verify(state: State, context: Context) -> tuple[State, str]:
    """Keep the attempt, whatever its result."""
    judgement = Judgement.model_validate(state["judgement"])
    evaluation = Evaluation.model_validate(state["evaluation"])
    trials = state["trials"]
    iteration = len(state.get("attempts", [])) + 1
    attempt = attempt_of(
        evaluation,
        judgement,
        iteration,
        max(1, len(trials)),
        family=_family(state, evaluation.rewrite),
        expected_speedup=_expected(state, evaluation.rewrite),
        settings=tuple(
            TunedSetting(values=t["values"], time_us=t["time_us"], failure=t["failure"])
            for t in trials
            if t["values"]
        ),
    )
    unseen = ""
    if judgement.outcome != "rejected" and evaluation.rewrite.proposer.startswith("llm:"):
        techniques, unseen = await attributed(evaluation, context)
        attempt = attempt.model_copy(update={"techniques": techniques})
    attempt, learnt = await lesson(state, context, attempt)
    if unseen:
        learnt = {**learnt, "notices": [*learnt.get("notices", []), unseen]}
    forgotten = remember(state, context, attempt)
    if forgotten is not None:
        context.events.emit("verify", "verify", "notice", forgotten)
        learnt = {**learnt, "notices": [*learnt.get("notices", []), forgotten]}
    write_iteration(context.bench.folder, attempt, evaluation.rewrite, trials, state["evaluation"])
    found = f"iteration {attempt.iteration}: {judgement.outcome}, {judgement.reason}"
    update: State = {"attempts": [attempt.model_dump(mode="json")], "reason": judgement.reason}
    return {**learnt, **update}, found


def _family(state: State, rewrite: Rewrite) -> str | None:
    """Strategy of the candidate: its recipe's, or that of the hypothesis it follows."""
    hypothesis = state.get("hypothesis")
    if rewrite.proposer.startswith("llm:") and hypothesis:
        return str(hypothesis["family"])
    return family_of(rewrite)


def _expected(state: State, rewrite: Rewrite) -> float | None:
    hypothesis = state.get("hypothesis") if rewrite.proposer.startswith("llm:") else None
    return hypothesis.get("expected_speedup") if hypothesis else None


async def accept(state: State, context: Context) -> tuple[State, str]:
    """Make the candidate the incumbent. A conditional edge could not write this. `best.cu` and the
    record are there from now on, whatever becomes of the run."""
    iteration = len(state["attempts"])
    incumbent = {
        "rewrite": state["evaluation"]["rewrite"],
        "judgement": state["judgement"],
        "evaluation": state["evaluation"],
        "iteration": iteration,
    }
    title = state["evaluation"]["rewrite"]["title"]
    # What was planned was planned for the old verdict, and its limit was not the last.
    planned: State = {"hypotheses": [], "hypothesis": None, "mends": 0, "end": None}
    update: State = {**planned, "incumbent": incumbent}
    await asyncio.to_thread(context.keep, {**state, **update})
    return update, f"{title} is the best so far"


async def report(state: State, context: Context) -> tuple[State, str]:
    """The end of the graph; the record is written by whoever started it."""
    incumbent = state.get("incumbent")
    if not incumbent:
        return {}, why_nothing(state)
    update: State = {}
    if not context.bench.models_time and context.options.ncu_every_metric:
        best = Rewrite.model_validate(incumbent["evaluation"]["rewrite"])
        author = await profiler.profile(context.toolbox, None, every_metric=True)
        rewritten = await profiler.profile(context.toolbox, best, every_metric=True)
        whole = rewritten.profile.model_dump(mode="json")
        update["baseline_profile"] = author.profile.model_dump(mode="json")
        update["baseline_verdict"] = author.verdict.model_dump(mode="json")
        update["profile"], update["verdict"] = whole, rewritten.verdict.model_dump(mode="json")
        evaluation = {**incumbent["evaluation"], "profile": whole}
        update["incumbent"] = {**incumbent, "evaluation": evaluation}
    speedup = incumbent["judgement"]["speedup"]
    return (
        update,
        f"{incumbent['rewrite']['title']}, {speedup:.2f}x {incumbent['judgement']['time_source']}",
    )


async def review(state: State, context: Context) -> tuple[State, str]:
    """Show what would be accepted and wait for the answer; the rest goes by unseen.

    LangGraph's interrupt ends the invocation here. Whoever resumes gives a ReviewAnswer, and the
    node runs again from its start with that answer: nothing before it has an effect.
    """
    evaluation = Evaluation.model_validate(state["evaluation"])
    policy = context.options.policy.model_copy(update={"min_speedup": bar_of(state, context)})
    would_be = evaluation.judged(policy.model_copy(update={"review": False}), released=True)
    if would_be.outcome == "rejected":
        return {}, "no candidate to review"
    request = request_of(context.bench, evaluation, would_be)
    answer = ReviewAnswer.model_validate(interrupt(request.model_dump(mode="json")))
    reviewed, judgement = answered(evaluation, policy, answer)
    update: State = {
        "evaluation": reviewed.model_dump(mode="json"),
        "judgement": judgement.model_dump(mode="json"),
    }
    return update, reviewed.gates[-1].summary


def request_of(bench: Workbench, evaluation: Evaluation, would_be: Judgement) -> ReviewRequest:
    """Patch and evidence of one candidate."""
    rewrite = evaluation.rewrite
    held = [g for g in would_be.gates if g.quarantined]
    return ReviewRequest(
        title=rewrite.title,
        proposer=rewrite.proposer,
        why=rewrite.why,
        outcome=would_be.outcome,
        reason=would_be.reason,
        speedup=would_be.speedup,
        time_source=would_be.time_source,
        gates=tuple(g.line for g in would_be.gates),
        quarantined=tuple(g.line for g in held),
        patch=taken_home(bench.program, bench.spliced(rewrite)).patch,
    )


def answered(
    evaluation: Evaluation, policy: Policy, answer: ReviewAnswer
) -> tuple[Evaluation, Judgement]:
    """The evaluation with the person's gate, and what is judged of it."""
    verb = "accepted" if answer.accept else "refused"
    released = [g.name for g in evaluation.gates if g.quarantined]
    summary = f"{verb} by {answer.by}"
    if answer.accept and released:
        summary += f", who releases {', '.join(released)}"
    if answer.note:
        summary += f": {answer.note}"
    gate = Gate(name="review", passed=answer.accept, summary=summary)
    reviewed = evaluation.model_copy(update={"gates": (*evaluation.gates, gate)})
    return reviewed, reviewed.judged(policy)
