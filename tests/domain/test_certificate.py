"""A certificate beside itself: what follows from its gates and samples, and what has drifted."""

from __future__ import annotations

from typing import Any

import pytest

from cudaops.domain.certificate import (
    AnchorOutput,
    Certificate,
    FileHash,
    Release,
    WorkloadIdentity,
    compare_anchors,
    compare_speedups,
    contradictions,
    judged_again,
    leniencies,
)
from cudaops.domain.judgement import Comparison, Gate, Policy
from cudaops.domain.workload import RunRole
from tests.certify.samples import HASH, anchor, certificate, comparison


def bent(**changed: Any) -> Certificate:
    return certificate().model_copy(update=changed)


def in_role(role: RunRole) -> tuple[WorkloadIdentity, ...]:
    """The certificate's workloads, all of a run for this alone."""
    return tuple(w.model_copy(update={"role": role}) for w in certificate().workloads)


def with_gate(gate: Gate) -> Certificate:
    """A certificate whose judgement has this gate, in place of its own where it has one."""
    judgement = certificate().judgement
    others = tuple(g for g in judgement.gates if g.name != gate.name)
    return bent(judgement=judgement.model_copy(update={"gates": (gate, *others)}))


def test_an_honest_certificate_holds_together() -> None:
    assert contradictions(certificate()) == ()
    assert judged_again(certificate()) == certificate().judgement


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"outcome": "provisional"}, "outcome is provisional"),
        ({"time_source": "modelled"}, "time is modelled"),
        ({"bar": 1.1}, "the threshold was 1.1x, the policy says 1.2x"),
        ({"policy": Policy(seed=7)}, "not the one that the policy fixes"),
        ({"policy": Policy(review=True)}, "review: this gate did not run"),
        ({"policy": Policy(min_speedup=3.0), "bar": 3.0}, "follows rejected"),
        ({"policy": Policy(confidence=0.9999)}, "speedup_low is"),
        ({"device": "A10"}, "the certificate's are cuda_event for A10"),
        ({"fresh": ()}, "remeasured: this gate did not run"),
        ({"fresh": (comparison(1.1, 3),)}, "follows rejected"),
        ({"fresh": (comparison(2.1, 3),)}, "speedup is"),
        ({"comparisons": (comparison(2.5, 4),)}, "the gate speedup is not what follows"),
        ({"judged_before": 0}, "speedup_low is"),
        ({"anchors": (anchor(workload="w9"),)}, "anchors of workloads that are not there: w9"),
        ({"workloads": ()}, "times of w0, which is no workload here"),
        ({"workloads": in_role("timed")}, "no workload is one on which the candidate was judged"),
        ({"workloads": in_role("timed")}, "timed on a device and not judged"),
        ({"workloads": in_role("judged")}, "times of w0, on which nothing was to be timed"),
        ({"review": Release(gates=("object",), summary="")}, "released: object"),
    ],
)
def test_what_does_not_follow_is_named(changed: dict[str, Any], says: str) -> None:
    assert says in "; ".join(contradictions(bent(**changed)))


def test_short_kernels_are_timed_by_their_own_clock() -> None:
    def by(one: Comparison, *names: str) -> Comparison:
        own = {n: getattr(one, n).model_copy(update={"source": "cupti"}) for n in names}
        return one.model_copy(update=own)

    found = certificate()
    sides = ("baseline", "candidate")
    own = {n: tuple(by(c, *sides) for c in getattr(found, n)) for n in ("comparisons", "fresh")}
    assert contradictions(bent(**own)) == ()
    mixed = bent(comparisons=tuple(by(c, "candidate") for c in found.comparisons))
    assert "times of w0 are by two clocks" in "; ".join(contradictions(mixed))


def test_a_gate_that_failed_is_not_talked_over() -> None:
    failed = with_gate(Gate(name="repeat", passed=False, summary="differs"))
    assert "follows rejected: repeat: differs" in contradictions(failed)[0]


def test_a_quarantined_gate_needs_a_persons_yes() -> None:
    held = with_gate(Gate(name="object", passed=False, quarantined=True, summary="clock64"))
    assert any("released: nothing" in line for line in contradictions(held))
    judgement = held.judgement
    yes = Gate(name="review", passed=True, summary="accepted by a, who releases object")
    *others, speedup, fresh = judgement.gates
    released = held.model_copy(
        update={
            "judgement": judgement.model_copy(update={"gates": (*others, yes, speedup, fresh)}),
            "review": Release(gates=("object",), summary=yes.summary),
        }
    )
    assert contradictions(released) == ()


def test_main_file_first() -> None:
    program = certificate().program
    files = (FileHash(path="a.cuh", sha256=HASH), *program.files)
    moved = bent(program=program.model_copy(update={"files": files}))
    assert "the main file is not the first" in contradictions(moved)[0]


def test_a_lenient_policy_is_seen() -> None:
    assert leniencies(Policy()) == ()
    lenient = Policy(confidence=0.5, max_error_factor=1e6, rtol_program=1.0, allow_precision="bf16")
    assert len(leniencies(lenient)) == 4


OUT = AnchorOutput(index=2, sha256="b" * 64)
EXACT = AnchorOutput(index=2, sha256="b" * 64, exact=True)
UNSTEADY = AnchorOutput(index=2, sha256=None)


@pytest.mark.parametrize(
    ("then", "now", "result", "says"),
    [
        ({}, {}, "equal", "1 of 1"),
        ({}, {"outputs": [OUT], "compiler": "nvcc 14"}, "differs", "bbbbbbbbbbbb by nvcc 14"),
        ({}, {"outputs": [UNSTEADY]}, "differs", "not the same in two runs now"),
        ({}, {"outputs": [], "problem": "timed out"}, "differs", "timed out"),
        ({}, {"inputs_sha256": "1" * 64}, "differs", "inputs"),
        ({}, {"executor": "cpu", "outputs": [OUT]}, "not_compared", "rounding"),
        ({"probe": "exact"}, {"executor": "cpu", "outputs": [EXACT]}, "differs", "bbbbbb"),
        ({"probe": "exact"}, {"executor": "cpu"}, "equal", "1 of 1"),
        ({"outputs": [UNSTEADY]}, {}, "not_compared", "differ from each other"),
        ({"outputs": [], "problem": "timed out"}, {}, "not_compared", "timed out"),
    ],
)
def test_anchors(then: dict[str, Any], now: dict[str, Any], result: str, says: str) -> None:
    old = anchor(**then)
    same = {"probe": old.probe, "outputs": anchor(old.probe).outputs}
    new = anchor(**{**same, **now})
    (check,) = compare_anchors((old,), (new,))
    assert check.result == result, check
    assert says in check.detail


def test_an_anchor_that_was_not_run_again_differs() -> None:
    (check,) = compare_anchors((anchor(),), ())
    assert check.result == "differs"


@pytest.mark.parametrize(
    ("ratio", "result"), [(2.0, "covered"), (2.02, "covered"), (1.8, "differs"), (2.2, "differs")]
)
def test_speedups_of_one_device_must_meet(ratio: float, result: str) -> None:
    found = compare_speedups(certificate(), "H200", certificate(ratio).judgement)
    assert found.result == result, found
    assert "in the certificate" in found.detail


def test_speedups_of_two_devices_are_not_compared() -> None:
    found = compare_speedups(certificate(), "A10", certificate(1.3).judgement)
    assert found.result == "not_compared"
