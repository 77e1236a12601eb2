"""Whole runs of problems by the command line: in, improved, out again, and nothing left behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import cudaops
from cudaops.cli import app
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples" / "problems"


def shell(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)


def report_of(run: Path) -> str:
    """Without Markdown's escapes."""
    return (run / "report.md").read_text("utf-8").replace("\\", "")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, in a folder of the tests' own."""
    return Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("problem") / "problems"))


@pytest.fixture(scope="module")
def improved(problem: Path) -> RunRecord:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(problem)
        return cudaops.optimize(
            "softmax.py",
            kernel_source="softmax.cu",
            executor="cpu",
            optimizer="recipes",
            max_iterations=1,
            max_trials=1,
            use_memory=False,
            out=problem.parent / "run",
        )


def test_a_function_is_improved_applied_and_reverted(improved: RunRecord, problem: Path) -> None:
    assert improved.outcome == "provisional", improved.reason
    assert improved.program is not None
    assert improved.program.reference == "function"
    run, source = Path(improved.options.out), problem / "softmax.cu"
    before = source.read_text("utf-8")
    best = (run / "best.cu").read_text("utf-8")
    assert "launch_kernels(" in best
    assert "int main" not in best
    patched = Path(shutil.copytree(problem, problem.parent / "patched"))
    subprocess.run(["patch", "-p1", "-i", run / "best.patch"], cwd=patched, check=True)
    assert (patched / "softmax.cu").read_text("utf-8") == best
    assert shell("apply", run).stdout == f"rewritten: {source}\n"
    assert source.read_text("utf-8") == best
    assert shell("apply", run, "--revert").stdout == f"as it was: {source}\n"
    assert source.read_text("utf-8") == before
    assert not (run / "model_new.py").exists()
    said = shell("report", run).stdout.partition("What to do next")[2]
    assert f"cudaops apply {run}" in said
    assert "nvcc -O3" not in said


@pytest.mark.deep
def test_it_is_confirmed_elsewhere(improved: RunRecord, problem: Path) -> None:
    """From a copy of the run folder; the problem's own file is where it was."""
    copy = Path(shutil.copytree(improved.options.out, problem.parent / "copy"))
    done = shell("confirm", copy, "--executor", "cpu")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("holds: provisional")
    script = problem / "softmax.py"
    text = script.read_text("utf-8")
    script.write_text(text + "\n# edited\n", "utf-8")
    try:
        with pytest.raises(InputError, match="was changed since the run"):
            shell("confirm", copy, "--executor", "cpu")
    finally:
        script.write_text(text, "utf-8")


@pytest.mark.deep
def test_a_model_gets_its_new_class_whatever_comes_of_it(
    problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(problem)
    asked = (("row_scale", 1.2, "provisional"), ("scaled", 10.0, "nothing_found"))
    for kernel, min_speedup, outcome in asked:
        record = cudaops.optimize(
            "row_norm.py",
            kernel_source="row_norm.cu",
            kernel=kernel,
            executor="cpu",
            optimizer="recipes",
            max_iterations=1,
            max_trials=1,
            min_speedup=min_speedup,
            use_memory=False,
            out=tmp_path / kernel,
        )
        assert record.outcome == outcome, record.reason
        text = (tmp_path / kernel / "model_new.py").read_text("utf-8")
        assert "class ModelNew(ModelReference):" in text
        assert ("namespace cudaops_row_scale" in text) == (outcome == "provisional")
        assert "model_new.py" in report_of(tmp_path / kernel)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("softmax.py",), "softmax.py is Python; name the kernels for it with --source K.cu"),
        (("softmax.cu", "--source", "softmax.cu"), "--source names the kernels for a reference in"),
        (("softmax.py", "--source", "none.cu"), "none.cu: no such file"),
        (("softmax.py", "--source", "softmax.cu", "--args", "3"), "a problem has no arguments"),
        (("softmax.py", "--source", "softmax.cu", "--odd-sizes"), "a problem has no arguments"),
        (("softmax.py", "--source", "softmax.cu", "--", "3"), "a problem has no arguments"),
        (("softmax.py", "--source", "softmax.cu", "--build", "make"), "--build is for projects"),
        (("softmax.py", "--python", "python3"), "name the kernels for it with --source"),
        (("softmax.py", "--source", "softmax.py"), "run it on a GPU: --executor cuda"),
        (("softmax.py", "--build", "make"), "with --build name the CUDA file that is compiled"),
        (("softmax.cu", "--python", "python3"), "--python is for programs in Python"),
        (("softmax.py", "--source", "row_norm.cu"), "row_norm.cu:4:87: unknown name `features`"),
        (("wrong.py", "--source", "softmax.cu"), "softmax.cu does not compute what wrong.py does"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: tuple[str, ...],
    told: str,
    problem: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(problem)
    wrong = (problem / "softmax.py").read_text("utf-8").replace("e / e.sum", "e * e / e.sum")
    (problem / "wrong.py").write_text(wrong, "utf-8")
    with pytest.raises(InputError) as refused:
        shell("run", "--executor", "cpu", "--out", tmp_path / "run", *words)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()
