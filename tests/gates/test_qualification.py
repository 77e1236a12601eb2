"""Which wrong results an oracle refuses, and what is said of one that cannot tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Compiled, Misbehaved, Ran
from cudaops.domain.judgement import Policy, Qualification
from cudaops.domain.options import Precision
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    Allocation,
    Element,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.executors.arrays import Array, read_array, write_array
from cudaops.executors.base import InputSet
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.operands import Rerun
from cudaops.gates.qualification import qualify
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan
from cudaops.sandbox.inputs import CaseKind
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.workbench import Workbench, open_workbench
from tests.executors.cases import program

POLICY = Policy(min_speedup=0.001, seed=3)
SIDE = 32

Compute = Callable[[Array], Array]
"""From the input in double to the output in double, both flat."""


class Made:
    """An oracle of a kernel `k(a, b, N)` that computes `b` from `a`, both of SIDE x SIDE."""

    def __init__(self, folder: Path, compute: Compute, element: Element = "f32") -> None:
        self.folder, self.compute, self.element = folder, compute, element
        self.runs = 0
        generator = np.random.default_rng(8)
        size = SIDE * SIDE
        draws: dict[CaseKind, Array] = {
            "captured": generator.random(size),
            "exact": generator.integers(-3, 4, size).astype(np.float64),
            "signed": generator.standard_normal(size),
            "positive": generator.uniform(0.1, 1.0, size),
            "structured": np.where(generator.random(size) < 0.1, 20.0, 0.0),
        }
        if element == "i32":
            draws = {kind: np.rint(100 * values) for kind, values in draws.items()}
        found = {kind: self.reference(kind, values) for kind, values in draws.items()}
        (folder / "after").write_bytes(Path(found["captured"].outputs[1]).read_bytes())
        write_array(folder / "before", np.zeros(size), element)
        perturbed = tuple(found[k] for k in found if k not in ("captured", "exact"))
        self.oracle = Oracle(self.workload(), found["captured"], perturbed, found["exact"])

    def reference(self, kind: CaseKind, values: Array) -> Reference:
        path = self.folder / f"{kind}_in"
        write_array(path, values, self.element)
        inputs = InputSet(contents={0: str(path), 1: str(self.folder / "before")}, poison={1: 0x5A})
        outputs = self.outputs(inputs, self.folder / kind)
        if self.element == "i32":
            return Reference(kind, inputs, outputs, None, "integers")
        wide = self.folder / f"{kind}_wide"
        self.compute(read_array(path, self.element).astype(np.float64)).astype("<f8").tofile(wide)
        return Reference(kind, inputs, outputs, {1: str(wide)})

    def outputs(self, inputs: InputSet, folder: Path) -> dict[int, str]:
        """What the baseline writes: the double result, rounded once to the buffer's type."""
        folder.mkdir(parents=True, exist_ok=True)
        values = read_array(inputs.contents[0], self.element).astype(np.float64)
        write_array(folder / "out", self.compute(values), self.element)
        return {1: str(folder / "out")}

    def rerun(self, oracle: Oracle, inputs: InputSet, folder: Path) -> Ran | Misbehaved:
        self.runs += 1
        return Ran(outputs=self.outputs(inputs, folder), seconds=0.0)

    def workload(self) -> Workload:
        size = SIDE * SIDE * ELEMENT_BYTES[self.element]
        a = Allocation(
            index=0, size_bytes=size, element=self.element, role="in",
            before="captured_in", after="captured_in",
        )  # fmt: skip
        b = a.model_copy(update={"index": 1, "role": "out", "before": "before", "after": "after"})
        arguments = (
            PointerArgument(name="a", element=self.element, allocation=0),
            PointerArgument(name="b", element=self.element, allocation=1),
            ScalarArgument(name="N", element="i32", value=SIDE),
        )
        return Workload(
            id="w0", kernel="k", callee="k", site=0, grid=Dim3(), block=Dim3(x=32),
            arguments=arguments, allocations=(a, b), folder=str(self.folder),
        )  # fmt: skip


def outcome(found: Qualification, name: str, buffer: str = "b") -> str:
    control = found.control(name, buffer)  # type: ignore[arg-type]
    assert control is not None, name
    return control.outcome


