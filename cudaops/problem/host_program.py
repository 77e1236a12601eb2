"""The host program around an author's kernels: what their directives say as C++, and a `main`.

Both are put behind the author's text in one file, so that a rewrite lands in it and its launch is
replaced there; what the author takes home is that file without the `main` (`without_main`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cudaops.domain.program import (
    Kernel,
    Parameter,
    ProblemArray,
    Program,
    ReferenceProblem,
    SourceFile,
)
from cudaops.domain.rewrite import BufferValue, ResolvedPlan
from cudaops.domain.workload import ELEMENT_BYTES, FLOATING, Element
from cudaops.errors import InputError, PlanError
from cudaops.program.constants import integer_constants
from cudaops.program.cpp import Speller, cpp
from cudaops.program.device_text import KernelSignature, kernel_signatures
from cudaops.program.directives import LaunchDirective, read_directives
from cudaops.program.expressions import ExpressionValue, PointerValue
from cudaops.program.instances import SPELLED, plain_name
from cudaops.program.lexing import byte_text, lex
from cudaops.program.parse import is_program, load_program, parse_files, read_source
from cudaops.program.plans import pointee, resolve_in
from cudaops.program.wrapper import LAMBDAS, SMEM_WITHOUT_OPT_IN

LAUNCHER = "launch_kernels"
"""What the function that launches the author's kernels is called."""
LAUNCHER_BEGINS = "// ---- problem: the launches that `@launch` says, written by cudaops"
MAIN_BEGINS = "// ---- problem: a program that runs them on inputs as they were drawn"
FILL = 0x5B
"""Byte that outputs hold before the first launch; as f32 it is 6.2e16, as i32 1.5e9."""

_SCALARS: dict[str, Element] = {
    **{text: element for element, text in SPELLED.items()},
    "half": "f16", "unsigned": "u32", "long": "i64", "unsigned long": "u64", "size_t": "u64",
    "char": "i8", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16",
    "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
}  # fmt: skip
_WORDS = """
alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr
continue decltype default delete do double else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not nullptr operator or private protected
public register return short signed sizeof static struct switch template this throw true try
typedef typeid typename union unsigned using virtual void volatile while xor half dim3 main smem
gridDim blockDim threadIdx blockIdx warpSize
"""
"""Names that a variable of host code cannot have, or that mean something else in an expression."""


def problem_program(source: Path, problem: ReferenceProblem) -> Program:
    """The author's kernels with a host program for this problem.

    Raises InputError where the source or its directives are wrong, one line.
    """
    text = read_source(source)
    for mark in (LAUNCHER_BEGINS, MAIN_BEGINS):
        if mark in text:
            raise InputError(f"{source.name} holds the launches that cudaops wrote; remove them")
    if is_program(source):
        raise InputError(
            f"{source.name} has a `main` of its own; with a reference in Python, give the kernels "
            "and how they are launched"
        )
    if any(t.text == LAUNCHER for t in lex(byte_text(text)).tokens):
        raise InputError(
            f"{source.name} uses the name {LAUNCHER}, which cudaops gives the function that "
            "launches its kernels; call it otherwise"
        )
    writer = _Launcher(source.name, text, problem)
    host = f"\n{writer.text()}\n{MAIN_BEGINS}\n{_main(problem, writer.used)}"
    return load_program(source, host=host, problem=problem)


def without_main(program: Program) -> Program:
    """What its author takes home: the launches stay, the `main` goes."""
    return _cut(program, MAIN_BEGINS)


def authored(program: Program) -> Program:
    """The files as their author has them."""
    return _cut(program, LAUNCHER_BEGINS)


def _cut(program: Program, mark: str) -> Program:
    if program.problem is None:
        return program

    def kept(file: SourceFile) -> SourceFile:
        if file.path != program.main_path:
            return file
        text = file.text.partition(mark)[0].removesuffix("\n")  # the line before it is ours
        return file.model_copy(update={"text": text})

    files = tuple(kept(file) for file in program.files)
    return parse_files(
        program.root_name, files, program.system_includes, program.build, program.problem
    )


