"""Projects of several files, built by their own command with g++ and with nvcc."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.cli.boundary import run_command
from cudaops.domain.execution import Captured, CompileFailed, ProgramRan, Unit
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.cpu.build import project_tools as cpu_tools
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.report import read_report
from cudaops.executors.cuda.build import GpuBuilder, project_tools
from cudaops.executors.process import Finished
from cudaops.executors.project.tree import BuiltTree, build_failure, open_project
from cudaops.graph.resolve_options import source_file
from cudaops.program.front_end import kernel_form
from cudaops.program.patch import unified_patch
from cudaops.program.plans import make_rewrite
from cudaops.program.splice import splice

PROJECTS = Path(__file__).parents[2] / "data" / "projects"
BIN = Path(sys.executable).parent
OF_MACHINE = f"{platform.machine()}-linux-gnu-g++"
"""What Debian's Python links extensions with."""
CMAKE = (
    f"{BIN}/cmake -S . -B out -G Ninja -DCMAKE_MAKE_PROGRAM={BIN}/ninja && {BIN}/cmake --build out"
)


@pytest.fixture
def filters(tmp_path: Path) -> Path:
    """Make, separate compilation, a static library, C++ beside CUDA."""
    return Path(shutil.copytree(PROJECTS / "filters", tmp_path / "filters"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """CMake, two programs over one library, a template in a header."""
    return Path(shutil.copytree(PROJECTS / "rows", tmp_path / "rows"))


def digest_of(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)} {path.stat().st_mtime_ns}".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def opened(
    executor: CpuExecutor, folder: Path, source: str, command: str = "make", run: str | None = "app"
) -> Program:
    return executor.open_project(folder, folder / source, command, run)


def captured(executor: CpuExecutor, program: Program, folder: Path, *argv: str) -> Captured:
    outcome = executor.capture(program, None, argv, folder, 60.0)
    assert isinstance(outcome, Captured), outcome
    return outcome


def test_make_separate_compilation_and_a_library(
    cpu_executor: CpuExecutor, filters: Path, tmp_path: Path
) -> None:
    before = digest_of(filters)
    program = opened(cpu_executor, filters, "src/blur.cu")
    assert program.main_path == "src/blur.cu"
    assert [f.path for f in program.files] == [
        "src/blur.cu", "include/blur.cuh", "include/clamp.cuh",
    ]  # fmt: skip
    assert program.code_options == (("I", "include"), ("D", "RADIUS=2"))
    found = captured(cpu_executor, program, tmp_path / "w", "70", "50")
    assert found.kernel == "blur_kernel"
    assert {c.kernel for c in found.counts} == {"blur_kernel", "scale_kernel"}
    assert found.stdout.startswith("checksum ")
    assert kernel_form(program, program.kernels[0])  # clang knows include folders and macros too
    assert digest_of(filters) == before


def with_response_file(folder: Path, compiler: str) -> None:
    """Objects and libraries stand in a file that g++ or nvcc is given, as newer CMakes do it."""
    makefile = folder / "Makefile"
    words = "build/main.o -Llib -lfilters"
    is_host = compiler != "nvcc"
    more = " -L$(CUDA_HOME)/lib64 -lcudart" if is_host else ""
    flag = "@app.rsp" if is_host else "--options-file app.rsp"
    command = compiler if is_host else "$(NVCC) $(FLAGS)"
    old = f"\t$(NVCC) $(FLAGS) -o app {words}\n"
    text = makefile.read_text()
    assert old in text
    new = f"\techo {words}{more} > app.rsp\n\t{command} -o app {flag}\n"
    makefile.write_text(text.replace(old, new).replace("-rdc=true", ""))


@pytest.mark.parametrize("compiler", ["g++", OF_MACHINE, "nvcc"])
def test_what_is_linked_may_stand_in_a_response_file(
    cpu_executor: CpuExecutor, filters: Path, tmp_path: Path, compiler: str
) -> None:
    with_response_file(filters, compiler)
    program = opened(cpu_executor, filters, "src/blur.cu")
    found = captured(cpu_executor, program, tmp_path / "w", "70", "50")
    assert {c.kernel for c in found.counts} == {"blur_kernel", "scale_kernel"}


