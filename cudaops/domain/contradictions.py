"""What a certificate says beside what follows from its own gates and samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cudaops.domain.certificate import Certificate
from cudaops.domain.judge import judge
from cudaops.domain.judgement import Comparison, Gate, GateName, Judgement, Policy

DECIDED: frozenset[GateName] = frozenset(("speedup", "remeasured"))
"""Gates that `judge` itself adds."""

RELATIVE = 1e-9
"""Another machine's logarithm may differ in the last digit; nothing that matters is as small."""


def contradictions(certificate: Certificate) -> tuple[str, ...]:
    """What in the certificate does not agree with the rest of it, one line each; empty is good.

    The judgement is made again, by this version's `judge`, from the gates and samples written.
    """
    return (*_statements(certificate), *_decision(certificate))


def leniencies(policy: Policy) -> tuple[str, ...]:
    """Where the policy asks for less than cudaops does by default; empty where it does not."""
    usual = Policy()
    found = []
    if policy.confidence < usual.confidence:
        found.append(f"confidence {policy.confidence:g} instead of {usual.confidence:g}")
    if policy.max_error_factor > usual.max_error_factor:
        found.append(f"error factor {policy.max_error_factor:g}, usual {usual.max_error_factor:g}")
    if policy.rtol_program > usual.rtol_program:
        found.append(f"printed numbers to {policy.rtol_program:g}, usual {usual.rtol_program:g}")
    if policy.allow_precision is not None:
        found.append(f"{policy.allow_precision} arithmetic is allowed")
    return tuple(found)


def judged_again(certificate: Certificate) -> Judgement:
    """The judgement that follows from what is written, whatever the certificate says it is."""
    gates = [g for g in certificate.judgement.gates if g.name not in DECIDED]
    return judge(
        gates,
        certificate.comparisons,
        certificate.policy.model_copy(update={"min_speedup": certificate.bar}),
        fresh=certificate.fresh,
        judged_before=certificate.judged_before,
        isolation=certificate.judgement.isolation,
    )


def _statements(certificate: Certificate) -> Iterator[str]:
    policy, judgement = certificate.policy, certificate.judgement
    if certificate.outcome != judgement.outcome:
        yield f"outcome is {certificate.outcome}, the judgement's is {judgement.outcome}"
    if certificate.time_source != judgement.time_source:
        yield f"time is {certificate.time_source}, the judgement's is {judgement.time_source}"
    if certificate.bar < policy.min_speedup:
        yield f"the bar was {certificate.bar:g}x, the policy asks for {policy.min_speedup:g}x"
    if policy.seed is not None and policy.seed != certificate.seed:
        yield "the seed is not the one that the policy fixes"
    names = [gate.name for gate in judgement.gates]
    if len(names) != len(set(names)):
        yield "a gate stands there twice"
    known = {w.id for w in certificate.workloads}
    for comparison in (*certificate.comparisons, *certificate.fresh):
        yield from _measured_things(certificate, comparison, known)
    if certificate.program.main != certificate.program.files[0].path:
        yield "the main file is not the first of the author's files"
    if stray := {a.workload for a in certificate.anchors} - known:
        yield f"anchors of workloads that are not there: {', '.join(sorted(stray))}"
    yield from _released(certificate)


def _measured_things(
    certificate: Certificate, comparison: Comparison, known: set[str]
) -> Iterator[str]:
    if comparison.workload not in known:
        yield f"times of {comparison.workload}, which is no workload here"
    for side in (comparison.baseline, comparison.candidate):
        if (side.source, side.device) != (certificate.time_source, certificate.device):
            yield (
                f"times of {comparison.workload} are {side.source} for {side.device}, the "
                f"certificate's are {certificate.time_source} for {certificate.device}"
            )


def _released(certificate: Certificate) -> Iterator[str]:
    quarantined = tuple(g.name for g in certificate.judgement.gates if g.quarantined)
    released = certificate.review.gates if certificate.review else ()
    if set(quarantined) != set(released):
        yield (
            f"quarantined: {', '.join(quarantined) or 'nothing'}; "
            f"released: {', '.join(released) or 'nothing'}"
        )


def _decision(certificate: Certificate) -> Iterator[str]:
    written, again = certificate.judgement, judged_again(certificate)
    if written.outcome != again.outcome:
        yield (
            f"the judgement says {written.outcome}; from its gates and samples follows "
            f"{again.outcome}: {again.reason}"
        )
        return
    for name in ("speedup", "speedup_low", "speedup_high"):
        said, follows = getattr(written, name), getattr(again, name)
        if not _close(said, follows):
            yield f"{name} is {said}, from the samples follows {follows}"
    yield from _decided_gates(written.gates, again.gates)


def _decided_gates(written: Sequence[Gate], again: Sequence[Gate]) -> Iterator[str]:
    said = {g.name: g for g in written if g.name in DECIDED}
    follows = {g.name: g for g in again if g.name in DECIDED}
    if list(said) != list(follows):
        yield f"decided by {', '.join(said)}; from the samples follows {', '.join(follows)}"
        return
    for name, gate in said.items():
        other = follows[name]
        same = gate.passed == other.passed and gate.numbers.keys() == other.numbers.keys()
        if not same or any(not _close(v, other.numbers[k]) for k, v in gate.numbers.items()):
            yield f"the gate {name} is not what follows from the samples"


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or math.isclose(one, other, rel_tol=RELATIVE)
