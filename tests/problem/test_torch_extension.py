"""Programs in Python that compile their CUDA while they run: what they compile, told by a stand-in
of torch that writes files as torch does; what is built of it; and back into the author's files."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import cudaops
from cudaops.domain.program import Build, Program
from cudaops.errors import InputError
from cudaops.graph.folder import best_texts, taken_home
from cudaops.problem.reference import find_interpreter
from cudaops.problem.torch_extension import (
    HOST_BEGIN,
    Recorded,
    as_author_has,
    host_code_apart,
    made_files,
    record,
    require_own_text,
)
from cudaops.program.parse import load_unit
from cudaops.program.plans import make_rewrite
from cudaops.program.splice import splice

EXT = "cpp_extension"

TORCH = '''
"""As torch.utils.cpp_extension 2.11 writes what it compiles."""
import os
import tempfile


def load(name, sources, extra_cuda_cflags=None, extra_include_paths=None):
    return _jit_compile(name, sources, None, extra_cuda_cflags, None, extra_include_paths, ".")


def load_inline(name, cpp_sources, cuda_sources=None, functions=None, extra_cuda_cflags=None):
    folder = tempfile.mkdtemp(dir=os.environ["TORCH_EXTENSIONS_DIR"])
    sources = []
    given = [cuda_sources] if isinstance(cuda_sources, str) else cuda_sources or []
    for file, texts in (("main.cpp", ["#include <torch/extension.h>", cpp_sources]),
                        ("cuda.cu", ["#include <torch/types.h>", "#include <cuda.h>",
                                     "#include <cuda_runtime.h>", *given])):
        sources.append(os.path.join(folder, file))
        with open(sources[-1], "w") as out:
            out.write("\\n".join(texts))
    return _jit_compile(name, sources, None, extra_cuda_cflags, None, None, folder)


def _jit_compile(name, sources, extra_cflags, extra_cuda_cflags, extra_ldflags,
                 extra_include_paths, build_directory):
    raise RuntimeError("nothing is compiled here")
'''
KERNEL = r"""
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];  // "quoted"
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
BENCH = f'''
import sys
from torch.utils.cpp_extension import load_inline

source = r"""{KERNEL}"""
module = load_inline(name="ext", cpp_sources="torch::Tensor run(torch::Tensor x);",
                     cuda_sources=source, functions=["run"], extra_cuda_cflags=["-O3"])
module.run(int(sys.argv[1]))
raise SystemExit("it went on without its extension")
'''
REWRITE = """\
// @launch faster grid=(gridDim.x) block=(blockDim.x) args=(x, y, n)
__global__ void faster(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];  // a\\b
}
"""


def project(folder: Path, **files: str) -> Path:
    package = folder / "torch" / "utils"
    package.mkdir(parents=True)
    (package / "cpp_extension.py").write_text(TORCH, "utf-8")
    for place in (package, package.parent):
        (place / "__init__.py").touch()
    for name, text in files.items():
        (folder / name.replace("_dot_", ".")).write_text(text, "utf-8")
    return folder


def recorded(folder: Path, script: str, *words: str) -> Recorded:
    return record(folder, script, words, find_interpreter(None), 60.0, "program")


def program_of(folder: Path, found: Recorded, kernels: str) -> Program:
    """As `open_torch` has it, without a build."""
    made = made_files(folder, found)
    for name, text in made.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    build = Build(
        tree_sha256="",
        snapshot="",
        command="",
        source=kernels,
        interpreter="/usr/bin/python3",
        arguments=("run",),
        scripts=made.scripts,
    )
    return load_unit(folder / kernels, folder).model_copy(update={"build": build})


INLINE = "cudaops_torch/ext/cuda.cu"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    return project(tmp_path / "project", bench_dot_py=BENCH)


def test_what_a_program_compiles_is_written_down(bench: Path) -> None:
    found = recorded(bench, "bench.py", "5")
    (one,) = found.extensions
    assert (one.name, one.extra_cuda_cflags) == ("ext", ("-O3",))
    assert [s.name for s in one.sources] == ["main.cpp", "cuda.cu"]
    assert one.sources[1].text.endswith(KERNEL)
    assert "bench.py" in found.scripts


def test_the_string_becomes_a_file_and_the_file_the_string(bench: Path) -> None:
    program = program_of(bench, recorded(bench, "bench.py", "5"), INLINE)
    assert [k.name for k in program.kernels] == ["twice"]
    assert [s.kernel for s in program.launches] == ["twice"]
    assert as_author_has(program).main.text == BENCH
    spliced = splice(program, "twice", make_rewrite(REWRITE, "user", "t", "r"))
    taken = taken_home(program, spliced)
    assert list(best_texts(taken.program)) == ["best.py"]
    subprocess.run(["patch", "-p1"], input=taken.patch, text=True, cwd=bench, check=True)
    patched = (bench / "bench.py").read_text("utf-8")
    assert patched == best_texts(taken.program)["best.py"]
    (assigned,) = (n for n in ast.parse(patched).body if isinstance(n, ast.Assign)
                   and getattr(n.targets[0], "id", "") == "source")  # fmt: skip
    text = ast.literal_eval(assigned.value)
    assert "// a\\b" in text
    assert 'r"""\n#include <torch/extension.h>' in patched
    assert "cudaops_launch_twice(1, 64, 0, 0, x.data_ptr<float>()" in text
    assert "CUDAOPS_HOST_CODE" not in patched


