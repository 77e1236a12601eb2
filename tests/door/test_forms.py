"""Programs in the forms that people have: one construct each, through `profile` and `verify`.

A form is a file, or a folder with a `main.cu` and what that reads, under `forms/`. Comments at its
head say how its author compiles and runs it (`// nvcc: -std=c++20`, `// args: 64 < in.txt`,
`// exit code: 1`, `// timeout: 15` for the seconds of one run), and `// not yet: why` what is not
taken: the test says so once it is. `// no rewrite: why` is in what a rewrite is refused with where
the kernel can be profiled alone, `// no rewrite on cpu: why` where that is so there.
The rewrite is one by hand where the kernel sums rows, else the author's kernel by another name.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaops.cli.boundary import run_command
from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.cuda.toolchain import nvcc_for
from cudaops.gates.evaluate import evaluate
from cudaops.graph.services import open_bench
from cudaops.graph.verify_files import read_candidate
from cudaops.sandbox.workbench import Workbench
from cudaops.transformations.draft import Draft, Subject

FORMS = Path(__file__).with_name("forms")
REWRITE = Path(__file__).with_name("rowsum.cu")
SUMS_ROWS = re.compile(
    r"^__global__ void rowsum\(const float \*a, float \*s, int rows, int cols\)", re.MULTILINE
)
_HEAD = re.compile(
    r"^// (nvcc|args|exit code|timeout|not yet(?: on cuda)?|no rewrite(?: on cpu)?): (.+)$",
    re.MULTILINE,
)


class Form(NamedTuple):
    """One program."""

    path: Path
    said: dict[str, str]
    text: str

    @property
    def name(self) -> str:
        """Of the construct."""
        return self.path.stem if self.path.parent == FORMS else self.path.parent.name

    @property
    def words(self) -> list[str]:
        """Options that its author's habits need."""
        flags = {
            "nvcc": "--nvcc",
            "args": "--args",
            "exit code": "--exit-code",
            "timeout": "--timeout",
        }
        given = [(flags[name], value) for name, value in self.said.items() if name in flags]
        return ["--json", *(word for pair in given for word in pair)]


def read_forms() -> list[Form]:
    """All of them, in the order of their names."""
    files = [*FORMS.glob("*.cu"), *FORMS.glob("*/main.cu")]
    found = [
        Form(f, dict(_HEAD.findall(f.read_text("utf-8"))), f.read_text("utf-8")) for f in files
    ]
    return sorted(found, key=lambda form: form.name)


def parameters(forms: list[Form]) -> list[object]:
    """On each executor, with those that are not taken yet as failures that must stay ones."""
    return [
        pytest.param(form, executor, id=f"{form.name}-{executor}", marks=marks_of(form, executor))
        for executor in ("cpu", "cuda")
        for form in forms
    ]


def marks_of(form: Form, executor: str) -> list[pytest.MarkDecorator]:
    """Of one form on one executor."""
    marks = [pytest.mark.gpu, pytest.mark.nvcc] if executor == "cuda" else []
    why = form.said.get("not yet", form.said.get(f"not yet on {executor}"))
    return (
        marks if why is None else [*marks, pytest.mark.xfail(strict=executor == "cpu", reason=why)]
    )


def placed(form: Form, folder: Path) -> Path:
    """The form in a folder of its own, as its author has it."""
    if form.path.parent == FORMS:
        return Path(shutil.copy(form.path, folder / form.path.name))
    shutil.copytree(form.path.parent, folder, dirs_exist_ok=True)
    return folder / form.path.name


def opened(form: Form, executor: str, folder: Path, builds: Path) -> Workbench:
    """Place the form in a folder and capture it. The working folder must be that folder."""
    source = placed(form, folder)
    limit = {"timeout_seconds": float(form.said["timeout"])} if "timeout" in form.said else {}
    options = RunOptions(
        source=str(source),
        working_folder=str(folder),
        # Which of two kernels is the hottest is another one on a GPU.
        kernel="rowsum" if SUMS_ROWS.search(form.text) else None,
        nvcc=form.said.get("nvcc"),
        argument_lines=(form.said["args"],) if "args" in form.said else (),
        exit_code=int(form.said.get("exit code", "0")),
        policy=Policy(min_speedup=0.001),
        out=str(folder / "run"),
        **limit,
    )
    runs_on: Executor = (
        CpuExecutor("A10", builds, program_folder=folder)
        if executor == "cpu"
        else CudaExecutor(None, builds, driver="nvidia", program_folder=folder)
    )
    return open_bench(options, runs_on)


def trivial_rewrite(bench: Workbench, form: Form) -> Rewrite:
    """One that computes the same."""
    if SUMS_ROWS.search(form.text):
        return read_candidate(bench, REWRITE)
    return Draft.of(Subject(bench.program, bench.kernel, bench.workloads)).rewrite()


@pytest.mark.parametrize(("form", "executor"), parameters(read_forms()))
def test_it_is_profiled(
    form: Form,
    executor: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = placed(form, tmp_path)
    monkeypatch.chdir(tmp_path)
    code = run_command(["profile", source.name, "--executor", executor, *form.words])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert json.loads(told.out)["verdict"]


def refusals(form: Form, executor: str, folder: Path, builds: Path) -> list[str]:
    """What a trivial rewrite is refused for, or the form where one would be judged."""
    try:
        bench = opened(form, executor, folder, builds)
    except InputError as error:
        return [str(error)]
    try:
        evaluation = evaluate(bench, trivial_rewrite(bench, form), bench.policy.min_speedup)
    except InputError as error:
        return [str(error)]
    finally:
        close_executor(bench.executor)
    refused = [f"{g.name}: {g.summary}" for g in evaluation.gates if not g.passed]
    asked = bench.executor.name == "cpu" and nvcc_for(bench.program) is not None
    assert refused or asked == ("nvcc_compile" in {gate.name for gate in evaluation.gates})
    return refused


@pytest.mark.deep
@pytest.mark.parametrize(("form", "executor"), parameters(read_forms()))
def test_a_trivial_rewrite_of_it_passes_every_gate_of_results(
    form: Form, executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = refusals(form, executor, tmp_path, kernels)
    why = form.said.get("no rewrite", form.said.get(f"no rewrite on {executor}"))
    if why is None:
        assert refused == []
    else:
        assert len(refused) == 1
        assert why in refused[0]