def square(a: Array) -> Array:
    x = a.reshape(SIDE, SIDE)
    return (x @ x).ravel()


def test_a_product_tells_everything_apart(tmp_path: Path) -> None:
    found = qualify([Made(tmp_path, square).oracle], POLICY)
    assert found.weak == ()
    assert found.baseline_passes
    assert found.yardstick
    assert found.input_sets == 5
    applied = [c for c in found.controls if c.outcome != "not_applicable"]
    assert {c.outcome for c in applied} == {"caught"}
    assert {c.name for c in applied} >= {
        "zeros", "constant", "not_a_number", "input_copied", "unwritten", "stale", "replayed",
        "half_written", "shuffled", "one_off", "rounded_tf32", "rounded_bf16", "operands_tf32",
    }  # fmt: skip
    assert all(c.caught_by is not None and c.why for c in applied)
    assert outcome(found, "rounded_f32") == "not_applicable"
    assert found.statistics[0].changed_share == 1.0
    assert found.seconds < 60.0
    assert Qualification.model_validate_json(found.model_dump_json()) == found


def test_a_constant_output_makes_the_oracle_weak(tmp_path: Path) -> None:
    found = qualify([Made(tmp_path, lambda a: 0 * a + 3.0).oracle], POLICY)
    for name in ("constant", "shuffled", "replayed", "rounded_tf32"):
        assert outcome(found, name) == "missed", name
    assert outcome(found, "zeros") == "caught"
    assert any("does not depend on the inputs" in sentence for sentence in found.weak)
    assert any("one constant everywhere passes on every input set" in s for s in found.weak)
    assert found.statistics[0].std == 0.0
    assert "rows of N = 32" in found.statistics[0].constant_along
    assert "the oracle is weak" in found.line


def test_zeros_everywhere_are_not_told_from_zeros(tmp_path: Path) -> None:
    found = qualify([Made(tmp_path, lambda a: 0 * a).oracle], POLICY)
    assert outcome(found, "zeros") == "missed"
    assert outcome(found, "one_off") == "caught"


def test_a_copy_is_not_told_from_its_input(tmp_path: Path) -> None:
    found = qualify([Made(tmp_path, lambda a: a).oracle], POLICY)
    assert [c.of for c in found.controls if c.outcome == "missed"] == ["a"]
    assert len(found.weak) == 1
    assert found.weak[0].startswith("b: a copy of an input (a) passes on every input set (it is")


def test_what_is_the_same_along_rows_is_said(tmp_path: Path) -> None:
    def row_sums(a: Array) -> Array:
        return np.repeat(a.reshape(SIDE, SIDE).sum(axis=1), SIDE)

    found = qualify([Made(tmp_path, row_sums).oracle], POLICY)
    assert found.statistics[0].constant_along == ("rows of N = 32",)


def test_integers_have_no_lower_precision(tmp_path: Path) -> None:
    found = qualify([Made(tmp_path, lambda a: a + 1, "i32").oracle], POLICY)
    assert found.weak == ()
    assert outcome(found, "one_off") == "caught"
    for name in ("rounded_bf16", "operands_tf32", "not_a_number"):
        assert outcome(found, name) == "not_applicable"


@pytest.mark.parametrize(
    ("element", "lower", "not_lower"),
    [("f64", "rounded_f32", None), ("f16", "rounded_bf16", "rounded_tf32"),
     ("bf16", "rounded_e4m3", "rounded_fp16")],
)  # fmt: skip
def test_lower_is_what_the_buffer_is_above(
    tmp_path: Path, element: Element, lower: str, not_lower: str | None
) -> None:
    found = qualify([Made(tmp_path, square, element).oracle], POLICY)
    assert outcome(found, lower) == "caught"
    assert not_lower is None or outcome(found, not_lower) == "not_applicable"
    assert outcome(found, "one_off") == "caught"


@pytest.mark.parametrize(
    ("allowed", "caught"), [("tf32", "rounded_bf16"), ("fp16", "rounded_bf16"), ("bf16", None)]
)
def test_what_the_user_allowed_is_no_control(
    tmp_path: Path, allowed: Precision, caught: str | None
) -> None:
    policy = POLICY.model_copy(update={"allow_precision": allowed})
    found = qualify([Made(tmp_path, square).oracle], policy)
    assert found.weak == ()
    assert outcome(found, f"rounded_{allowed}") == "not_applicable"
    assert outcome(found, "rounded_e4m3") == "caught"
    assert caught is None or outcome(found, caught) == "caught"