def test_a_changed_file_is_built_in_and_taken_out_again(
    cpu_executor: CpuExecutor, filters: Path
) -> None:
    program = opened(cpu_executor, filters, "src/blur.cu")

    def printed(one: Program) -> str:
        ran = cpu_executor.run_program(one, ("70", "50"), 60.0)
        assert isinstance(ran, ProgramRan)
        return ran.stdout

    author = printed(program)
    texts = {f.path: f for f in program.files}
    main = texts["src/blur.cu"]
    other = main.model_copy(update={"text": main.text.replace("sum = 0.0f", "sum = 1000.0f")})
    changed = program.model_copy(update={"files": (other, *program.files[1:])})
    assert printed(changed) != author
    broken = main.model_copy(update={"text": main.text.replace("sum = 0.0f", "sum = missing")})
    refused = cpu_executor.run_program(
        program.model_copy(update={"files": (broken, *program.files[1:])}), ("70", "50"), 60.0
    )
    assert isinstance(refused, CompileFailed)
    assert "missing" in refused.message
    # Whoever opens the project next finds the author's files, whatever was built there last.
    assert opened(cpu_executor, filters, "src/blur.cu") == program
    assert printed(program) == author


def test_cmake_two_programs_and_a_template_in_a_header(
    cpu_executor: CpuExecutor, rows: Path, tmp_path: Path
) -> None:
    header = "kernels/include/kern/rows.cuh"
    with pytest.raises(InputError, match=r"--run says which program is run; the build linked out/"):
        opened(cpu_executor, rows, header, CMAKE, None)
    program = opened(cpu_executor, rows, header, CMAKE, "out/bench")
    assert program.main_path == "kernels/rows.cu"
    assert header in {f.path for f in program.files}
    assert ("D", "EPS=1e-6f") in program.code_options
    assert ("I", "kernels/include") in program.code_options
    found = captured(cpu_executor, program, tmp_path / "w", "40", "33")
    assert found.kernel == "normalise_rows"
    assert found.workloads[0].callee == "normalise_rows<float>"
    assert {c.kernel for c in found.counts} == {"normalise_rows", "fill"}


APART = "src/kernels.cu"


def other_rowsum() -> Rewrite:
    text = (Path(__file__).parents[2] / "door" / "rowsum.cu").read_text("utf-8")
    return make_rewrite(text, proposer="user", title="other blocks", why="a test")


@pytest.mark.parametrize("named", [APART, "src/again.cu", "src/main.cu", "include/ops.cuh"])
def test_kernels_are_launched_from_other_files(
    cpu_executor: CpuExecutor, tmp_path: Path, named: str
) -> None:
    folder = Path(shutil.copytree(PROJECTS / "apart", tmp_path / "apart"))
    program = opened(cpu_executor, folder, named)
    assert program.main_path == APART
    assert program.build is not None
    assert set(program.build.callers) == {"src/again.cu", "src/main.cu"}
    found = captured(cpu_executor, program, tmp_path / "w")
    assert {c.kernel: c.launches for c in found.counts} == {"rowsum": 2, "scale": 1}
    assert {site.index for site in program.launches} >= {one.site for one in found.workloads}
    assert {site.file for site in program.launches} == {"src/again.cu", "src/main.cu"}


def printed_by(executor: CpuExecutor, program: Program) -> str:
    ran = executor.run_program(program, (), 60.0)
    assert isinstance(ran, ProgramRan), ran
    return ran.stdout