def known_names(problem: ReferenceProblem) -> dict[str, ExpressionValue]:
    """Every name that a directive may use, with its value on the first draw.

    Raises InputError where two things have one name.
    """
    env: dict[str, ExpressionValue] = {}
    sizes: dict[str, ExpressionValue] = {}
    for index, array in enumerate((*problem.arrays, *problem.outputs)):
        if array.name in env:
            raise InputError(f"the problem has two values named `{array.name}`")
        width = ELEMENT_BYTES[array.element]
        env[array.name] = PointerValue(allocation=index, element_bytes=width)
        sizes |= array_sizes(array)
    for number in problem.numbers:
        if number.name in env:
            raise InputError(f"the problem has two values named `{number.name}`")
        env[number.name] = number.value
    return {**sizes, **env}


def array_sizes(array: ProblemArray) -> dict[str, int]:
    """`x_size`, and `x_size0` on."""
    return {
        f"{array.name}_size": array.count,
        **{f"{array.name}_size{axis}": extent for axis, extent in enumerate(array.shape)},
    }


class _Launcher:
    """The function that launches the author's kernels."""

    def __init__(self, name: str, source: str, problem: ReferenceProblem) -> None:
        self.name, self.source, self.problem = name, source, problem
        self.env = known_names(problem)
        self.arrays = {a.name: a for a in (*problem.arrays, *problem.outputs)}
        try:
            self.resolved: ResolvedPlan = resolve_in(source, self.env)
        except PlanError as error:
            raise InputError(f"{name}:{error}") from error
        self.plan = read_directives(source)
        self.signatures = kernel_signatures(source)
        self.scratch = frozenset(s.name.text for s in self.plan.scratch)
        self.written = frozenset(
            name for launch, index in self._pointers() for name in self._of(launch, index)
        )
        """Arrays that some kernel takes other than as const."""
        self._check()
        self.used = self._used()
        self.constants = {
            key: value
            for key, value in integer_constants(source, {}).items()
            if key not in self.env
        }
        parameters = tuple(
            Parameter(
                name=name,
                type_text=self._type(name),
                is_pointer=name in self.arrays,
                is_const=False,
            )
            for name in self.used
        )
        self.spell = Speller(_named(parameters), self.scratch, self.constants)

    def _check(self) -> None:
        for word, found in (("tune", self.plan.tune), ("requires", self.plan.requires)):
            if found:
                raise InputError(
                    f"{self.name}: `@{word}` is for rewrites; a problem's source has `@launch` and "
                    "`@scratch`"
                )
        for output in self.problem.outputs:
            if output.name not in self.written:
                raise InputError(
                    f"{self.name}: no launch takes the output `{output.name}` to write to; "
                    "outputs are " + ", ".join(o.name for o in self.problem.outputs)
                )
        lexed = lex(byte_text(self.source))
        macros = {lexed.tokens[d.first + 2].text for d in lexed.directives if d.keyword == "define"}
        for name in self._names():
            if name in _WORDS.split():
                raise InputError(
                    f"{self.name}: `{name}` means something else in CUDA; call that value of the "
                    "problem otherwise"
                )
            if name in macros:
                raise InputError(
                    f"{self.name} has a macro `{name}`, and the problem a value of that name; call "
                    "one of them otherwise"
                )

    def _names(self) -> Iterator[str]:
        """Names of the problem that the directives use, in their order."""
        listed = [s.size for s in self.plan.scratch]
        for launch in self.plan.launches:
            listed += [*launch.grid, *launch.block, launch.smem, *launch.args]
        yield from dict.fromkeys(
            name for one in listed for name in sorted(one.names()) if name in self.env
        )

    def _pointers(self) -> Iterator[tuple[int, int]]:
        """Launch and argument that a kernel may write through."""
        for number, launch in enumerate(self.plan.launches):
            for index, parameter in enumerate(self._signature(launch).parameters):
                if parameter.is_pointer and not parameter.is_const and index < len(launch.args):
                    yield number, index

    def _of(self, launch: int, index: int) -> list[str]:
        value = self.resolved.launches[launch].values[index]
        if not isinstance(value, BufferValue) or value.allocation is None:
            return []
        return [[*self.arrays][value.allocation]]

    def _signature(self, launch: LaunchDirective) -> KernelSignature:
        return self.signatures[plain_name(launch.callee.text)]

    def _used(self) -> tuple[str, ...]:
        """Parameters of the function: arrays in the problem's order, then sizes and numbers."""
        names = set(self._names())
        return tuple(name for name in dict.fromkeys((*self.arrays, *self.env)) if name in names)

    def _type(self, name: str) -> str:
        """Of the function's parameter of this name. A kernel that only reads may say no const."""
        if name in self.arrays:
            const = "" if name in self.written else "const "
            return f"{const}{SPELLED[self.arrays[name].element]}*"
        value = self.env[name]
        return "double" if isinstance(value, float) else "long long"

    def text(self) -> str:
        """The launches with what they need."""
        body = self._body()
        lambdas = [f"    const auto {n} = {t};" for n, t in LAMBDAS.items() if f"{n}(" in body]
        if lambdas:
            body = "\n".join(["    bool cudaops_ok = true;", *lambdas, body])
        listed = [f"    {self._type(name)} {name}," for name in self.used]
        half = any(self.arrays[n].element == "f16" for n in self.used if n in self.arrays)
        return "\n".join(
            [
                LAUNCHER_BEGINS,
                "#include <cuda_runtime.h>",
                *(["#include <cuda_fp16.h>"] if half else []),
                f"inline cudaError_t {LAUNCHER}(",
                *listed,
                "    cudaStream_t cudaops_stream)",
                "{",
                body,
                "}",
                "",
            ]
        )

    def _body(self) -> str:
        lines = []
        for step, launch in enumerate(self.plan.launches):
            for what, extent in (("grid", launch.grid), ("block", launch.block)):
                spelled = ", ".join(f"(unsigned)({cpp(e, self.spell)})" for e in extent)
                lines.append(f"const dim3 cudaops_{what}{step}({spelled});")
            lines.append(f"const size_t cudaops_smem{step} = {cpp(launch.smem, self.spell)};")
        lines += [
            f"const size_t cudaops_bytes_{s.name.text} = {cpp(s.size, self.spell)};"
            for s in self.plan.scratch
        ]
        launches = [line for step in range(len(self.plan.launches)) for line in self._launch(step)]
        if any(f"{name}(" in "\n".join((*lines, *launches)) for name in LAMBDAS):
            lines.append("if (!cudaops_ok) return cudaErrorInvalidValue;")
        for one in self.plan.scratch:
            lines += self._allocation(one.name.text)
        lines += launches
        lines += ["const cudaError_t cudaops_launched = cudaGetLastError();"]
        lines += [
            f"(void)cudaFreeAsync(cudaops_scratch_{s.name.text}, cudaops_stream);"
            for s in self.plan.scratch
        ]
        lines.append("return cudaops_launched;")
        return "\n".join(f"    {line}" for line in lines)

    def _allocation(self, name: str) -> list[str]:
        pointer = f"cudaops_scratch_{name}"
        call = f"cudaMallocAsync((void**)&{pointer}, cudaops_bytes_{name}, cudaops_stream)"
        earlier = self.plan.scratch
        return [
            f"char* {pointer} = nullptr;",
            f"if ({call} != cudaSuccess) {{",
            *(
                f"    (void)cudaFreeAsync(cudaops_scratch_{one.name.text}, cudaops_stream);"
                for one in earlier[: [s.name.text for s in earlier].index(name)]
            ),
            "    return cudaErrorMemoryAllocation;",
            "}",
        ]

    def _launch(self, step: int) -> Iterator[str]:
        launch = self.plan.launches[step]
        callee = launch.callee.text
        if callee.partition("<")[0].strip() in self.used:  # a parameter of this function, here
            callee = f"::{callee}"
        if self.resolved.launches[step].dynamic_smem_bytes > SMEM_WITHOUT_OPT_IN:
            if self._signature(launch).template_parameters and "<" not in callee:
                raise InputError(
                    f"{self.name}: `{callee}` takes more than 48 KiB of dynamic shared memory; "
                    f"write its template arguments, `@launch {callee}<...>`"
                )
            attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
            yield f"(void)cudaFuncSetAttribute({callee}, {attribute}, (int)cudaops_smem{step});"
        arguments = ", ".join(self._argument(launch, i) for i in range(len(launch.args)))
        yield (
            f"{callee}<<<cudaops_grid{step}, cudaops_block{step}, cudaops_smem{step}, "
            f"cudaops_stream>>>({arguments});"
        )

    def _argument(self, launch: LaunchDirective, index: int) -> str:
        """With a cast where the kernel takes memory as another type of the same kind."""
        expression, signature = launch.args[index], self._signature(launch)
        spelled = expression.text if expression.text in self.used else cpp(expression, self.spell)
        value = self.resolved.launches[self.plan.launches.index(launch)].values[index]
        if not isinstance(value, BufferValue) or index >= len(signature.parameters):
            return spelled
        parameter = signature.parameters[index]
        words, stars = pointee(parameter.type_text)
        if not parameter.is_pointer:
            raise InputError(
                f"{self.name}: `{launch.callee.text}` takes `{parameter.type_text} "
                f"{parameter.name}`, but gets the array `{expression.text}`"
            )
        if signature.template_parameters & set(words.split()):
            return spelled
        if value.allocation is not None:
            array = [*self.arrays.values()][value.allocation]
            taken = _SCALARS.get(words)
            if taken is not None and stars == 1:
                self._same_kind(launch, parameter, array, taken)
                if SPELLED[array.element] == words:
                    return spelled
        bare = parameter.type_text.replace("__restrict__", "").replace("__restrict", "")
        return f"({' '.join(bare.split())})({spelled})"

    def _same_kind(
        self, launch: LaunchDirective, parameter: Parameter, array: ProblemArray, taken: Element
    ) -> None:
        same = ELEMENT_BYTES[taken] == ELEMENT_BYTES[array.element]
        if same and (taken in FLOATING) == (array.element in FLOATING):
            return
        raise InputError(
            f"{self.name}: `{launch.callee.text}` takes `{parameter.type_text} {parameter.name}`, "
            f"and `{array.name}` holds {SPELLED[array.element]} in the problem"
        )


