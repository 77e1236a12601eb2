"""Triton programs through `verify`, `run` and `profile`, in Triton's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cudaops
from cudaops.cli import app
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from tests.triton.programs import EXAMPLES, REWRITES, SIZES, triton_python


def judged(name: str, out: Path) -> RunRecord:
    """The rewrite of this name against its example."""
    base = next(n for n in SIZES if name.endswith(n))
    return cudaops.verify(
        EXAMPLES / f"{base}.py",
        REWRITES / f"{name}.py",
        executor="cpu",
        python=triton_python(),
        argv=SIZES[base],
        out=out,
        seed=7,
    )


@pytest.mark.parametrize("name", ["right_vector_add", "right_layer_norm"])
def test_right_rewrites_match_and_have_no_time(name: str, tmp_path: Path) -> None:
    record = judged(name, tmp_path / "run")
    assert record.verify.correctness == "match", record.reason
    assert record.outcome == "nothing_found"
    assert record.reason.endswith("no time was measured")
    assert record.verify.speedup is None
    gates = {gate.name: gate for gate in record.verify.gates}
    assert "sets of inputs match" in gates["correctness_perturbed"].summary
    assert "smaller sizes" in gates["correctness_domain"].summary
    report = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "Triton's interpreter" in report
    assert "modelled" not in report
    assert not (tmp_path / "run" / "work").exists()
    assert "1024" in (tmp_path / "run" / "iterations" / "01" / "program.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("wrong_mask_vector_add", "checker"),
        ("wrong_inputs_vector_add", "unchanged_inputs"),
        ("wrong_precision_matmul", "correctness_captured"),
        ("wrong_host_vector_add", "hygiene"),
    ],
)
def test_wrong_rewrites_are_rejected_by_their_gate(name: str, gate: str, tmp_path: Path) -> None:
    record = judged(name, tmp_path / "run")
    failed = [g.name for g in record.verify.gates if not g.passed]
    assert failed[0] == gate
    assert record.outcome == "nothing_found"


def test_a_profile_lists_launches_and_what_is_tuned(tmp_path: Path) -> None:
    command = ["profile", str(EXAMPLES / "column_sum.py"), "--executor", "cpu"]
    words = ["--python", triton_python(), "--", *SIZES["column_sum"]]
    ran = CliRunner().invoke(app, [*command, *words], catch_exceptions=False)
    assert "1x column_sum on grid (3, 2)" in ran.stdout
    assert "BLOCK_R = 16: the tuner tries" in ran.stdout
    assert "BLOCK_C is not tuned: line 26: 64 stands in the grid" in ran.stdout


def test_a_python_without_torch_or_triton_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no torch; --python names one that has it") as told:
        cudaops.verify(
            EXAMPLES / "vector_add.py",
            REWRITES / "right_vector_add.py",
            executor="cpu",
            python=sys.executable,
            out=tmp_path / "run",
        )
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def refused(tmp_path: Path, text: str, **options: object) -> str:
    """What `optimize` says of a Python file."""
    path = tmp_path / "k.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as told:
        cudaops.optimize(path, out=tmp_path / "run", **{"executor": "cpu", **options})
    assert not (tmp_path / "run").exists()
    return str(told.value)


def test_bad_input_gets_one_line(tmp_path: Path) -> None:
    text = (EXAMPLES / "vector_add.py").read_text("utf-8")
    assert "no times, so nothing can be tuned on cpu" in refused(tmp_path, text)
    assert "have them in it as @triton.jit" in refused(tmp_path, "import triton\n")
    assert "for CUDA C++" in refused(tmp_path, text, nvcc="-O3")
    assert "does not run your Python" in refused(tmp_path, text, executor="remote")
    cuda = {"executor": "cuda", "review": lambda _: True}
    assert "--review is not supported" in refused(tmp_path, text, **cuda)


def test_a_rewrite_of_another_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"right_layer_norm.py has layer_norm, and vector_add.py"):
        cudaops.verify(
            EXAMPLES / "vector_add.py",
            REWRITES / "right_layer_norm.py",
            executor="cpu",
            out=tmp_path / "run",
        )
