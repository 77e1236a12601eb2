"""The host function that launches a rewrite in the author's program, or the baseline instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.program.clusters import LEAST_CAPABILITY, kernel_clusters
from cudaops.program.constants import integer_constants
from cudaops.program.cooperative import step_waits
from cudaops.program.cpp import Speller, constant_value, cpp, scratch_in
from cudaops.program.device_text import kernel_signatures
from cudaops.program.directives import Directives, LaunchDirective, ScratchBuffer, read_directives
from cudaops.program.expressions import Expression
from cudaops.program.instances import is_type_parameter, plain_name, template_parameter_names
from cudaops.program.launches import CONFIGURED
from cudaops.program.lexing import byte_text, lex, plain_text, split_commas
from cudaops.program.overloads import exact_address, signature_of
from cudaops.program.plans import instance, pointee
from cudaops.program.signature import read_parameters

SMEM_WITHOUT_OPT_IN = 48 * 1024
"""Dynamic shared memory that needs no cudaFuncSetAttribute. Source: CUDA C++ Programming Guide,
compute capabilities, shared memory."""

LAMBDAS = {
    "cudaops_divide": (
        "[&](auto a_, auto b_) { if (b_ == 0) { cudaops_ok = false; b_ = 1; } return a_ / b_; }"
    ),
    "cudaops_remainder": (
        "[&](auto a_, auto b_) { if (b_ == 0) { cudaops_ok = false; b_ = 1; } return a_ % b_; }"
    ),
    "cudaops_ceil_div": (
        "[&](long long a_, long long b_) "
        "{ if (b_ <= 0) { cudaops_ok = false; b_ = 1; } return a_ / b_ + (a_ % b_ > 0); }"
    ),
    "cudaops_aligned": (
        "[](const volatile void* p_, long long n_) { return (unsigned long long)p_ % n_ == 0; }"
    ),
    "cudaops_same_place": (
        "[](const volatile void* a_, const volatile void* b_) { return a_ == b_; }"
    ),
    "cudaops_min": "[](auto a_, auto b_) { return b_ < a_ ? b_ : a_; }",
    "cudaops_max": "[](auto a_, auto b_) { return a_ < b_ ? b_ : a_; }",
}
"""What `cpp` calls, for the functions that use it; `cudaops_ok` is a variable of theirs."""


def wrapper_name(kernel: Kernel) -> str:
    """Name of the generated host function."""
    return f"cudaops_launch_{kernel.identifier}"


NAMESPACE_PREFIX = "cudaops_"
HELPERS_BEGIN = "static inline bool cudaops_fits("
"""How what the wrapper needs begins, after the rewrite's own text."""


def namespace_name(kernel: Kernel) -> str:
    """Namespace of the rewrite's device code in the author's file."""
    return f"{NAMESPACE_PREFIX}{kernel.identifier}"


class InstanceGuard(NamedTuple):
    """Which instances of a template kernel the rewrite is for."""

    instances: tuple[tuple[str, ...], ...]
    """Template arguments of each in order, concrete. Empty: any instance."""


