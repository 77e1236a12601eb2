"""The human gate: the run stops before acceptance until somebody says yes or no."""

from __future__ import annotations

from langgraph.types import interrupt

from cudaops.domain.judgement import Gate, Judgement, Policy
from cudaops.domain.review import ReviewAnswer, ReviewRequest
from cudaops.graph.context import Context
from cudaops.graph.nodes import bar_of
from cudaops.graph.state import State
from cudaops.program.patch import unified_patch
from cudaops.sandbox.evaluation import Evaluation
from cudaops.sandbox.workbench import Workbench


async def review(state: State, context: Context) -> tuple[State, str]:
    """Show what would be accepted and wait for the answer; the rest goes by unseen.

    LangGraph's interrupt ends the invocation here. Whoever resumes gives a ReviewAnswer, and the
    node runs again from its start with that answer: nothing before it has an effect.
    """
    evaluation = Evaluation.model_validate(state["evaluation"])
    policy = context.options.policy.model_copy(update={"min_speedup": bar_of(state, context)})
    would_be = evaluation.judged(policy.model_copy(update={"review": False}), released=True)
    if would_be.outcome == "rejected":
        return {}, "nothing that a person could accept"
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
        patch=unified_patch(bench.program, bench.spliced(rewrite)),
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
