"""A program that compiles CUDA by `torch.utils.cpp_extension` while it runs: what it compiles.

Runs in the user's interpreter and knows nothing of cudaops:

    torch_worker.py record OUT.json FILE ARGS...   runs FILE until it uses what it had compiled
    torch_worker.py build                          builds `extensions.json`, beside this file
    torch_worker.py run FILE ARGS...               runs FILE with those in the place of its own

FILE may be `PROBLEM.py:MODEL_NEW.py`, KernelBench's pair: both models run on the problem's inputs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import runpy
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXTENSIONS = "extensions.json"
OBJECTS = "cudaops_objects"
HOST_MACRO = "CUDAOPS_HOST_CODE"
SEED = 42
"""KernelBench's own: `seed_num` of `eval_kernel_against_ref`."""
TRIALS = 3
TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float64": 1e-8}
"""Of the difference, per element, of its own size plus the output's root mean square; 1e-4 of
other types. KernelBench has 1e-4 for float and 1e-2 for 16 bits (`get_tolerance_for_precision`)."""


class Used(SystemExit):
    """The program uses what it had compiled: everything before is known."""


class Waiting(types.ModuleType):
    """Stands for an extension that is not built."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Used(0)


def record(out: str, script: str, arguments: list[str]) -> None:
    """Write down what the program has compiled, and which of its files it loads."""
    _stand_beside(script)
    cpp_extension = _cpp_extension()
    folder, found = Path.cwd(), []
    if not hasattr(cpp_extension, "_jit_compile"):
        sys.exit("this version of torch has no torch.utils.cpp_extension._jit_compile")
    takes = inspect.signature(cpp_extension._jit_compile)

    def compiled(*given: Any, **named: Any) -> Waiting:
        asked = takes.bind(*given, **named).arguments
        found.append(_asked(asked, folder))
        return Waiting(asked["name"])

    cpp_extension._jit_compile = compiled
    try:
        _start(script, arguments, is_run=False)
    except Used:
        pass
    except BaseException:
        if not found:
            raise
    scripts = {str(script).partition(":")[0], str(script).rpartition(":")[2]}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        with contextlib.suppress(ValueError):
            name = Path(path).resolve().relative_to(folder.resolve()).as_posix()
            scripts |= {name} if name.endswith(".py") else set()
    text = json.dumps({"extensions": found, "scripts": sorted(scripts)})
    Path(out).write_text(text, "utf-8")


def _asked(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    sources = []
    for source in asked["sources"]:
        path = Path(source).resolve()
        inside = path.is_relative_to(folder.resolve())
        name = path.relative_to(folder.resolve()).as_posix() if inside else path.name
        sources.append({"name": name, "is_file": inside, "text": path.read_text("utf-8")})
    flags = {key: list(asked.get(key) or []) for key in ("extra_cflags", "extra_cuda_cflags",
             "extra_ldflags", "extra_include_paths")}  # fmt: skip
    return {"name": asked["name"], "sources": sources, **flags}


def build() -> None:
    """Build every extension beside this file, where the tree's root is the working folder."""
    setup = importlib.import_module("setuptools").setup

    cpp_extension = _cpp_extension()
    host = f"-D{HOST_MACRO}"
    extensions = [
        cpp_extension.CUDAExtension(
            one["name"],
            one["sources"],
            include_dirs=one["extra_include_paths"],
            extra_compile_args={
                "cxx": [host, *one["extra_cflags"]],
                "nvcc": ["-Xcompiler", host, *one["extra_cuda_cflags"]],
            },
            extra_link_args=one["extra_ldflags"],
        )
        for one in json.loads((HERE / EXTENSIONS).read_text("utf-8"))
    ]
    setup(
        name="cudaops_extensions",
        ext_modules=extensions,
        cmdclass={
            "build_ext": cpp_extension.BuildExtension.with_options(no_python_abi_suffix=True)
        },
        script_args=[
            "-q",
            "build_ext",
            "--build-lib",
            str(HERE),
            "--build-temp",
            OBJECTS,
        ],
    )