_GEOMETRY = f"""
{HELPERS_BEGIN}const long long (&grid_)[3], const long long (&block_)[3],
                                long long smem_) {{
    const bool grid_fits = grid_[0] >= 1 && grid_[0] <= 2147483647LL && grid_[1] >= 1 &&
                           grid_[1] <= 65535 && grid_[2] >= 1 && grid_[2] <= 65535;
    const bool block_fits = block_[0] >= 1 && block_[0] <= 1024 && block_[1] >= 1 &&
                            block_[1] <= 1024 && block_[2] >= 1 && block_[2] <= 64 &&
                            block_[0] * block_[1] * block_[2] <= 1024;
    return grid_fits && block_fits && smem_ >= 0 && smem_ <= 232448;
}}
static inline dim3 cudaops_dim3(const long long (&extent_)[3]) {{
    return dim3((unsigned)extent_[0], (unsigned)extent_[1], (unsigned)extent_[2]);
}}
"""
_POINTER = """
struct cudaops_pointer {
    char* bytes_;
    template <class T_> operator T_*() const { return reinterpret_cast<T_*>(bytes_); }
};
"""
_TOGETHER = """
template <class Function_>
static inline bool cudaops_resident(Function_ *function_, const long long (&grid_)[3],
                                    const long long (&block_)[3], long long smem_) {
    int device_ = 0, processors_ = 0, each_ = 0;
    const cudaDeviceAttr asked_ = cudaDevAttrMultiProcessorCount;
    const int threads_ = (int)(block_[0] * block_[1] * block_[2]);
    const bool known_ =
        cudaGetDevice(&device_) == cudaSuccess &&
        cudaDeviceGetAttribute(&processors_, asked_, device_) == cudaSuccess &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each_, function_, threads_,
                                                      (size_t)smem_) == cudaSuccess;
    if (!known_) (void)cudaGetLastError();
    return known_ && grid_[0] * grid_[1] * grid_[2] <= (long long)processors_ * each_;
}
template <class Type_> struct cudaops_given { using type_ = Type_; };
template <class... Types_>
static inline void cudaops_together(void (*kernel_)(Types_...), dim3 grid_, dim3 block_,
                                    size_t smem_, cudaStream_t stream_,
                                    typename cudaops_given<Types_>::type_... given_) {
    void *arguments_[] = {(void *)&given_..., nullptr};
    (void)cudaLaunchCooperativeKernel((const void *)kernel_, grid_, block_, arguments_, smem_,
                                      stream_);
}
"""
_SAME = """
template <class A_, class B_> struct cudaops_same { static constexpr bool value_ = false; };
template <class A_> struct cudaops_same<A_, A_> { static constexpr bool value_ = true; };
"""


_LEAST = "CUDAOPS_LEAST_ARCH"
_CLUSTERED = (
    "#if !defined(__CUDA_ARCH_LIST__) || "
    f"{_LEAST}(__CUDA_ARCH_LIST__, 0) >= {10 * LEAST_CAPABILITY[0] + LEAST_CAPABILITY[1]}0"
)
"""Where clusters compile: nvcc's list of what it compiles for begins with the least. Source: NVCC
manual, `__CUDA_ARCH_LIST__`."""


class Fence(NamedTuple):
    """What keeps a rewrite with clusters from a device that has none: the author's kernel alone is
    compiled there."""

    define: tuple[str, ...] = ()
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    undefine: tuple[str, ...] = ()

    @staticmethod
    def of(rewrite: Rewrite) -> Fence:
        """Empty lines where the rewrite has no clusters."""
        if not kernel_clusters(rewrite.source, rewrite.values()):
            return Fence()
        define = (
            f"#define {_LEAST}_OF(least, ...) least",
            f"#define {_LEAST}(...) {_LEAST}_OF(__VA_ARGS__)",  # its arguments are the list's
        )
        undefine = (f"#undef {_LEAST}", f"#undef {_LEAST}_OF")
        return Fence(define, (_CLUSTERED,), ("#endif",), undefine)


def helpers_text(wrapper: str, guard: InstanceGuard) -> str:
    """What the wrapper of this text needs beside the rewrite, inside of the rewrite's namespace."""
    converts = "::cudaops_pointer{" in wrapper
    compares = guard.instances or "::cudaops_same<" in wrapper
    text = _GEOMETRY + (_POINTER if converts else "") + (_SAME if compares else "")
    text += _TOGETHER if "::cudaops_together(" in wrapper else ""
    return text.replace("\n\n", "\n").strip("\n")


def wrapper_text(
    kernel: Kernel, parameters: str, template: str | None, rewrite: Rewrite, guard: InstanceGuard,
    *, together: bool = False, is_exported: bool = False,
) -> str:  # fmt: skip
    """The wrapper: the plan where it holds, the baseline kernel otherwise.

    `parameters` and `template` are the kernel's own, as written, without their brackets;
    `together`: its author launches it so that its blocks may wait for each other; `is_exported`:
    other files call it, after `declaration_text`.
    """
    linkage = "" if is_exported else "static inline "
    return _Wrapper(kernel, rewrite, guard, together).text(parameters, template, linkage)


def declaration_text(kernel: Kernel, parameters: str) -> str:
    """What a file needs to call the wrapper. `parameters` as that file declares the kernel's."""
    listed, _ = forwardable(parameters)
    given = f", {listed}" if listed else ""
    return (
        f"void {wrapper_name(kernel)}(dim3 cudaops_grid, dim3 cudaops_block, size_t cudaops_smem, "
        f"cudaStream_t cudaops_stream{given});"
    )


def dispatch_name(kernel: Kernel) -> str:
    """Name of the generated function that launches through a pointer."""
    return f"cudaops_dispatch_{kernel.identifier}"