@pytest.mark.parametrize("quotes", ["'''", '"""'])
def test_a_string_with_escapes_stays_one(quotes: str, tmp_path: Path) -> None:
    script = BENCH.replace('r"""', quotes).replace('"""\nmodule', f"{quotes}\nmodule")
    folder = project(tmp_path / "project", bench_dot_py=script)
    program = program_of(folder, recorded(folder, "bench.py", "5"), INLINE)
    spliced = splice(program, "twice", make_rewrite(REWRITE, "user", "t", "r"))
    text = taken_home(program, spliced).program.main.text
    assert "// a\\\\b" in text
    values = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
    assert any("// a\\b" in v for v in values if isinstance(v, str))


def test_what_is_put_together_stays_a_file(tmp_path: Path) -> None:
    script = BENCH.replace("cuda_sources=source", 'cuda_sources=source.replace("64", "32")')
    folder = project(tmp_path / "project", bench_dot_py=script)
    program = program_of(folder, recorded(folder, "bench.py", "5"), INLINE)
    spliced = splice(program, "twice", make_rewrite(REWRITE, "user", "t", "r"))
    taken = taken_home(program, spliced)
    assert next(iter(best_texts(taken.program))) == "best.cu"
    with pytest.raises(InputError, match="put together while the program runs"):
        require_own_text(as_author_has(program))


def test_sources_beside_the_program(tmp_path: Path) -> None:
    script = "from torch.utils.cpp_extension import load\nload('ext', ['k.cpp', 'k.cu']).run()\n"
    folder = project(tmp_path / "project", bench_dot_py=script, k_dot_cpp="", k_dot_cu=KERNEL)
    found = recorded(folder, "bench.py")
    made = made_files(folder, found)
    assert made.texts["cudaops_torch/ext/host_0.cpp"] == '#include "../../k.cpp"\n'
    program = program_of(folder, found, "k.cu")
    assert as_author_has(program).main.text == KERNEL
    spliced = splice(program, "twice", make_rewrite(REWRITE, "user", "t", "r"))
    assert "--- a/k.cu" in taken_home(program, spliced).patch


def test_kernelbench_s_pair(tmp_path: Path) -> None:
    model = "class Model:\n    pass\ndef get_inputs():\n    return []\n"
    new = BENCH.partition("module.run")[0] + "class ModelNew:\n    pass\n"
    torch = (
        "def manual_seed(_): pass\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
    )
    folder = project(tmp_path / "project", model_dot_py=model, new_dot_py=new)
    (folder / "torch" / "__init__.py").write_text(torch, "utf-8")
    found = recorded(folder, "model.py:new.py")
    assert [one.name for one in found.extensions] == ["ext"]
    program = program_of(folder, found, INLINE)
    assert as_author_has(program).main_path == "new.py"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch.utils.cpp_extension\n", "compiles no CUDA by torch.utils.cpp_extension"),
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
    ],
)
def test_what_is_no_such_program(text: str, said: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "project", bench_dot_py=text)
    with pytest.raises(InputError, match=said):
        recorded(folder, "bench.py")


def test_device_code_that_needs_torch_is_named() -> None:
    text = KERNEL.replace("const float* x,", "const at::Half* x,")
    with pytest.raises(InputError, match=r"k.cu:4: device code uses `at::`"):
        host_code_apart(text, "k.cu")
    assert host_code_apart(KERNEL, "k.cu").count(HOST_BEGIN) == 2


@pytest.mark.parametrize("new", [None, "new.py"])
def test_without_a_gpu_it_is_said_that_one_is_needed(new: str | None, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text("import torch\n" if new else "import torch.utils." + EXT)
    (tmp_path / "new.py").write_text(f"from torch.utils.{EXT} import load_inline\n")
    source = str(tmp_path / new) if new else None
    said = r"bench.py compiles its CUDA by torch.utils.cpp_extension, which needs a GPU"
    with pytest.raises(InputError, match=said):
        cudaops.optimize(tmp_path / "bench.py", executor="cpu", kernel_source=source)
    with pytest.raises(InputError, match="`cudaops run` does, on a GPU"):
        cudaops.verify(tmp_path / "bench.py", tmp_path / "new.py", executor="cpu")
