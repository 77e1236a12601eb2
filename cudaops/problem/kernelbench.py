"""`model_new.py`: the kernels as a `ModelNew` that KernelBench's own evaluation reads."""

from __future__ import annotations

import ast
import hashlib
import io
import posixpath
import re
import tokenize
from pathlib import Path

from cudaops.domain.program import ProblemArray, ProblemNumber, Program, ReferenceProblem
from cudaops.errors import InputError
from cudaops.problem.host_program import LAUNCHER, without_main
from cudaops.problem.reference import script_digest

MODEL_NEW = "model_new.py"
REFERENCE = "ModelReference"
"""What the author's `Model` is called there: KernelBench loads both files into one namespace."""
FUNCTION = "cudaops_forward"
_TORCH = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8",
    "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64",
    "u64": "uint64", "bool": "bool",
}  # fmt: skip
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.MULTILINE)
_HALF = ("-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__",
         "-U__CUDA_NO_HALF2_OPERATORS__")  # fmt: skip
"""torch compiles extensions without the operators of `__half`, which nvcc alone has
(`COMMON_NVCC_FLAGS` of torch.utils.cpp_extension)."""


def model_new(program: Program) -> str:
    """The text of `model_new.py` for a program of a problem in KernelBench's form.

    Raises InputError where the problem's file is not as the run found it.
    """
    problem = program.problem
    assert problem is not None, "applies to Python references only"
    script = Path(problem.script)
    if script_digest(script) != problem.sha256:
        raise InputError(f"{script} was changed since the run")
    return _Text(program, problem).text(script.read_text("utf-8"))


class _Text:
    def __init__(self, program: Program, problem: ReferenceProblem) -> None:
        self.problem = problem
        self.source = _in_one(without_main(program))
        self.used = launcher_parameters(self.source)
        self.arrays = [a for a in (*problem.arrays, *problem.outputs) if a.name in self.used]
        self.numbers = [n for n in problem.numbers if n.name in self.used]
        self.call = ", ".join((*(self._passed(name) for name in self.used), "stream"))

    def text(self, script: str) -> str:
        """All of it."""
        cuda = self._cuda()
        name = f"cudaops_model_new_{hashlib.sha256(cuda.encode()).hexdigest()[:12]}"
        half = any(a.element == "f16" for a in self.arrays)
        flags = ", ".join(repr(f) for f in ("-O3", *(_HALF if half else ())))
        return "\n".join(
            [
                "# Written by cudaops: the problem's own text with its Model by another name, and",
                "# below it ModelNew, which launches the kernels in its place.",
                _without_inputs(_renamed(script)).rstrip("\n"),
                "",
                "",
                "import torch",
                "from torch.utils.cpp_extension import load_inline",
                "",
                f"_CUDA = {_quoted(cuda)}",
                "",
                "_extension = load_inline(",
                f'    name="{name}",',
                f'    cpp_sources="{self._signature()};",',
                "    cuda_sources=_CUDA,",
                f'    functions=["{FUNCTION}"],',
                f"    extra_cuda_cflags=[{flags}],",
                ")",
                "",
                "",
                *_HELPERS.splitlines(),
                "",
                "",
                *self._model(),
                "",
            ]
        )

    def _signature(self) -> str:
        arrays = [f"torch::Tensor {a.name}" for a in self.arrays]
        kinds = {True: "int64_t", False: "double"}
        numbers = [f"{kinds[n.is_integer]} {n.name}" for n in self.numbers]
        return f"void {FUNCTION}({', '.join((*arrays, *numbers))})"

    def _cuda(self) -> str:
        return "\n".join(
            [
                "#include <torch/extension.h>",
                "#include <c10/cuda/CUDAGuard.h>",
                "#include <c10/cuda/CUDAStream.h>",
                "",
                self.source.rstrip("\n"),
                "",
                f"{self._signature()} {{",
                f"    const c10::cuda::CUDAGuard guard({self.problem.outputs[0].name}.device());",
                "    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();",
                f"    const cudaError_t launched = {LAUNCHER}({self.call});",
                "    TORCH_CHECK(launched == cudaSuccess, cudaGetErrorString(launched));",
                "}",
                "",
            ]
        )

    def _passed(self, name: str) -> str:
        if any(a.name == name for a in self.arrays):
            return f"static_cast<{self.used[name]}>({name}.data_ptr())"
        if any(n.name == name for n in self.numbers):
            return name
        array, _, axis = name.rpartition("_size")
        held = next(a for a in (*self.problem.arrays, *self.problem.outputs) if a.name == array)
        return f"{held.shape[int(axis)] if axis else held.count}LL"

    def _model(self) -> list[str]:
        lines = [
            f"class ModelNew({REFERENCE}):",
            "    def __init__(self, *args):",
            "        super().__init__(*args)",
            "        self._given = args",
            "",
            "    def forward(self, *inputs):",
            "        device = _device(inputs)",
        ]
        for array in self.arrays:
            shape, kind = f"{tuple(array.shape)!r}", f"torch.{_TORCH[array.element]}"
            if array.origin == "output":
                value = f"torch.empty({shape}, dtype={kind}, device=device)"
            else:
                value = f"_array({_found(array)}, {shape}, {kind}, device)"
            lines.append(f"        {array.name} = {value}")
        kinds = {True: "int", False: "float"}
        passed = [a.name for a in self.arrays]
        passed += [f"{kinds[n.is_integer]}({_found(n)})" for n in self.numbers]
        lines.append(f"        _extension.{FUNCTION}({', '.join(passed)})")
        return [*lines, f"        return {self._returned()}"]

    def _returned(self) -> str:
        names = [output.name for output in self.problem.outputs]
        if self.problem.returns == "dict":
            return "{" + ", ".join(f'"{name}": {name}' for name in names) + "}"
        if self.problem.returns == "list":
            return f"[{', '.join(names)}]"
        if self.problem.returns == "tuple":
            return f"({', '.join(names)},)"
        return names[0]