def dispatch_text(kernel: Kernel) -> str:
    """What stands for a launch through a pointer or a parameter: the wrapper where that is this
    kernel, the same launch otherwise."""
    own, space = _own(kernel), namespace_name(kernel)
    return f"""\
template <class Kernel_, class... Arguments_>
static inline void {dispatch_name(kernel)}(
    Kernel_ kernel_, dim3 grid_, dim3 block_, size_t smem_, cudaStream_t stream_,
    Arguments_... arguments_)
{{
    if constexpr ({space}::cudaops_same<Kernel_, decltype({own})>::value_) {{
        if (kernel_ == {own}) {{
            {wrapper_name(kernel)}(grid_, block_, smem_, stream_, arguments_...);
            return;
        }}
    }}
    kernel_<<<grid_, block_, smem_, stream_>>>(arguments_...);
}}"""


def packed_name(kernel: Kernel, function: str) -> str:
    """Name of the generated function that stands for `cudaLaunchKernel`, or for another one that
    takes a kernel's arguments as pointers."""
    return f"cudaops_{function}_{kernel.identifier}"


def packed_text(kernel: Kernel, functions: Sequence[str], guard: InstanceGuard) -> str:
    """What stands for these functions: the wrapper where it is this kernel, or one of the instances
    that the rewrite is for, the same call otherwise. Raises InputError for what has no such text.
    """
    owns = [""]
    if kernel.template_parameters:
        owns = [f"<{', '.join(arguments)}>" for arguments in guard.instances]
        if CONFIGURED & set(functions):
            raise InputError(
                f"instances of `{kernel.name}` are launched by cudaLaunchKernelEx, where no rewrite"
                f" can be put; write `{kernel.name}<...><<<grid, block>>>(..)`"
            )
    plain = (_packed_call(kernel, one, owns) for one in functions if one not in CONFIGURED)
    configured = _configured_calls(kernel) if CONFIGURED & set(functions) else ""
    unpacking = (_unpacking(kernel, number, own) for number, own in enumerate(owns))
    return "".join(
        [_NTH.format(f"cudaops_nth_{kernel.identifier}"), *unpacking, *plain, configured]
    )


_NTH = """
template <int At_, class Type_, class... Types_>
struct {0} : {0}<At_ - 1, Types_...> {{}};
template <class Type_, class... Types_>
struct {0}<0, Type_, Types_...> {{ using type_ = Type_; }};
"""


def _unpacker(kernel: Kernel, number: int) -> str:
    return f"cudaops_unpack_{kernel.identifier}" + (f"_{number}" if number else "")


def _unpacking(kernel: Kernel, number: int, own: str) -> str:
    nth = f"cudaops_nth_{kernel.identifier}"
    given = "".join(
        f",\n        *static_cast<typename {nth}<{n}, Types_...>::type_ *>(arguments_[{n}])"
        for n in range(len(kernel.parameters))
    )
    return f"""\
template <class... Types_>
static inline void {_unpacker(kernel, number)}(
    void (*)(Types_...), dim3 grid_, dim3 block_, void **arguments_, size_t smem_,
    cudaStream_t stream_)
{{
    {wrapper_name(kernel)}{own}(
        grid_, block_, smem_, stream_{given});
}}
"""


def _packed_call(kernel: Kernel, function: str, owns: Sequence[str]) -> str:
    served = "".join(
        f"""
    if ((const void *)kernel_ == (const void *){_own(kernel, own)}) {{
        {_unpacker(kernel, number)}({_own(kernel, own)}, grid_, block_, arguments_, smem_, stream_);
        return cudaPeekAtLastError();
    }}"""
        for number, own in enumerate(owns)
    )
    return f"""\
template <class Kernel_>
static inline cudaError_t {packed_name(kernel, function)}(
    Kernel_ *kernel_, dim3 grid_, dim3 block_, void **arguments_, size_t smem_ = 0,
    cudaStream_t stream_ = 0)
{{{served}
    return {function}((const void *)kernel_, grid_, block_, arguments_, smem_, stream_);
}}
"""


