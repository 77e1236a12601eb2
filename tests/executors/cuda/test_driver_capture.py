"""Programs that launch by CUDA's driver API, recorded over the double of libcuda.so.1."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, Misbehaved, ProgramRan
from cudaops.domain.workload import OpaqueArgument, PointerArgument, ScalarArgument
from cudaops.errors import InputError
from cudaops.executors.cpu.toolchain import find_toolchain
from cudaops.executors.project.application import open_application
from tests.executors.cuda.driver_programs import Here, here

pytestmark = [pytest.mark.nvcc]
__all__ = ["here"]
JIT = Path(__file__).parents[2] / "data" / "projects" / "jit"


def test_a_kernel_with_c_linkage_is_recorded_with_what_it_found_and_left(
    here: Here, tmp_path: Path
) -> None:
    found = here.captured(tmp_path / "out", "smooth", "40", "24")
    (one,) = found.workloads
    assert (one.callee, one.grid.x, one.grid.y, one.block.x, one.launches) == (
        "smooth",
        1,
        5,
        32,
        3,
    )
    source, target, rows, columns = one.arguments
    assert isinstance(source, PointerArgument)
    assert isinstance(target, PointerArgument)
    assert (source.element, target.element) == ("f32", "f32")
    assert [a.value for a in (rows, columns) if isinstance(a, ScalarArgument)] == [40, 24]
    read, written = one.allocations
    assert (read.role, written.role) == ("in", "inout")
    values = np.fromfile(Path(one.folder) / read.before, np.float32)
    assert values[1] == np.float32(7919 % 1000) / np.float32(1000)
    smooth = np.fromfile(Path(one.folder) / written.after, np.float32)
    assert smooth.size == 40 * 24
    assert 0 < smooth.mean() < 1
    assert [(c.kernel, c.launches) for c in found.counts if c.seconds > 0] != []
    assert "sum " in found.stdout


def test_arguments_in_one_buffer_and_a_template_by_its_mangled_name(
    here: Here, tmp_path: Path
) -> None:
    found = here.captured(tmp_path / "out", "shift", "8", "8", "smooth", "shift")
    (one,) = found.workloads
    assert (one.callee, one.grid.x, one.block.x) == ("ops::shift<float>", 1, 256)
    values, by, count = one.arguments
    assert isinstance(values, PointerArgument)
    assert isinstance(by, ScalarArgument)
    assert (by.element, by.value) == ("f32", 0.5)
    assert isinstance(count, ScalarArgument)
    assert (count.element, count.value) == ("i32", 64)
    (memory,) = one.allocations
    before, after = (
        np.fromfile(Path(one.folder) / name, np.float32) for name in (memory.before, memory.after)
    )
    assert np.array_equal(after, before + np.float32(0.5))


def test_a_structure_by_value_and_the_pointer_in_it(here: Here, tmp_path: Path) -> None:
    """Launched by cuLaunchKernelEx; the driver says how large the structure is."""
    found = here.captured(tmp_path / "out", "scale", "8", "8", "smooth", "scale")
    (one,) = found.workloads
    band, rows = one.arguments
    assert isinstance(band, OpaqueArgument)
    assert [p.path for p in band.pointers] == ["band.rows"]
    assert isinstance(rows, ScalarArgument)
    assert rows.value == 8
    assert [a.size_bytes for a in one.allocations] == [256]


def test_constants_of_the_kernels_module_are_part_of_what_it_found(
    here: Here, tmp_path: Path
) -> None:
    found = here.captured(tmp_path / "out", "amplify", "8", "8", "smooth", "amplify")
    (one,) = found.workloads
    (gain,) = one.globals
    assert (gain.name, gain.size_bytes) == ("ops::gain", 4)
    assert np.fromfile(Path(one.folder) / gain.before, np.float32).tolist() == [1.5]


def test_the_kernel_with_most_time_is_chosen_and_all_are_counted(
    here: Here, tmp_path: Path
) -> None:
    found = here.captured(tmp_path / "out", None, "200", "200")
    assert found.kernel == "smooth"
    assert {c.kernel: c.launches for c in found.counts} == {"smooth": 3, "shift": 1, "scale": 1}
    assert [launch.kernel for launch in found.recorded] == ["smooth", "shift", "scale"]
    assert not any(launch.problem for launch in found.recorded)


def test_it_is_run_as_it_is_without_the_recorder(here: Here) -> None:
    ran = here.runs("16", "16").run()
    assert isinstance(ran, ProgramRan), ran
    assert ran.stdout.startswith("sum ")
    assert ran.replaced is None


def test_python_that_compiles_while_it_runs(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC and NVIDIA's bindings, in the device's primary context: no context is destroyed."""
    pytest.importorskip("cuda.bindings.nvrtc")
    for name in ("kernel.cu", "nvrtc_app.py"):
        shutil.copy(JIT / name, here.folder / name)
    monkeypatch.setenv("LD_LIBRARY_PATH", ".")  # of the view, which has the double
    here.program = open_application(
        here.folder, here.folder / "kernel.cu", sys.executable, ("nvrtc_app.py", "40", "24")
    )
    found = here.captured(tmp_path / "out", None, "nvrtc_app.py", "40", "24")
    (one,) = found.workloads
    assert (one.callee, one.launches, one.block.y) == ("smooth", 3, 8)
    assert [a.size_bytes for a in one.allocations] == [4 * 40 * 24] * 2
    assert found.stdout.startswith("sum ")


