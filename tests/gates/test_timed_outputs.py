"""The gate over results of timed launches: what it refuses, quarantines and lets by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Measurement, TimedOutput, TimeSource, Timing
from cudaops.domain.judgement import Comparison, Gate, Policy
from cudaops.domain.workload import Allocation, Element, PointerArgument, Role, Workload
from cudaops.executors.base import InputSet
from cudaops.gates.timed_outputs import LEAST_SEEN, timed_outputs_gate
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.timed_references import timed_references

COUNT = 1000
RIGHT = np.linspace(1, 2, COUNT, dtype=np.float32)
OTHER = np.linspace(-2, 3, COUNT, dtype=np.float32)


class Scene(NamedTuple):
    """Files of results, and the references they are compared with."""

    folder: Path
    oracle: Oracle

    def file(self, values: Any) -> dict[int, str]:
        path = self.folder / f"result{len(list(self.folder.iterdir()))}.bin"
        np.asarray(values, np.float32).tofile(path)
        return {1: str(path)}

    def outputs(self, captured: Any = RIGHT, other: Any = OTHER) -> tuple[TimedOutput, ...]:
        every = tuple(range(40))
        return (
            TimedOutput(inputs=0, files=self.file(captured), cold=every, warm=every),
            TimedOutput(inputs=1, files=self.file(other), apart=14),
        )

    def with_one(self, who: str, measured: Measurement) -> Gate:
        if who == "baseline":
            return self.gate(baseline=measured)
        return self.gate(measured)

    def gate(
        self, candidate: Measurement | None = None, baseline: Measurement | None = None
    ) -> Gate:
        compared = Comparison(
            workload="w0",
            weight=1.0,
            baseline=baseline or side(self.outputs()),
            candidate=candidate or side(self.outputs()),
        )
        return timed_outputs_gate([self.oracle], [compared], Policy())


def side(
    outputs: tuple[TimedOutput, ...],
    us: float = 100.0,
    apart_us: tuple[float, ...] = (100.0,) * 7,
    source: TimeSource = "cuda_event",
    **more: Any,
) -> Measurement:
    timing = Timing(
        regime="warm",
        timed_outputs=outputs,
        outputs_looked_at=94,
        outputs_taken=94,
        apart_us=apart_us,
        **more,
    )
    samples = (us,) * 40
    return Measurement(
        source=source, device="H200", samples_us=samples, workload="w0", timing=timing
    )


def allocation(index: int, role: Role, element: Element = "f32") -> Allocation:
    return Allocation(
        index=index, size_bytes=4 * COUNT, element=element, role=role, before="", after=""
    )


def oracle_of(folder: Path, *, unwritten: bool = False) -> Oracle:
    files = {}
    for name, values in (("captured", RIGHT), ("other", OTHER)):
        files[name] = {1: str(folder / f"{name}.bin")}
        values.tofile(files[name][1])
    workload = Workload(
        id="w0",
        kernel="k",
        callee="k",
        site=0,
        grid=Dim3(),
        block=Dim3(),
        arguments=(
            PointerArgument(name="a", element="f32", allocation=0),
            PointerArgument(name="b", element="f32", allocation=1),
        ),
        allocations=(allocation(0, "in"), allocation(1, "out")),
        folder=str(folder),
    )
    inputs, why = InputSet(contents={}), "none here"
    captured = Reference("captured", inputs, files["captured"], None, why)
    other = Reference("signed", inputs, files["other"], None, why, unwritten)
    return Oracle(workload, captured, (other,), captured)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, oracle_of(tmp_path))


def test_right_results_pass_with_their_counts(scene: Scene) -> None:
    gate = scene.gate()
    assert (gate.name, gate.passed, gate.quarantined) == ("timed_outputs", True, False)
    assert gate.summary == "188 of 188 timed launches checked, 4 distinct results, all right"
    assert gate.numbers["looked_at_candidate_w0"] == 94


def test_what_the_author_leaves_in_several_orders_is_a_set(scene: Scene) -> None:
    turned, wrong = RIGHT[::-1], np.where(RIGHT > 1.5, RIGHT, 1.0)
    (first, other), more = (
        scene.outputs(),
        TimedOutput(inputs=0, files=scene.file(turned), warm=(3,)),
    )
    assert not scene.gate(side((first, other, more))).passed
    author = side((first, other, more))
    gate = scene.gate(side(scene.outputs(captured=np.roll(RIGHT, 7))), author)
    assert gate.passed, gate.line
    assert not scene.gate(side(scene.outputs(captured=np.roll(wrong, 7))), author).passed


def test_other_bits_of_the_same_sum_pass(scene: Scene) -> None:
    rounded = RIGHT * (1 + 5e-7 * np.resize([1.0, -1.0, 0.0], COUNT))
    more = TimedOutput(inputs=0, files=scene.file(rounded), cold=(3,))
    gate = scene.gate(side((*scene.outputs(), more)))
    assert gate.passed, gate.line
    assert 0 < gate.numbers["b_relative_l2"] < 1e-6


def test_one_wrong_sample_is_enough(scene: Scene) -> None:
    broken = RIGHT.copy()
    broken[500] = 0.0
    more = TimedOutput(inputs=0, files=scene.file(broken), warm=(17,))
    gate = scene.gate(side((*scene.outputs(), more)))
    assert not gate.passed
    assert not gate.quarantined
    said = "the candidate on w0 was wrong while it was timed (1 warm sample, captured inputs): b"
    assert gate.summary.startswith(said)


def test_a_result_that_belongs_to_other_inputs(scene: Scene) -> None:
    gate = scene.gate(side(scene.outputs(other=RIGHT)))
    assert not gate.passed
    assert "(14 launches between them, signed inputs)" in gate.summary


def test_a_baseline_that_was_wrong_while_it_was_timed(scene: Scene) -> None:
    gate = scene.gate(baseline=side(scene.outputs(captured=OTHER)))
    assert not gate.passed
    assert gate.summary.startswith("the author's own kernel on w0 was wrong while it was timed")


@pytest.mark.parametrize("who", ["baseline", "candidate"])
def test_nothing_looked_at_fails(scene: Scene, who: str) -> None:
    gate = scene.with_one(who, side(()))
    assert not gate.passed
    assert "the results of its timed launches were not checked" in gate.summary
    bare = Measurement(source="modelled", device="A10", samples_us=(1.0,), workload="w0")
    assert not scene.with_one(who, bare).passed


def test_too_little_looked_at_fails(scene: Scene) -> None:
    captured, other = scene.outputs()
    few = captured.model_copy(update={"cold": (), "warm": tuple(range(LEAST_SEEN - 1))})
    gate = scene.gate(side((few, other)))
    assert not gate.passed
    assert f"only {LEAST_SEEN - 1} of its timed results could be checked" in gate.summary
    gate = scene.gate(side((captured,)))
    assert not gate.passed
    assert "no launch on other inputs was mixed into its samples" in gate.summary


def test_results_without_a_reference_or_a_buffer_fail(scene: Scene) -> None:
    captured, other = scene.outputs()
    strange = other.model_copy(update={"inputs": 2})
    gate = scene.gate(side((captured, other, strange)))
    assert "inputs that have no reference" in gate.summary
    gone = captured.model_copy(update={"files": {1: str(scene.folder / "gone.bin")}})
    assert "cannot be read" in scene.gate(side((gone, other))).summary
    missing = captured.model_copy(update={"files": {}})
    assert not scene.gate(side((missing, other))).passed
    nothing = timed_outputs_gate([], [], Policy())
    assert (nothing.passed, nothing.summary) == (False, "nothing was timed")
    compared = Comparison(
        workload="w7", weight=1.0, baseline=side((captured,)), candidate=side((captured,))
    )
    assert not timed_outputs_gate([scene.oracle], [compared], Policy()).passed


class TestReplay:
    """Right everywhere, and as quick as it is on the captured inputs only."""

    def test_it_is_quarantined(self, scene: Scene) -> None:
        quick = side(scene.outputs(), us=10.0, apart_us=(90.0,) * 7)
        gate = scene.gate(quick)
        assert (gate.passed, gate.quarantined) == (False, True)
        assert "takes 10.0 us on the captured inputs and 90.0 us on others" in gate.summary

    def test_a_kernel_whose_time_depends_on_its_inputs_is_no_replay(self, scene: Scene) -> None:
        """The baseline's does too."""
        quick = side(scene.outputs(), us=10.0, apart_us=(90.0,) * 7)
        slow = side(scene.outputs(), us=100.0, apart_us=(600.0,) * 7)
        assert scene.gate(quick, slow).passed

    def test_a_launch_alone_pays_for_its_events(self, scene: Scene) -> None:
        """The samples of a short kernel are many launches, those apart are one."""
        repeated = side(
            scene.outputs(),
            us=2.0,
            apart_us=(7.5,) * 7,
            launches_a_sample=10,
            event_overhead_us=1.5,
        )
        assert scene.gate(repeated, repeated).passed

    def test_a_stand_ins_times_say_nothing(self, scene: Scene) -> None:
        quick = side(scene.outputs(), us=10.0, apart_us=(90.0,) * 7, source="standin")
        assert scene.gate(quick).passed

    def test_a_wrong_result_is_no_matter_for_a_person(self, scene: Scene) -> None:
        wrong = side(scene.outputs(other=RIGHT), us=10.0, apart_us=(90.0,) * 7)
        assert not scene.gate(wrong).quarantined


def test_a_reference_with_unwritten_places_is_not_timed(tmp_path: Path) -> None:
    """What stood there before differs between the reference and a timed launch."""
    assert len(timed_references(oracle_of(tmp_path))) == 2
    assert len(timed_references(oracle_of(tmp_path, unwritten=True))) == 1