def _configured_calls(kernel: Kernel) -> str:
    """By a configuration. With an attribute that a rewrite's launch would leave out, and be another
    one without, it is the same call."""
    own, space = _own(kernel), kernel.identifier
    packed, typed = (packed_name(kernel, f"cudaLaunchKernelEx{end}") for end in ("C", ""))
    return f"""
static inline bool cudaops_as_is_{space}(const cudaLaunchConfig_t &config_)
{{
    for (unsigned at_ = 0; at_ < config_.numAttrs; ++at_) {{
        const cudaLaunchAttribute &one_ = config_.attrs[at_];
        switch (one_.id) {{
        case cudaLaunchAttributeIgnore:
        case cudaLaunchAttributeAccessPolicyWindow:
        case cudaLaunchAttributeCooperative:
        case cudaLaunchAttributeProgrammaticStreamSerialization:
        case cudaLaunchAttributePriority:
            break;
        case cudaLaunchAttributeClusterDimension:
            if (one_.val.clusterDim.x * one_.val.clusterDim.y * one_.val.clusterDim.z > 1)
                return true;
            break;
        default:
            return true;
        }}
    }}
    return false;
}}
template <class Kernel_>
static inline cudaError_t {packed}(
    const cudaLaunchConfig_t *config_, Kernel_ *kernel_, void **arguments_)
{{
    if ((const void *)kernel_ != (const void *){own} || cudaops_as_is_{space}(*config_))
        return cudaLaunchKernelExC(config_, (const void *)kernel_, arguments_);
    cudaops_unpack_{space}({own}, config_->gridDim, config_->blockDim, arguments_,
        config_->dynamicSmemBytes, config_->stream);
    return cudaPeekAtLastError();
}}
template <class... Types_, class... Arguments_>
static inline cudaError_t {typed}(
    const cudaLaunchConfig_t *config_, void (*kernel_)(Types_...), Arguments_ &&...arguments_)
{{
    return [&](Types_... given_) {{
        void *pointers_[] = {{(void *)&given_..., nullptr}};
        return {packed}(config_, kernel_, pointers_);
    }}(static_cast<Arguments_ &&>(arguments_)...);
}}"""


_GIVEN = ("cudaops_grid", "cudaops_block", "cudaops_smem", "cudaops_stream")
"""The geometry that a wrapper is given."""


def _own(kernel: Kernel, arguments: str = "") -> str:
    """The address of the author's kernel, or of the instance with these template arguments."""
    if arguments:
        return f"&::{kernel.qualified_name}{arguments}"
    return exact_address(kernel, signature_of(kernel), f"::{kernel.qualified_name}")


def passed_on_text(kernel: Kernel, other: Kernel, parameters: str, template: str | None) -> str:
    """What stands for a launch that means another kernel of the same name: that launch."""
    listed, names = forwardable(parameters)
    header = "" if template is None else f"template <{template}>\n"
    return f"""
{header}static inline void {wrapper_name(kernel)}(
    dim3 cudaops_grid, dim3 cudaops_block, size_t cudaops_smem,
    cudaStream_t cudaops_stream{f", {listed}" if listed else ""})
{{
    {_launched(_author_callee(other), _GIVEN, names)}
}}"""


def _launched(callee: str, geometry: Sequence[str], arguments: Sequence[str]) -> str:
    """A launch."""
    return f"{callee}<<<{', '.join(geometry)}>>>({', '.join(arguments)});"


def _author_callee(kernel: Kernel) -> str:
    """The author's kernel, by its template's own parameters."""
    arguments = template_parameter_names(kernel)
    packs = ["..." if "..." in p else "" for p in kernel.template_parameters]
    listed = ", ".join(a + p for a, p in zip(arguments, packs, strict=True))
    return f"::{kernel.qualified_name}" + (f"<{listed}>" if listed else "")


def require_names(kernel: Kernel) -> None:
    """That each argument has a name. Raises InputError for a kernel with a parameter pack."""
    if any("..." in p.type_text for p in kernel.parameters):
        listed = ", ".join(f"{p.type_text} {p.name}" for p in kernel.parameters)
        raise InputError(
            f"`({listed})` ends in a parameter pack, and a launch plan names each argument; "
            "give the kernel parameters of its own, or choose another one with --kernel"
        )


def forwardable(parameters: str) -> tuple[str, tuple[str, ...]]:
    """A parameter list in which each parameter has a name, and those names."""
    lexed = lex(byte_text(parameters))
    spelled: list[str] = []
    names = tuple(p.name for p in read_parameters(parameters))
    for name, part in zip(names, split_commas(lexed.tokens, angles=True), strict=False):
        text = plain_text(lexed.text[part[0].start : part[-1].end])
        text = " ".join(text.replace("__grid_constant__", " ").split())  # for kernels alone
        is_named = any(token.text == name for token in part)
        spelled.append(text if is_named else f"{text} {name}")
    return ", ".join(spelled), names