def run(script: str, arguments: list[str]) -> None:
    """The program with the extensions that were built in the place of those that it compiles."""
    _stand_beside(script)
    cpp_extension = _cpp_extension()

    def built(name: str, *_given: Any, is_python_module: bool = True, **_named: Any) -> Any:
        path = HERE / f"{name}.so"
        if not is_python_module:
            _torch().ops.load_library(str(path))
            return str(path)
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    cpp_extension.load = cpp_extension.load_inline = built
    _start(script, arguments, is_run=True)


def _cpp_extension() -> Any:
    return importlib.import_module("torch.utils.cpp_extension")


def _torch() -> Any:
    return importlib.import_module("torch")


def _stand_beside(script: str) -> None:
    """Let Python look for modules where it would if it had started the script."""
    sys.path[0] = str(Path(script.partition(":")[0]).resolve().parent)


def _start(script: str, arguments: list[str], *, is_run: bool) -> None:
    problem, _, new = script.partition(":")
    sys.argv = [problem, *arguments]
    if new:
        _kernelbench(problem, new, is_run=is_run)
    else:
        runpy.run_path(problem, run_name="__main__")


def _kernelbench(problem: str, new: str, *, is_run: bool) -> None:
    torch = _torch()
    given = runpy.run_path(problem, run_name="problem")
    given |= {"ModelNew": runpy.run_path(new, run_name="model_new").get("ModelNew")}
    for name in ("Model", "get_inputs", "ModelNew"):
        if given.get(name) is None:
            sys.exit(f"{new if name == 'ModelNew' else problem} has no `{name}`")
    if not is_run:
        _made(torch, given, "ModelNew")
        return
    torch.manual_seed(SEED)
    inputs = [_moved(torch, one) for one in given["get_inputs"]()]
    with torch.no_grad():
        model = _made(torch, given, "ModelNew")
        for _ in range(TRIALS):
            got = model(*inputs)
        torch.cuda.synchronize()
        wanted = _made(torch, given, "Model")(*inputs)
    for number, pair in enumerate(zip(_tensors(got), _tensors(wanted), strict=True)):
        _compare(f"out{number}", *pair)


def _made(torch: Any, given: dict[str, Any], name: str) -> Any:
    torch.manual_seed(SEED)
    initial = given.get("get_init_inputs", list)()
    torch.manual_seed(SEED)
    made = given[name](*initial)
    return made.cuda() if torch.cuda.is_available() else made


def _moved(torch: Any, value: Any) -> Any:
    return value.cuda() if torch.is_tensor(value) else value


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _compare(name: str, got: Any, wanted: Any) -> None:
    kind = str(wanted.dtype).partition(".")[2]
    if got.shape != wanted.shape:
        sys.exit(f"{name}: ModelNew returns shape {tuple(got.shape)}, Model {tuple(wanted.shape)}")
    got, wanted = got.double().flatten(), wanted.double().flatten()
    share = TOLERANCE.get(kind, 1e-4)
    allowed = share * (wanted.abs() + wanted.square().mean().sqrt())
    off = int((~((got - wanted).abs() <= allowed)).sum())
    if off:
        sys.exit(f"{name}: {off} of {wanted.numel()} elements of ModelNew's differ from Model's")
    ends = f"{got[0].item():.6g} {got[-1].item():.6g}" if got.numel() else ""
    sys.stdout.write(
        f"{name}: {got.numel()} elements, magnitudes {got.abs().sum().item():.9g}, ends {ends}\n"
    )


if __name__ == "__main__":
    mode, *words = sys.argv[1:]
    if mode == "record":
        record(words[0], words[1], words[2:])
    elif mode == "build":
        build()
    else:
        run(words[0], words[1:])