def test_a_rewrite_stands_in_for_launches_of_other_files_and_is_taken_out_again(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(PROJECTS / "apart", tmp_path / "apart"))
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    program = opened(cpu_executor, folder, APART)
    spliced = splice(program, "rowsum", other_rowsum())
    author = printed_by(cpu_executor, program)
    assert printed_by(cpu_executor, spliced) == author
    (folder / "best.patch").write_text(unified_patch(program, spliced))
    subprocess.run(["patch", "-p1", "-i", "best.patch"], cwd=folder, check=True)
    assert "ops::rowsum<<<" not in (folder / "src/main.cu").read_text()
    patched = opened(cpu_executor, folder, APART)
    found = captured(cpu_executor, patched, tmp_path / "w")
    assert {c.kernel: c.launches for c in found.counts} == {"other_rowsum": 2, "scale": 1}
    assert printed_by(cpu_executor, patched) == author
    subprocess.run(["patch", "-R", "-p1", "-i", "best.patch"], cwd=folder, check=True)
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.parametrize("kernel", [None, "scale"])
def test_no_file_named_lists_launches_and_takes_the_dearest_kernels(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kernel: str | None,
) -> None:
    folder = Path(shutil.copytree(PROJECTS / "apart", tmp_path / "apart"))
    monkeypatch.chdir(folder)
    named = [] if kernel is None else ["--kernel", kernel]
    words = ["profile", "--build", "make", "--run", "./app", "--executor", "cpu", "--json", *named]
    code = run_command(words)
    told = capsys.readouterr()
    assert code == 0, told.err
    assert json.loads(told.out)["verdict"]
    assert re.search(r"^  rowsum  src/kernels\.cu  2x  +\d+\.\d %$", told.err, re.MULTILINE)
    assert re.search(r"^  scale   src/kernels\.cu  1x  +\d+\.\d %$", told.err, re.MULTILINE)
    assert f"cudaops: working on {kernel or 'rowsum'} in src/kernels.cu\n" in told.err


def test_a_folder_stands_for_its_only_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \.cu file; name the \.cu file"):
        source_file(tmp_path)
    (tmp_path / "one.cu").touch()
    assert source_file(tmp_path) == tmp_path / "one.cu"
    (tmp_path / "two.cu").touch()
    with pytest.raises(InputError, match=r"holds one\.cu, two\.cu; name the \.cu file"):
        source_file(tmp_path)


def test_a_bare_name_may_stand_in_examples_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    example = tmp_path / "examples" / "sums.cu"
    example.touch()
    assert source_file(Path("sums.cu")) == example
    with pytest.raises(InputError, match=r"^src/sums\.cu: no such file$"):
        source_file(Path("src/sums.cu"))
    own = tmp_path / "sums.cu"
    own.touch()
    assert source_file(Path("sums.cu")) == own


SUMS = """(const float *a, float *s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float t = 0;
    for (int c = 0; c < cols; ++c) t += a[r * cols + c];
    s[r] = t;
}
"""
CALLS = """
#include <cstdio>
int main() {
    float *a, *s;
    cudaMallocManaged(&a, 64 * 32 * sizeof(float));
    cudaMallocManaged(&s, 64 * sizeof(float));
    for (int i = 0; i < 64 * 32; ++i) a[i] = i % 5;
    LAUNCH
    cudaDeviceSynchronize();
    printf("%g\\n", s[63]);
}
"""
LAUNCH = "rowsum<<<2, 32>>>(a, s, 64, 32);"
DECLARED = "__global__ void rowsum(const float *, float *, int, int);\n"
FORMS = {
    "declared by its launcher": {
        "kernels.cu": f'extern "C" __global__ void rowsum{SUMS}',
        "main.cu": f'extern "C" {DECLARED}{CALLS}',
    },
    "in a block of linkage": {
        "kernels.cu": f'#include "k.h"\nextern "C" {{\n__global__ void rowsum{SUMS}}}\n',
        "k.h": f'#pragma once\nextern "C" {{\n{DECLARED}}}\n',
        "main.cu": f'#include "k.h"\n{CALLS}',
    },
    "launched in an included file": {
        "kernels.cu": f"__global__ void rowsum{SUMS}",
        "step.cpp": f"{DECLARED}static void step(float *a, float *s) {{ {LAUNCH} }}\n",
        "main.cu": f'#include "step.cpp"\n{CALLS.replace("LAUNCH", "step(a, s);")}',
    },
    "launched by a header of both": {
        "kernels.cu": f'#include "k.h"\n__global__ void rowsum{SUMS}',
        "k.h": f"#pragma once\n{DECLARED}inline void step(float *a, float *s) {{ {LAUNCH} }}\n",
        "main.cu": f'#include "k.h"\n{CALLS.replace("LAUNCH", "step(a, s);")}',
    },
    "by a macro that pastes, where directives choose the geometry": {
        "kernels.cu": f"__global__ void rowsum{SUMS}",
        "main.cu": f"#define RUN(what, g) row ## what<<<g, 32>>>(a, s, 64, 32)\n{DECLARED}"
        + CALLS.replace(
            "LAUNCH",
            "RUN(sum, 2); rowsum<<<2,\n#ifdef WIDE\n64\n#else\n32, 0\n#endif\n>>>(a, s, 64, 32);",
        ),
    },
    "in a header that another file includes last": {
        "kernels.cu": '#include "k.cuh"\n',
        "k.cuh": f"#pragma once\nstatic __global__ void rowsum{SUMS}",
        "main.cu": f'#include "k.cuh"\n{CALLS}',
    },
}