class _Wrapper:
    def __init__(
        self, kernel: Kernel, rewrite: Rewrite, guard: InstanceGuard, together: bool
    ) -> None:
        self.kernel, self.rewrite, self.guard = kernel, rewrite, guard
        self.together = together
        self.plan: Directives = read_directives(rewrite.source)
        self.space = namespace_name(kernel)
        self.constants = {
            **integer_constants(rewrite.source, rewrite.values()),
            **rewrite.values(),
        }
        self.clusters = kernel_clusters(rewrite.source, rewrite.values())
        self.signatures = kernel_signatures(rewrite.source)
        self.scratch = frozenset(s.name.text for s in self.plan.scratch)
        self.spell = Speller(kernel, self.scratch, self.constants)

    def text(self, parameters: str, template: str | None, linkage: str) -> str:
        listed, names = forwardable(parameters)
        body = self._body()
        lines = [] if template is None else [f"template <{' '.join(template.split())}>"]
        lines.append(f"{linkage}void {wrapper_name(self.kernel)}(")
        lines.append("    dim3 cudaops_grid, dim3 cudaops_block, size_t cudaops_smem,")
        lines.append("    cudaStream_t cudaops_stream" + (f", {listed})" if listed else ")"))
        lines.append("{")
        fence = Fence.of(self.rewrite)
        lines += [*fence.begin, *self._guarded(body), *fence.end]
        if self.together:
            lines.append(f"    {self._together(self._own_address(), _GIVEN, names)}")
        else:
            lines.append(f"    {_launched(_author_callee(self.kernel), _GIVEN, names)}")
        return "\n".join([*lines, "}", ""])

    def _own_address(self) -> str:
        callee = _author_callee(self.kernel)
        return exact_address(self.kernel, signature_of(self.kernel), callee)

    def _together(self, place: str, geometry: Sequence[str], arguments: Sequence[str]) -> str:
        """A launch, by the kernel's address, of blocks that may wait for each other."""
        return f"{self.space}::cudaops_together({', '.join((place, *geometry, *arguments))});"

    def _guarded(self, body: list[str]) -> list[str]:
        if not self.guard.instances:
            return body
        served = [self._is_instance(arguments) for arguments in self.guard.instances]
        either = " || ".join(f"({one})" for one in served) if len(served) > 1 else served[0]
        return [f"    if constexpr ({either}) {{", *(f"    {line}" for line in body), "    }"]

    def _is_instance(self, arguments: tuple[str, ...]) -> str:
        kernel = self.kernel
        names = template_parameter_names(kernel)
        return " && ".join(
            f"{self.space}::cudaops_same<{name}, {argument}>::value_"
            if is_type_parameter(written)
            else f"{name} == ({argument})"
            for written, name, argument in zip(
                kernel.template_parameters, names, arguments, strict=False
            )
        )

    def _body(self) -> list[str]:
        lines = [
            f"if (!({cpp(c, self.spell)})) cudaops_ok = false;  // @requires {c.text}"
            for c in self.plan.requires
        ]
        for step in range(len(self.plan.launches)):
            lines += self._geometry(step)
        lines += [line for b in self.plan.scratch for line in self._allocation(b)]
        lines.append("if (cudaops_ok) {")
        lines += [f"    {self._launch(step)}" for step in range(len(self.plan.launches))]
        lines += [f"    {self._free(b)}" for b in self.plan.scratch]
        lines += ["    return;", "}"]
        if len(self.plan.scratch) > 1:
            lines += [f"if ({_pointer(b)}) {self._free(b)}" for b in self.plan.scratch]
        used = "\n".join(lines)
        lambdas = [f"const auto {n} = {t};" for n, t in LAMBDAS.items() if f"{n}(" in used]
        return [f"    {line}" for line in ("bool cudaops_ok = true;", *lambdas, *lines)]

    def _geometry(self, step: int) -> list[str]:
        launch = self.plan.launches[step]
        grid, block, smem = _extent_names(step)
        lines = [
            f"const long long {grid}[3] = {{{self._three(launch.grid)}}};",
            f"const long long {block}[3] = {{{self._three(launch.block)}}};",
            f"const long long {smem} = (long long)({cpp(launch.smem, self.spell)});",
            f"if (!{self.space}::cudaops_fits({grid}, {block}, {smem})) cudaops_ok = false;",
        ]
        if cluster := self.clusters.get(plain_name(launch.callee.text)):
            sizes = zip("012", (cluster.x, cluster.y, cluster.z), strict=True)
            rest = " || ".join(f"{grid}[{axis}] % {n}" for axis, n in sizes if n > 1)
            lines += [f"if ({rest}) cudaops_ok = false;"] if rest else []
        most = constant_value(launch.smem, self.constants)
        if most is None or most > SMEM_WITHOUT_OPT_IN:
            lines += self._opting_in(step, smem)
        if step_waits(self.rewrite, step):
            asked = f"&{self._callee(step)}, {grid}, {block}, {smem}"
            call = f"{self.space}::cudaops_resident({asked})"
            lines.append(f"if (cudaops_ok && !{call}) cudaops_ok = false;")
        return lines

    def _opting_in(self, step: int, smem: str) -> list[str]:
        """Dynamic shared memory beyond what every launch may have."""
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        return [
            f"if (cudaops_ok && {smem} > {SMEM_WITHOUT_OPT_IN} &&",
            f"    cudaFuncSetAttribute({self._callee(step)}, {attribute}, (int){smem})",
            "    != cudaSuccess) {",
            "    (void)cudaGetLastError();",
            "    cudaops_ok = false;",
            "}",
        ]

    def _three(self, extent: Sequence[Expression]) -> str:
        # Braces refuse a narrowing conversion, which a template's or an alias's type may need.
        return ", ".join([*(f"(long long)({cpp(e, self.spell)})" for e in extent), "1", "1"][:3])

    def _allocation(self, buffer: ScratchBuffer) -> list[str]:
        name, size = _pointer(buffer), cpp(buffer.size, self.spell)
        return [
            f"char* {name} = nullptr;",
            f"if (cudaops_ok && cudaMallocAsync((void**)&{name}, (size_t){size}, cudaops_stream)",
            "    != cudaSuccess) {",
            "    (void)cudaGetLastError();",
            f"    {name} = nullptr;",
            "    cudaops_ok = false;",
            "}",
        ]

    def _free(self, buffer: ScratchBuffer) -> str:
        return f"(void)cudaFreeAsync({_pointer(buffer)}, cudaops_stream);"

    def _callee(self, step: int) -> str:
        return f"{self.space}::{instance(self.rewrite, self.rewrite.plan.launches[step])}"

    def _launch(self, step: int) -> str:
        launch = self.plan.launches[step]
        grid, block, smem = _extent_names(step)
        dim3 = f"{self.space}::cudaops_dim3"
        geometry = (f"{dim3}({grid})", f"{dim3}({block})", f"(size_t){smem}", "cudaops_stream")
        arguments = [self._argument(launch, i) for i in range(len(launch.args))]
        if step_waits(self.rewrite, step):
            return self._together(f"&{self._callee(step)}", geometry, arguments)
        return _launched(self._callee(step), geometry, arguments)

    def _argument(self, launch: LaunchDirective, index: int) -> str:
        expression = launch.args[index]
        if scratch_in(expression, self.scratch):
            return f"{self.space}::cudaops_pointer{{{cpp(expression, self.spell)}}}"
        if self._changes_type(launch, index):
            return f"{self.space}::cudaops_pointer{{(char*)({cpp(expression, self.spell)})}}"
        if expression.text in {p.name for p in self.kernel.parameters}:
            return expression.text
        return cpp(expression, self.spell)

    def _changes_type(self, launch: LaunchDirective, index: int) -> bool:
        """Whether the rewrite's kernel reads the baseline's memory as another type (`float4*`)."""
        known = {p.name: p for p in self.kernel.parameters if p.is_pointer}
        given = next((known[n] for n in launch.args[index].names() if n in known), None)
        taken = self.signatures[plain_name(launch.callee.text)].parameters
        if given is None or index >= len(taken) or not taken[index].is_pointer:
            return False
        return pointee(given.type_text) != pointee(taken[index].type_text)


def _pointer(buffer: ScratchBuffer) -> str:
    return f"cudaops_scratch_{buffer.name.text}"


def _extent_names(step: int) -> tuple[str, str, str]:
    return f"cudaops_grid{step}", f"cudaops_block{step}", f"cudaops_smem{step}"