def _named(parameters: tuple[Parameter, ...]) -> Kernel:
    """What `Speller` spells the names of."""
    return Kernel(name=LAUNCHER, qualified_name=LAUNCHER, parameters=parameters, file="",
                  first_line=0, last_line=0, start_byte=0, end_byte=0, text="")  # fmt: skip


_HOST = r"""
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace problem_host {
std::vector<char> contents(const std::string& folder, const char* name, size_t bytes) {
    std::vector<char> held(bytes);
    std::FILE* file = std::fopen((folder + "/" + name).c_str(), "rb");
    if (file == nullptr || std::fread(held.data(), 1, bytes, file) != bytes) {
        std::fprintf(stderr, "%s/%s cannot be read; name the folder of the inputs\n",
                     folder.c_str(), name);
        std::exit(2);
    }
    std::fclose(file);
    return held;
}
void require(cudaError_t found) {
    if (found == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(found));
    std::exit(1);
}
template <class T> T* on_device(const std::vector<char>& held) {
    void* pointer = nullptr;
    require(cudaMalloc(&pointer, held.size()));
    require(cudaMemcpy(pointer, held.data(), held.size(), cudaMemcpyHostToDevice));
    return static_cast<T*>(pointer);
}
template <class T> double number(T value) { return double(value); }
template <class T> void tell(const char* name, const char* shape, const T* on_device, size_t count,
                             const char* folder) {
    std::vector<char> bytes(count * sizeof(T));
    require(cudaMemcpy(bytes.data(), on_device, bytes.size(), cudaMemcpyDeviceToHost));
    const T* held = reinterpret_cast<const T*>(bytes.data());
    double sum = 0.0, size = 0.0;
    for (size_t i = 0; i < count; ++i) {
        sum += number(held[i]);
        size += std::fabs(number(held[i]));
    }
    std::printf("%s %s: magnitudes %.6g, balance %.4f, first %.6g, last %.6g\n", name, shape, size,
                size > 0.0 ? sum / size : 0.0, number(held[0]), number(held[count - 1]));
    if (folder == nullptr) return;
    std::FILE* file = std::fopen((std::string(folder) + "/" + name + ".bin").c_str(), "wb");
    if (file == nullptr || std::fwrite(held, sizeof(T), count, file) != count) std::exit(2);
    std::fclose(file);
}
}  // namespace problem_host
"""