def of_two_files(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text.replace("LAUNCH", LAUNCH))
    (folder / "Makefile").write_text(
        "app: main.o kernels.o\n\tnvcc -rdc=true -o $@ $^\n"
        "%.o: %.cu $(wildcard *.h *.cuh *.cpp)\n\tnvcc -rdc=true -c $< -o $@\n"
    )


@pytest.mark.parametrize("form", FORMS)
def test_forms_in_which_kernel_and_launch_stand_apart(
    cpu_executor: CpuExecutor, tmp_path: Path, form: str
) -> None:
    of_two_files(tmp_path, FORMS[form])
    named = "kernels.cu" if "k.cuh" not in FORMS[form] else "k.cuh"
    program = opened(cpu_executor, tmp_path, named)
    assert captured(cpu_executor, program, tmp_path / "w").kernel == "rowsum"
    spliced = splice(program, "rowsum", other_rowsum())
    assert printed_by(cpu_executor, spliced) == printed_by(cpu_executor, program)
    found = captured(cpu_executor, spliced, tmp_path / "w")
    assert [c.kernel for c in found.counts] == ["other_rowsum"]


def test_a_template_that_another_file_launches_is_profiled_and_not_replaced(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    template, launch = "template <int N> ", LAUNCH.replace("rowsum", "rowsum<1>")
    of_two_files(tmp_path, {
        "kernels.cu": f"{template}__global__ void rowsum{SUMS}template {DECLARED}".replace(
            "template __global__ void rowsum", "template __global__ void rowsum<1>"),
        "main.cu": f"{template}{DECLARED}{CALLS.replace('LAUNCH', launch)}",
    })  # fmt: skip
    program = opened(cpu_executor, tmp_path, "kernels.cu")
    assert captured(cpu_executor, program, tmp_path / "w").kernel == "rowsum"
    with pytest.raises(
        InputError, match=r"main\.cu:\d+ launches `rowsum`, which is a template and"
    ):
        splice(program, "rowsum", other_rowsum())


def test_build_tools_of_a_virtual_environment_are_found(
    cpu_executor: CpuExecutor, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    command = "cmake -S . -B out -G Ninja && cmake --build out"
    program = opened(cpu_executor, rows, "kernels/include/kern/rows.cuh", command, "out/bench")
    assert program.main_path == "kernels/rows.cu"


def test_a_build_that_was_killed_is_made_anew(cpu_executor: CpuExecutor, filters: Path) -> None:
    first = opened(cpu_executor, filters, "src/blur.cu", "make && true")
    assert first.build is not None
    tools = cpu_tools(cpu_executor.cache)
    tree = BuiltTree(cpu_executor.cache, first.build, "src/blur.cu", tools).root
    (tree.parent / "building").touch()
    (tree / "build" / "blur.o").write_bytes(b"half")
    assert opened(cpu_executor, filters, "src/blur.cu", "make && true") == first


@pytest.mark.parametrize(
    ("source", "command", "run", "says"),
    [
        ("src/blur.cu", "false", "app", "the build fails with exit code 1: nothing"),
        (
            "src/blur.cu",
            "nvcc -c src/blur.cu",
            "app",
            "the build fails with exit code 1: src/blur.cu:1:10: fatal error: blur.cuh: No such",
        ),
        ("src/blur.cu", "true", "app", "the build called no nvcc that cudaops can intercept"),
        (
            "src/main.cpp",
            "nvcc -c src/scale.cu",
            "app",
            "does not compile src/main.cpp; nvcc compiled src/scale.cu",
        ),
        ("src/scale.cu", "nvcc -c src/scale.cu", "none", "the build made no program none"),
        (
            "src/blur.cu",
            "touch x.o && nvcc -shared -o libf.so x.o",
            "app",
            "the build makes a shared library with kernels; that runs on a GPU only",
        ),
        (
            "src/blur.cu",
            "touch x.o && nvcc -o b x.o -lcufft",
            "app",
            "the build links with cufft, which runs on a GPU only",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    cpu_executor: CpuExecutor, filters: Path, source: str, command: str, run: str, says: str
) -> None:
    before = digest_of(filters)
    with pytest.raises(InputError) as refused:
        opened(cpu_executor, filters, source, command, run)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert digest_of(filters) == before


def test_a_folder_that_is_no_projects(cpu_executor: CpuExecutor, filters: Path) -> None:
    with pytest.raises(InputError, match="is not a project folder"):
        cpu_executor.open_project(Path("/tmp"), filters / "src/blur.cu", "make", None)
    with pytest.raises(InputError, match="start cudaops in your project's folder"):
        cpu_executor.open_project(filters / "include", filters / "src/blur.cu", "make", None)


def test_the_build_sees_the_tree_and_nothing_else_of_the_author(
    cpu_executor: CpuExecutor, filters: Path
) -> None:
    secret = filters.parent / "secret"
    secret.write_text("mine\n")
    with pytest.raises(InputError, match="the build fails with exit code"):
        opened(cpu_executor, filters, "src/blur.cu", f"cat {secret}")
    with pytest.raises(InputError, match="the build fails with exit code"):
        opened(cpu_executor, filters, "src/blur.cu", f"touch {filters}/here")
    assert not (filters / "here").exists()


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        ("filters", ""),
        ("filters", OF_MACHINE),
        ("streams", ""),
        pytest.param("rows", "", marks=pytest.mark.deep),
    ],
)
def test_nvcc_builds_it_plain_and_recorded(
    name: str, compiler: str, tmp_path: Path, kernels: Path
) -> None:
    folder = Path(shutil.copytree(PROJECTS / name, tmp_path / name))
    source, command, run = {
        "filters": ("src/blur.cu", "make", "app"),
        "rows": ("kernels/rows.cu", CMAKE, "out/bench"),
        "streams": ("src/relax.cu", "make", "app"),
    }[name]
    if compiler:
        with_response_file(folder, compiler)
    builder = GpuBuilder(kernels, "sm_90")
    tools = project_tools(kernels, "sm_90", recorded=False)
    program = open_project(kernels, folder, folder / source, command, run, tools)
    for recorded in (False, True):
        built = builder.program(program, recorded=recorded)
        assert not isinstance(built, CompileFailed), built.message
        symbols = subprocess.run(["nm", built.path], capture_output=True, text=True, check=True)
        assert ("cudaops_capture" in symbols.stdout) == recorded
    kernel = program.kernels[0]
    callee = f"{kernel.name}<float>" if kernel.template_parameters else kernel.name
    module = builder.unit(Unit(program=program, kernel=kernel.name, callee=callee), draft=False)
    assert not isinstance(module, CompileFailed), module.message


@pytest.mark.nvcc
@pytest.mark.parametrize("standard", ["", "-std=c++11", "--std c++14 -Xcompiler -std=c++14"])
def test_nvcc_records_all_files_of_a_folder_by_any_standard(
    standard: str, tmp_path: Path, kernels: Path
) -> None:
    """`*.cu` takes in whatever is put beside the author's files."""
    folder = tmp_path / "shifts"
    folder.mkdir()
    (folder / "shift.h").write_text("void shift(int* data, int n);\n")
    (folder / "shift.cu").write_text(
        '#include "shift.h"\n'
        "__global__ void shifted(int* data, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) data[i] += i;\n}\n"
        "void shift(int* data, int n) { shifted<<<(n + 63) / 64, 64>>>(data, n); }\n"
    )
    (folder / "main.cu").write_text(
        '#include "shift.h"\n#include <cuda_runtime.h>\n'
        "int main() { int* data; cudaMalloc(&data, 400); shift(data, 100); }\n"
    )
    tools = project_tools(kernels, "sm_90", recorded=False)
    command = f"nvcc {standard} *.cu -o app"
    program = open_project(kernels, folder, folder / "shift.cu", command, "app", tools)
    for recorded in (False, True):
        built = GpuBuilder(kernels, "sm_90").program(program, recorded=recorded)
        assert not isinstance(built, CompileFailed), built.message


def test_a_kept_tree_whose_toolkit_has_moved_is_built_again(
    cpu_executor: CpuExecutor, filters: Path, tmp_path: Path
) -> None:
    (filters / "one more.txt").write_text(str(tmp_path))  # a tree that nobody else builds
    program = opened(cpu_executor, filters, "src/blur.cu")
    assert program.build is not None
    build = program.build.model_copy(update={"executable": "", "options": ()})
    kept = BuiltTree(cpu_executor.cache, build, "src/blur.cu", cpu_tools(cpu_executor.cache))
    link = kept.root / ".cudaops" / "include"
    was = link.readlink()
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    opened(cpu_executor, filters, "src/blur.cu")
    assert link.readlink() == was


@pytest.mark.nvcc
@pytest.mark.parametrize("compiles", [True, False], ids=["built", "only noted"])
def test_python_in_front_of_a_library(tmp_path: Path, kernels: Path, compiles: bool) -> None:
    """Built for a GPU, run without one: it says so by its code, and the recorder by its report."""
    folder = Path(shutil.copytree(PROJECTS / "python", tmp_path / "python"))
    builder, tools = GpuBuilder(kernels, "sm_90"), project_tools(kernels, "sm_90", recorded=False)
    tools = tools if compiles else tools.noting_only()
    program = open_project(kernels, folder, folder / "blur.cu", "make", "python3", tools)
    assert program.build is not None
    assert Path(program.build.interpreter).is_file()
    for recorded in (False, True):
        built = builder.program(program, recorded=recorded)
        assert not isinstance(built, CompileFailed), built.message
        assert built.is_interpreted
        assert built.tree is not None
        library = built.tree / "libblur.so"
        symbols = subprocess.run(["nm", library], capture_output=True, text=True, check=True)
        assert ("cudaops_capture" in symbols.stdout) == recorded
        report = tmp_path / "report.tsv"
        ran = subprocess.run(
            [built.path, "app.py", "64", "48"],
            cwd=built.tree, capture_output=True, text=True, check=True,
            env={"CUDAOPS_RECORDER_REPORT": str(report), "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip
        assert ran.stdout.split()[0] != "0", "there is no GPU that it may use"
        assert report.exists() == recorded
    kinds = [line[0] for line in read_report(report).lines]
    assert kinds == ["image", "refused", "end"]
    assert not list(folder.glob("*.so")), "the author's tree is only read"


def test_python_in_front_needs_a_gpu(tmp_path: Path, kernels: Path) -> None:
    folder = Path(shutil.copytree(PROJECTS / "filters", tmp_path / "filters"))
    with pytest.raises(InputError, match=r"made no program python3, and .* needs a GPU"):
        open_project(kernels, folder, folder / "src/blur.cu", "make", "python3", cpu_tools(kernels))


def test_thrust_and_cublas_around_the_kernel(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PROJECTS / "streams", tmp_path / "streams"))
    program = opened(cpu_executor, folder, "src/relax.cu")
    found = captured(cpu_executor, program, tmp_path / "run", "40", "30")
    assert found.kernel == "relax_kernel"


def test_other_libraries_of_cuda_need_a_gpu(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PROJECTS / "streams", tmp_path / "streams"))
    main = folder / "src" / "main.cu"
    main.write_text("#include <cusparse.h>\n" + main.read_text("utf-8"))
    with pytest.raises(InputError, match=r"cusparse\.h: No such file.*--executor cuda"):
        opened(cpu_executor, folder, "src/relax.cu")


@pytest.mark.nvcc
def test_a_build_is_told_the_gpu_that_it_cannot_see(filters: Path, kernels: Path) -> None:
    """PyTorch's builder of extensions asks the GPU otherwise, and there is none to ask."""
    tools = project_tools(kernels, "sm_120", recorded=False)
    command = 'test "$TORCH_CUDA_ARCH_LIST" = 12.0 && make'
    assert open_project(kernels, filters, filters / "src/blur.cu", command, "app", tools).build


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("x.py:180: UserWarning: an error from it: y\nblur.cu(3): error: no z\nE: 1", "no z"),
        ("UserWarning: error: y\nTraceback (most recent call):\nIndexError: list", "IndexError"),
        ("make: *** [Makefile:3: app] Error 1: all", "make"),
        ("something is amiss", "amiss"),
        ("b.cpp: multiple definition of `f()'\ncollect2: error: ld returned 1", "of `f()'"),
        ("CMake Error: variables are NOTFOUND.\nPlease set them:\nPNG_LIB\n    used", "PNG_LIB"),
    ],
)  # fmt: skip
def test_a_failed_build_says_what_failed_and_no_warning(said: str, shown: str) -> None:
    done = Finished(1, "", said, 0.1, False)
    assert shown in build_failure(done, [])
    assert "UserWarning" not in build_failure(done, [])


