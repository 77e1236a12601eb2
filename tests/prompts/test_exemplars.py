"""Every exemplar is short, clean, compiles, and is right for the kernel that its comment names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudaops.cuda.subtypes import SUBTYPES
from cudaops.domain.judgement import Policy
from cudaops.domain.profile import Verdict
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import AccessSummary
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.gates.evaluate import evaluate
from cudaops.program.candidate import candidate_text
from cudaops.program.hygiene import check_source
from cudaops.program.parse import load_program
from cudaops.program.plans import make_rewrite
from cudaops.prompts.exemplars import NEAREST, exemplar_for, read_exemplar
from cudaops.sandbox.workbench import open_workbench
from tests.lanes import mostly_deep

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted({*NEAREST.values()})
ANY_SPEED = 0.001
"""The bar: at these sizes a modelled time says nothing."""


def rewrite(name: str) -> Rewrite:
    return make_rewrite(read_exemplar(name).text, "test", name, "an exemplar")


def test_every_subtype_has_an_exemplar_and_every_file_is_one() -> None:
    assert set(NEAREST) == set(SUBTYPES)
    folder = Path(__file__).parents[2] / "cudaops" / "prompts" / "exemplars"
    assert sorted(path.stem for path in folder.iterdir()) == NAMES
    assert sorted(path.stem for path in PROGRAMS.iterdir()) == NAMES


@pytest.mark.parametrize("subtype", SUBTYPES)
def test_exemplar_of_a_verdict(subtype: str) -> None:
    verdict = Verdict(
        bottleneck_class="unknown", subtype=subtype, summary="", evidence=(), relief="",
        source="modelled",
    )  # fmt: skip
    nearest = exemplar_for(verdict, ())
    assert nearest is not None
    assert nearest.name == NEAREST[subtype]


def test_a_kernel_that_reads_nothing_gets_no_exemplar_of_another_family() -> None:
    """A Mandelbrot set is FP64-bound, and has no operands to tile."""
    verdict = Verdict(
        bottleneck_class="compute_bound", subtype="fp64_pipe", summary="", evidence=(), relief="",
        source="modelled",
    )  # fmt: skip
    written = AccessSummary(
        kind="write", array="out", space="global", element="int", index="at.x", step="adjacent"
    )
    read = written.model_copy(update={"kind": "read", "array": "A", "loops": ("k: 1024x",)})
    assert exemplar_for(verdict, (written,)) is None
    assert exemplar_for(verdict, (written, read)) is None
    other = read.model_copy(update={"array": "B"})
    nearest = exemplar_for(verdict, (written, read, other))
    assert nearest is not None
    assert nearest.name == "tiled_product"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short_and_clean_and_its_plan_reads(name: str) -> None:
    found = rewrite(name)
    assert check_source(found.source) == ()
    assert len(found.source.splitlines()) <= 60
    assert found.plan.tune
    assert all(2 <= len(tune.values) <= 4 for tune in found.plan.tune)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_for_the_kernel_that_its_comment_names(name: str) -> None:
    program = load_program(PROGRAMS / f"{name}.cu")
    (kernel,) = program.kernels
    parameters = ", ".join(f"{p.type_text} {p.name}" for p in kernel.parameters)
    comment = re.split(r"^// @", read_exemplar(name).text, maxsplit=1, flags=re.MULTILINE)[0]
    assert f"{kernel.name}({parameters})" in " ".join(comment.replace("//", " ").split())


@pytest.mark.parametrize("name", mostly_deep(NAMES, 2))
def test_it_passes_every_gate(name: str, tmp_path: Path, kernels: Path) -> None:
    bench = open_workbench(
        load_program(PROGRAMS / f"{name}.cu"), None, (), CpuExecutor("A10", kernels),
        Policy(min_speedup=ANY_SPEED), tmp_path / "bench", sm_arch="sm_86", timeout_s=120.0,
    )  # fmt: skip
    tried = rewrite(name)
    last = {tune.name: tune.values[-1] for tune in tried.plan.tune}
    for each in (tried, tried.tuned_with(last)):
        judgement = evaluate(bench, each, ANY_SPEED).judged(bench.policy)
        assert judgement.outcome == "provisional", judgement.reason


@pytest.mark.nvcc
@pytest.mark.parametrize("name", NAMES)
def test_nvcc_compiles_it(name: str, tmp_path: Path, run_nvcc: Callable[[Path], str]) -> None:
    source = tmp_path / "candidate.cu"
    source.write_text(candidate_text(rewrite(name), dialect="cuda"), "utf-8")
    assert run_nvcc(source) == ""


@pytest.fixture
def run_nvcc() -> Callable[[Path], str]:
    """Compiles to a cubin with warnings and returns what nvcc says."""

    def compiled(source: Path) -> str:
        nvcc = find_nvcc()
        assert nvcc is not None
        command = [str(nvcc), "-cubin", "-arch=sm_86", "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, timeout=300, check=False
        )
        return done.stdout + done.stderr + ("" if done.returncode == 0 else "failed")

    return compiled