def _main(problem: ReferenceProblem, used: Sequence[str]) -> str:
    """`main`: `[FOLDER OF INPUTS [FOLDER FOR RAW OUTPUTS]]`."""
    host = _HOST.lstrip("\n")
    if any(a.element == "f16" for a in problem.outputs):
        tell = "template <class T> void tell("
        exact = "inline double number(__half value) { return double(__half2float(value)); }"
        host = host.replace(tell, f"{exact}\n{tell}")
    lines = ['const std::string folder = argc > 1 ? argv[1] : ".";']
    if problem.numbers:
        size = 8 * len(problem.numbers)
        lines.append(f'const auto numbers = problem_host::contents(folder, "numbers", {size});')
    values: dict[str, str] = {}
    for array in (*problem.arrays, *problem.outputs):
        values |= {name: f"{value}LL" for name, value in array_sizes(array).items()}
    for array in (*problem.arrays, *problem.outputs):
        values[array.name] = f"of_{array.name}"
    for place, number in enumerate(problem.numbers):
        kind = "long long" if number.is_integer else "double"
        values[number.name] = f"reinterpret_cast<const {kind}*>(numbers.data())[{place}]"
    lines += [_filled(array) for array in problem.arrays if array.name in used]
    for array in problem.outputs:
        held = f"std::vector<char>({array.size_bytes}, {FILL})"
        lines.append(f"{SPELLED[array.element]}* of_{array.name} = "
                     f"problem_host::on_device<{SPELLED[array.element]}>({held});")  # fmt: skip
    call = ", ".join((*(values[name] for name in used), "0"))
    lines.append(f"problem_host::require({LAUNCHER}({call}));")
    lines.append("problem_host::require(cudaDeviceSynchronize());")
    lines.append("const char* kept = argc > 2 ? argv[2] : nullptr;")
    for array in problem.outputs:
        shape = "x".join(map(str, array.shape)) or "1"
        lines.append(f'problem_host::tell("{array.name}", "{shape}", of_{array.name}, '
                     f"{array.count}, kept);")  # fmt: skip
    freed = [a.name for a in problem.arrays if a.name in used] + [a.name for a in problem.outputs]
    lines += [f"cudaFree(of_{name});" for name in freed]
    body = "\n".join(f"    {line}" for line in lines)
    return f"{host}\nint main(int argc, char** argv) {{\n{body}\n    return 0;\n}}\n"


def _filled(array: ProblemArray) -> str:
    kind = SPELLED[array.element]
    held = f'problem_host::contents(folder, "{array.name}.bin", {array.size_bytes})'
    return f"{kind}* of_{array.name} = problem_host::on_device<{kind}>({held});"