def many_programs(folder: Path) -> None:
    """Three programs with kernels of one name, one of them of an archive and an object in C."""
    texts = {
        "v1.cu": f"__global__ void rowsum{SUMS}{CALLS.replace('LAUNCH', LAUNCH)}",
        "v2.cu": f"__global__ void rowsum{SUMS}{CALLS.replace('LAUNCH', LAUNCH)}".replace(
            "t += a", "t -= a"
        ),
        "v3.cu": DECLARED + "int scaled(int x);\n" + CALLS.replace("LAUNCH", LAUNCH),
        "kernel.cu": f"__global__ void rowsum{SUMS}",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "Makefile").write_text(
        "all: v1 v2 v3\n"
        "%.o: %.cu\n\tnvcc -rdc=true -DFOR=$* -c $< -o $@\n"
        "v1: v1.o\n\tnvcc $< -o $@\n"
        "v2: v2.cu\n\tnvcc $< -o $@\n"
        "libk.a: kernel.o\n\tar rcs $@ $^\n"
        "v3: v3.o libk.a\n\tnvcc -rdc=true $< -L. -lk -o $@\n"
    )


@pytest.mark.parametrize(("run", "files"), [("v1", "v1.cu"), ("v3", "kernel.cu v3.cu")])
def test_files_of_other_programs_of_the_build_are_none_of_the_one_that_is_run(
    cpu_executor: CpuExecutor, tmp_path: Path, run: str, files: str
) -> None:
    many_programs(tmp_path)
    program = cpu_executor.open_project(tmp_path, None, "make", run)
    assert {file.path for file in program.files} == set(files.split())
    assert captured(cpu_executor, program, tmp_path / "w").kernel == "rowsum"
    with pytest.raises(InputError, match=rf"does not compile v2\.cu for {run}; nvcc compiled"):
        opened(cpu_executor, tmp_path, "v2.cu", "make", run)