_HELPERS = '''
def _device(inputs):
    """Where the first tensor is."""
    return next((x.device for x in inputs if torch.is_tensor(x)), torch.device("cuda"))


def _array(value, shape, dtype, device):
    """As the kernels take it."""
    if tuple(value.shape) != shape:
        raise ValueError(f"the kernels are for shape {shape}, not {tuple(value.shape)}")
    return torch.as_tensor(value).detach().to(device=device, dtype=dtype).contiguous()
'''.strip("\n")


def _found(value: ProblemArray | ProblemNumber) -> str:
    """Where `ModelNew` has it."""
    if value.origin == "state":
        return f"self.{value.path}"
    held = "self._given" if value.origin == "init" else "inputs"
    return f"{held}[{int(value.path)}]"


def launcher_parameters(source: str) -> dict[str, str]:
    """Name to type of the parameters of the launching function in a text, without the stream."""
    listed = source.partition(f"cudaError_t {LAUNCHER}(")[2].partition(")")[0].split(",")
    return {name: " ".join(words) for *words, name in (one.split() for one in listed[:-1])}


def _in_one(program: Program) -> str:
    """The main file's text, each local header in the place of the first line that names it."""
    texts = {file.path: file.text for file in program.files}
    seen: set[str] = set()

    def whole(path: str) -> str:
        seen.add(path)

        def included(match: re.Match[str]) -> str:
            name = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
            if name not in texts:
                return match[0]
            return "" if name in seen else _ONCE.sub("", whole(name))

        return _INCLUDE.sub(included, texts[path])

    return whole(program.main_path)


def _renamed(script: str) -> str:
    """The script with its class `Model` by another name; text in strings stays."""
    lines = script.splitlines(keepends=True)
    places = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(script).readline):
        if token.type == tokenize.NAME and token.string == "Model" and before != ".":
            places.append(token.start)
        before = token.string
    for line, column in reversed(places):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + REFERENCE + text[column + len("Model") :]
    return "".join(lines)


def _without_inputs(script: str) -> str:
    """The script without what draws inputs, which KernelBench takes from the problem alone."""
    lines = script.splitlines(keepends=True)
    for node in reversed(ast.parse(script).body):
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            del lines[node.lineno - 1 : node.end_lineno]
    return "".join(lines)


def _quoted(text: str) -> str:
    """As a literal that a person can read, where that is possible."""
    if '"""' in text or text.endswith("\\"):
        return repr(text)
    return f'r"""\n{text}"""'
