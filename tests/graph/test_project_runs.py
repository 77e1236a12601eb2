"""A project's kernel from `--build` to the author's own files and out of them again."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cudaops
from cudaops.cli import app
from cudaops.errors import InputError

PROJECT = Path(__file__).parents[1] / "data" / "projects" / "filters"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(PROJECT, tmp_path / "filters"))
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_improved_applied_and_reverted(project: Path, tmp_path: Path) -> None:
    before = contents(project)
    record = cudaops.optimize(
        "src/blur.cu",
        build_command="make",
        run_command="./app",
        argument_lines=("judged: 70 50", "timed: 1024 512"),
        executor="cpu",
        device="H200",
        max_iterations=1,
        budget_minutes=0.5,
        use_memory=False,
        out=tmp_path / "run",
    )
    assert record.outcome == "provisional", record.reason
    assert contents(project) == before
    run = Path(record.options.out)
    patched = tmp_path / "patched"
    shutil.copytree(project, patched)
    subprocess.run(["patch", "-p1", "-i", run / "best.patch"], cwd=patched, check=True)

    shell = CliRunner()
    applied = shell.invoke(app, ["apply", str(run)], catch_exceptions=False)
    assert applied.stdout == f"rewritten: {project / 'src/blur.cu'}\n"
    assert contents(project) == contents(patched)
    subprocess.run(
        ["make", "CXX=nvcc"], cwd=patched, check=True, capture_output=True
    )  # by the real nvcc
    with pytest.raises(InputError, match="is already as it was; nothing was changed"):
        shell.invoke(app, ["apply", str(run)], catch_exceptions=False)
    shell.invoke(app, ["apply", str(run), "--revert"], catch_exceptions=False)
    assert contents(project) == before
    (project / "src" / "blur.cu").write_text("// edited since\n")
    with pytest.raises(InputError, match="was changed since the run; nothing was changed"):
        shell.invoke(app, ["apply", str(run)], catch_exceptions=False)

    checked = shell.invoke(app, ["certify", "check", str(run / "certificate.json")])
    assert checked.exit_code == 0, checked.stdout
    files = json.loads((run / "certificate.json").read_text("utf-8"))
    assert "state/tree.tar" in json.dumps(files)
    told = shell.invoke(app, ["report", str(run)], catch_exceptions=False).stdout
    assert f"$ python -m cudaops apply {run}\n" in told
    assert "$ make && ./app ...\n" in told


def test_a_build_whose_program_launches_nothing(project: Path, tmp_path: Path) -> None:
    kernel = project / "src" / "scale.cu"
    kernel.write_text(kernel.read_text("utf-8").split("void scale(")[0])
    (project / "src" / "launch.cu").write_text(
        "__global__ void scale_kernel(float*, float, int);\n"
        "void scale(float* v, float by, int n) { scale_kernel<<<1, 64>>>(v, by, n); }\n"
        "int main() {}\n"
    )
    with pytest.raises(InputError, match="the program launched no kernel"):
        cudaops.optimize(
            "src/scale.cu",
            build_command="nvcc -rdc=true src/scale.cu src/launch.cu -o app",
            executor="cpu",
            use_memory=False,
            out=tmp_path / "run",
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"run_command": "./app"}, "these run on a GPU alone: --executor cuda"),
        (
            {"build_command": "make", "run_command": "N=1 ./app"},
            "must begin with the program's path",
        ),
        ({"build_command": "make", "run_command": "./app '"}, "No closing quotation"),
        (
            {"build_command": "make", "run_command": "./app 5", "argv": ("6",)},
            "give the program's arguments with --run or otherwise, not both",
        ),
    ],
)
def test_what_is_asked_for_wrongly(project: Path, given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as refused:
        cudaops.optimize("src/blur.cu", executor="cpu", **given)
    assert says in str(refused.value)