def test_what_goes_on_for_long_after_its_last_launch_is_not_waited_for(
    here: Here, tmp_path: Path
) -> None:
    words = ("8", "8", "smooth", "print", "rest")
    runs = here.runs(*words, limit_s=10)
    found = runs.capture("smooth", tmp_path / "out")
    assert isinstance(found, Captured), found
    assert found.paused
    assert found.stdout == "1 launches\n"
    again = runs.run(until_pause=True)
    assert isinstance(again, ProgramRan), again
    assert again.stdout == "1 launches\n"


def refused(here: Here, folder: Path, kernel: str | None, *argv: str) -> str:
    with pytest.raises(InputError) as problem:
        here.runs(*argv).capture(kernel, folder)
    assert "\n" not in str(problem.value)
    return str(problem.value)


def test_what_was_launched_instead_is_named(here: Here, tmp_path: Path) -> None:
    said = refused(here, tmp_path / "a", "shift", "8", "8", "smooth", "scale")
    assert said == "the program launches not 'shift'; it launched smooth, scale"
    kernels = "__global__ void other(float* x) { x[0] = 1; }\n"
    (here.folder / "other.cu").write_text(kernels)
    here.program = open_application(here.folder, here.folder / "other.cu", "./app", ())
    said = refused(here, tmp_path / "b", None, "8", "8")
    assert said == (
        "the program launches no kernel of other.cu; it launched smooth, ops::shift, ops::scale"
    )


def test_a_program_that_launches_nothing(here: Here, tmp_path: Path) -> None:
    shutil.copy("/bin/true", here.folder / "idle")
    here.program = open_application(here.folder, here.folder / "kernel.cu", "./idle", ())
    said = refused(here, tmp_path / "a", None)
    assert said.startswith("no launch by CUDA's driver was seen: the program launches nothing")


def test_a_kernel_whose_parameters_are_others_is_left_alone(here: Here, tmp_path: Path) -> None:
    text = (here.folder / "kernel.cu").read_text().replace("int rows,\n", "long rows,\n")
    (here.folder / "kernel.cu").write_text(text)
    here.program = open_application(here.folder, here.folder / "kernel.cu", "./app", ())
    said = refused(here, tmp_path / "a", "smooth", "8", "8", "smooth")
    assert said == (
        "smooth cannot be captured: the kernel that runs has other parameters than the one in the "
        "file"
    )


def test_a_program_that_fails_says_so_itself(here: Here, tmp_path: Path) -> None:
    (here.folder / "kernel.cubin").unlink()
    found = here.runs("8", "8").capture("smooth", tmp_path / "out")
    assert isinstance(found, Misbehaved)
    assert 'cuModuleLoad(&module, "kernel.cubin") fails with error 301' in found.message


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("./none", "--run: there is no program ./none in "),
        ("nothing_of_this_name", "nor on PATH"),
        ("./kernel.cubin", "--run: ./kernel.cubin is no program (it may not be executed)"),
        ("./script.py", '--run "python3 ./script.py"'),
        ("./static", "so its launches cannot be recorded; link it dynamically"),
    ],
)
def test_programs_that_cannot_be_run_so(here: Here, command: str, says: str) -> None:
    (here.folder / "script.py").write_text("#!/usr/bin/env python3\n")
    (here.folder / "script.py").chmod(0o755)
    source = here.folder / "static.cpp"
    source.write_text("int main() {}\n")
    gxx = find_toolchain().gxx
    subprocess.run([gxx, "-static", "-o", here.folder / "static", source], check=True, timeout=60)
    with pytest.raises(InputError) as problem:
        open_application(here.folder, here.folder / "kernel.cu", command, ())
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_file_that_launches_its_kernels_itself(here: Here) -> None:
    (here.folder / "whole.cu").write_text(
        "__global__ void k(int* x) { *x = 1; }\nint main() { k<<<1, 1>>>(nullptr); }\n"
    )
    with pytest.raises(InputError, match="launches kernels itself; --run without --build is for"):
        open_application(here.folder, here.folder / "whole.cu", "./app", ())


def test_what_is_run_is_part_of_what_a_program_is(here: Here) -> None:
    def digest(command: str, *words: str) -> str:
        program = open_application(here.folder, here.folder / "kernel.cu", command, words)
        return program.sha256

    (here.folder / "app.py").write_text("print(1)\n")
    first = digest("python3", "app.py", "8")
    assert digest("./app") != first
    (here.folder / "app.py").write_text("print(2)\n")
    assert digest("python3", "app.py", "8") != first