def test_operands_are_really_rounded_where_the_baseline_can_run(tmp_path: Path) -> None:
    made = Made(tmp_path, square)
    found = qualify([made.oracle], POLICY, Rerun(tmp_path / "rerun", made.rerun))
    control = found.control("operands_tf32", "b")
    assert control is not None
    assert (control.outcome, control.caught_by) == ("caught", "w0 signed")
    bf16 = found.control("operands_bf16", "b")
    assert bf16 is not None
    assert (bf16.outcome, bf16.why) == ("caught", "lower precision than tf32, which is refused")
    assert made.runs == 2, "once more on the captured inputs, once rounded"
    assert found.operands_run


def test_a_program_blind_to_its_operands_precision_is_weak(tmp_path: Path) -> None:
    """Rounding changes no sign."""
    made = Made(tmp_path, lambda a: np.where(a > 0, 2.0, 1.0))
    found = qualify([made.oracle], POLICY, Rerun(tmp_path / "rerun", made.rerun, again=False))
    assert outcome(found, "operands_tf32") == "missed"
    assert any("operands in tf32 passes on every input set" in s for s in found.weak)


def test_a_baseline_that_refuses_itself_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path, square)

    def drifts(oracle: Oracle, inputs: InputSet, folder: Path) -> Ran | Misbehaved:
        ran = made.rerun(oracle, inputs, folder)
        assert isinstance(ran, Ran)
        values = read_array(ran.outputs[1], "f32") * np.float32(1.001)
        write_array(Path(ran.outputs[1]), values, "f32")
        return ran

    found = qualify([made.oracle], POLICY, Rerun(tmp_path / "rerun", drifts))
    assert not found.baseline_passes
    assert any("the baseline's own result is refused" in sentence for sentence in found.weak)


def opened(folder: Path, source: Path) -> Workbench:
    executor = CpuExecutor("A10", Path(os.environ["CUDAOPS_BUILDS"]))
    return open_workbench(
        load_program(source), None, (), executor, POLICY, folder / "run",
        sm_arch="sm_86", timeout_s=60.0,
    )  # fmt: skip


def qualified(bench: Workbench, folder: Path) -> Qualification:
    def run(oracle: Oracle, inputs: InputSet, target: Path) -> Ran | Misbehaved:
        compiled = bench.compile(None)
        assert isinstance(compiled, Compiled)
        plan = baseline_plan(oracle.workload)
        return bench.executor.run(compiled, oracle.workload, plan, inputs, target)

    oracles = [bench.oracle(workload) for workload in bench.workloads]
    return qualify(oracles, POLICY, Rerun(folder / "rerun", run))


def test_the_product_of_the_exploits_has_a_strong_oracle(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "exploits" / "mm.cu"
    found = qualified(opened(tmp_path, source), tmp_path)
    assert found.weak == (), found.line
    assert outcome(found, "operands_tf32", "C") == "caught"


def test_a_program_whose_output_is_constant_has_a_weak_one(tmp_path: Path) -> None:
    kernels = """
        __global__ void k(const float* a, float* b, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) b[i] = isnan(a[i]) ? 2.0f : 1.0f;
        }
    """
    main = """
        const int n = 1000;
        float h[n], *a, *b;
        for (int i = 0; i < n; ++i) h[i] = i;
        cudaMalloc(&a, sizeof h); cudaMalloc(&b, sizeof h);
        cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
        k<<<8, 128>>>(a, b, n);
        cudaMemcpy(h, b, sizeof h, cudaMemcpyDeviceToHost);
        printf("%f\\n", h[1]);
    """
    program(tmp_path, kernels, main)
    found = qualified(opened(tmp_path, tmp_path / "k.cu"), tmp_path)
    assert "b does not depend on the inputs" in found.weak
    for name in ("constant", "shuffled", "replayed", "operands_bf16"):
        assert outcome(found, name) == "missed", name
    assert outcome(found, "zeros") == "caught"