def test_nvcc_compiles_a_file_in_c_as_c(cpu_executor: CpuExecutor, tmp_path: Path) -> None:
    (tmp_path / "new.c").write_text(
        '#include <cuda_runtime_api.h>\nextern "C" int one(void) { return cudaSuccess + 1; }\n'
    )
    (tmp_path / "old.c").write_text("int two(void) { int class = abs(-2); return class; }\n")
    call = CALLS.replace("int main", 'extern "C" int one(), two();\nint main')
    (tmp_path / "a.cu").write_text(
        f"__global__ void rowsum{SUMS}{call.replace('LAUNCH', LAUNCH.replace('64', '62 + two()'))}"
    )
    command = "nvcc -c old.c -o old.o && nvcc a.cu new.c old.o -o app"
    program = opened(cpu_executor, tmp_path, "a.cu", command)
    assert captured(cpu_executor, program, tmp_path / "w").kernel == "rowsum"


def test_device_functions_of_other_files_are_put_behind_the_kernels(
    cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    """By name, `-x cu`, through a second file, with host code and a kernel in it."""
    head = "#pragma once\n__device__ float twice(float x);\nstruct Sum {\n    float value;\n"
    head += "    __host__ __device__ void add(float x);\n};\n"
    (tmp_path / "include").mkdir()
    (tmp_path / "include/sum.h").write_text(head)
    (tmp_path / "sum.cpp").write_text(
        "#include <sum.h>\n#include <vector>\n__constant__ float half = 0.5f;\n"
        "__host__ __device__ void Sum::add(float x) { value += x; }\n"
        "__global__ void other(float *p) { *p = twice(*p); }\n"
        "std::vector<int> unused() { return {}; }\n"
    )
    (tmp_path / "twice.cpp").write_text(
        "#include <sum.h>\nstatic __device__ float one(float x) { return x; }\n"
        "__device__ float twice(float x) { return one(x) + x; }\n"
    )
    sums = SUMS.replace("float t = 0;", "Sum t{0};").replace(
        "t += a[r * cols + c]", "t.add(a[r * cols + c])"
    )
    (tmp_path / "main.cpp").write_text(
        f"#include <sum.h>\n__global__ void rowsum{sums.replace('= t;', '= t.value;')}"
        + CALLS.replace("LAUNCH", LAUNCH)
    )
    (tmp_path / "Makefile").write_text(
        "app: main.o sum.o twice.o\n\tnvcc $^ -o $@\n"
        "%.o: %.cpp\n\tnvcc -x cu -Iinclude -dc $< -o $@\n"
    )
    program = opened(cpu_executor, tmp_path, "main.cpp")
    assert program.build is not None
    assert set(program.build.parts) == {"sum.cpp", "twice.cpp"}
    found = captured(cpu_executor, program, tmp_path / "w")
    assert found.kernel == "rowsum"
    unit = Unit(program=program, kernel="rowsum", callee=found.workloads[0].callee)
    compiled = cpu_executor.compile(unit)
    assert not isinstance(compiled, CompileFailed), compiled


@pytest.mark.parametrize("compiler", ["nvcc", "g++ -std=c++11"])
def test_macros_of_host_code_do_not_meet_our_headers(
    cpu_executor: CpuExecutor, tmp_path: Path, compiler: str
) -> None:
    (tmp_path / "host.cpp").write_text(
        "#define N 9\n#define T 3\n#define value (N * T)\n"
        "#include <cuda_runtime.h>\nint rows() { return value + 37; }\n"
    )
    call = CALLS.replace("int main", "int rows();\nint main")
    (tmp_path / "a.cu").write_text(
        f"__global__ void rowsum{SUMS}{call.replace('LAUNCH', LAUNCH.replace('64', 'rows()'))}"
    )
    command = f"{compiler} -c host.cpp -o host.o && nvcc a.cu host.o -o app"
    program = opened(cpu_executor, tmp_path, "a.cu", command)
    assert captured(cpu_executor, program, tmp_path / "w").kernel == "rowsum"


@pytest.mark.parametrize(
    ("header", "needs_gpu"), [("cuda_occupancy.h", True), ("cuda_utils.h", False)]
)
def test_a_header_of_the_toolkit_that_a_processor_lacks_is_told_from_the_authors(
    header: str, needs_gpu: bool
) -> None:
    said = f"k.h:1:10: fatal error: {header}: No such file or directory"
    told = build_failure(Finished(1, "", said, 0.1, False), [], for_gpu=False)
    assert ("need a GPU" in told) == needs_gpu
