"""Kernels that share a qualified name with others, or with functions that are no kernels.

Which one a launch means is the compiler's to say: beside each kernel a function is declared that
takes the same and gives back a type that says which it is (`probe`), and a program that is run asks
it of every launch. By `pointer_type` a text that is compiled names one of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cudaops.domain.program import Kernel
from cudaops.program.launches import LaunchCall
from cudaops.program.lexing import (
    Edit,
    byte_text,
    closing,
    lex,
    one_line,
    plain_text,
    split_commas,
)
from cudaops.program.outline import Declaration, Outline, constraint_end, outline
from cudaops.program.signature import read_parameters

_POINTER = "cudaops_pointer_type"
_PROBE = "cudaops_which_"
_COMPLETED = "cudaops_completed_"
_QUALIFIERS = re.compile(r"\b(?:__restrict__|__restrict|restrict|__grid_constant__)\b")
_ATTRIBUTES = frozenset({
    "static", "inline", "extern", "__global__", "__forceinline__", "__noinline__", "constexpr",
    "__host__", "__device__",
})  # fmt: skip
_BEFORE_CLOSURE = frozenset({"(", ",", "{", "=", "?", ":", "return", "&&", "||", "+"})
_WITH_PARENTHESES = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__attribute__", "__maxnreg__",
    "__local_maxnreg__", "__block_size__",
})  # fmt: skip


class Signature(NamedTuple):
    """A kernel's parameters and template header as written, without their brackets, in a line."""

    parameters: str
    template: str | None

    @property
    def types(self) -> str:
        """The parameters without their defaults: what a function's type names."""
        kept = []
        lexed = lex(byte_text(self.parameters))
        for part in split_commas(lexed.tokens, angles=True):
            cut = next((t.start for t in part if t.text == "="), part[-1].end if part else 0)
            kept.append(lexed.text[part[0].start : cut].strip() if part else "")
        return _QUALIFIERS.sub("", ", ".join(kept))


def signature_of(kernel: Kernel) -> Signature:
    """Of a kernel's own text."""
    facts = outline(byte_text(kernel.text))
    item = next((i for i in facts.items if i.parameters is not None), None)
    assert item is not None
    parameters, template = _signature(facts, item)
    return Signature(plain_text(parameters), None if template is None else plain_text(template))


def parameters_of(facts: Outline, item: Declaration) -> str:
    """Of a function in a file, declared or defined: as `signature_of` gives them."""
    return plain_text(_signature(facts, item).parameters)


def _signature(facts: Outline, item: Declaration) -> Signature:
    def inside(brackets: tuple[int, int]) -> str:
        opener, closer = (facts.tokens[i] for i in brackets)
        return one_line(facts.lexed, opener.end, closer.start)

    assert item.parameters is not None
    return Signature(
        inside(item.parameters), None if item.template is None else inside(item.template)
    )


def left_out(outlines: Iterable[Outline], launch: LaunchCall) -> list[Edit]:
    """Puts the defaults of parameters that a launch leaves out behind its arguments: a pointer to a
    function does not know them. None where a kernel of that name takes exactly these arguments,
    several could be meant, or the launch is in a macro."""
    given, found = len(launch.arguments), set[tuple[str, ...]]()
    for facts in outlines:
        for item in facts.items:
            if (
                item.name != launch.name
                or item.parameters is None
                or "__global__" not in item.spaces
            ):
                continue
            defaults = defaults_of(parameters_of(facts, item))
            if len(defaults) == given:
                return []
            if len(defaults) > given and all(defaults[given:]):
                found.add(defaults[given:])
    if len(found) != 1 or launch.directive is not None:
        return []
    text = "".join(f"{', ' * (n > 0)}{text}" for n, text in enumerate(found.pop(), given))
    return [Edit(launch.end - 1, launch.end - 1, text)]


def defaults_of(parameters: str) -> tuple[str, ...]:
    """What is behind `=` of each parameter, empty where nothing does."""
    lexed = lex(byte_text(parameters))
    found = []
    for part in split_commas(lexed.tokens, angles=True):
        behind = next((t.end for t in part if t.text == "="), part[-1].end)
        found.append(lexed.text[behind : part[-1].end].strip())
    return tuple(found)


def told_apart(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The kernels, each of those that are overloaded with its parameters' types in its name."""
    spelled = defaultdict[str, set[str]](set)
    for kernel in kernels:
        if not _is_specialisation(kernel):
            spelled[kernel.qualified_name].add(_with_types(kernel))
    return tuple(
        k.model_copy(update={"name": _with_types(k)})
        if len(spelled[k.qualified_name]) > 1 and not _is_specialisation(k)
        else k
        for k in kernels
    )


def sharing_names(kernels: Sequence[Kernel], outlines: Sequence[Outline]) -> tuple[Kernel, ...]:
    """The kernels, with `shares_name` set: beside a function of the host or the device, or a kernel
    that is declared with other parameters and never defined."""
    own = defaultdict[str, list[list[str]]](list)
    for kernel in kernels:
        own[kernel.qualified_name].append(_words(signature_of(kernel)))
    shared = {
        item.qualified_name
        for facts in outlines
        for item in facts.items
        if item.qualified_name in own
        and item.kind in ("function", "declaration")
        and item.parameters is not None
        and not item.is_kernel
        and _words(_signature(facts, item)) not in own[item.qualified_name]
    }
    return tuple(
        k.model_copy(update={"shares_name": True}) if k.qualified_name in shared else k
        for k in kernels
    )


def not_told_apart(kernels: Sequence[Kernel]) -> list[str]:
    """Names that several kernels have whose launches are not told apart: specialisations beside
    their template, and templates that differ in their conditions alone."""
    counts = Counter((k.qualified_name, k.name) for k in kernels)
    headers = defaultdict[tuple[str, str], set[str | None]](set)
    for kernel in kernels:
        headers[kernel.qualified_name, kernel.name].add(signature_of(kernel).template)
    found = [name for name, count in counts.items() if count > 1 and len(headers[name]) > 1]
    special = [
        (k.qualified_name, k.name)
        for k in kernels
        if _is_specialisation(k) and sum(o.qualified_name == k.qualified_name for o in kernels) > 1
    ]
    return list(dict.fromkeys(qualified for qualified, _ in [*found, *special]))


def _is_specialisation(kernel: Kernel) -> bool:
    return not kernel.template_parameters and kernel.text.startswith("template")


def _with_types(kernel: Kernel) -> str:
    types = (_QUALIFIERS.sub("", p.type_text) for p in kernel.parameters)
    tidy = (re.sub(r" (?=[*&\[])|(?<=[*&]) ", "", " ".join(t.split())) for t in types)
    return f"{kernel.plain_name}({', '.join(tidy)})"


def pointer_type(kernel: Kernel) -> str:
    """Text behind the program, by which `address` names a kernel; empty where its name does."""
    if not kernel.needs_types:
        return ""
    signature = signature_of(kernel)
    header = "" if signature.template is None else f"template <{signature.template}> "
    text = f"{header}using {_POINTER} = void (*)({signature.types});"
    for space in reversed(kernel.qualified_name.split("::")[:-1]):
        text = f"namespace {space} {{ {text} }}"
    return text + "\n"


def address(kernel: Kernel, callee: str) -> str:
    """What a kernel's address is written as, of this instance where it is a template."""
    if not kernel.needs_types:
        return f"&::{callee}"  # not what `using namespace std` brings along
    spaces = kernel.qualified_name.split("::")[:-1]
    arguments = f"<{callee.partition('<')[2]}" if kernel.template_parameters else ""
    pointer = "::".join(["", *spaces, _POINTER + arguments])
    return f"static_cast<{pointer}>(&{callee})"


def exact_address(kernel: Kernel, signature: Signature, callee: str) -> str:
    """The same where the types are written out, as they may be beside the kernel."""
    if not kernel.needs_types:
        return f"&{callee}"
    return f"static_cast<void (*)({signature.types})>(&{callee})"


class Probes:
    """What is beside the kernels of a program that is run, and is asked at their launches."""

    def __init__(
        self, kernels: Sequence[Kernel], outlines: dict[str, Outline], unclear: Iterable[str] = ()
    ) -> None:
        """`unclear`: plain names of templates whose instance no text tells at some launch."""
        overloaded = {k.plain_name for k in kernels if k.needs_types}
        special = {k.plain_name for k in kernels if _is_specialisation(k)}
        asked = overloaded.union(unclear) - special
        self.kernels = {name: [k for k in kernels if k.plain_name == name] for name in asked}
        self.defaulted = {
            name
            for name, several in self.kernels.items()
            if any(any(defaults_of(signature_of(k).parameters)) for k in several)
            and all(p.name for k in several for p in k.parameters)
        }
        """Of these a kernel has a parameter with a default, and all parameters have names."""
        self._outlines = outlines
        for kernel in kernels:
            facts = outlines[kernel.file]
            item = facts.item_at(kernel.start_byte)
            if item is None or item.parameters is None or _is_cut(facts, item):
                self.kernels.pop(kernel.plain_name, None)

    def names(self, name: str) -> tuple[str, ...]:
        """Of all the kernels that are called so, in the order of their numbers."""
        return tuple(dict.fromkeys(k.name for k in self.kernels[name]))

    def beside(self, path: str, *, registers: bool) -> list[tuple[int, str]]:
        """Texts of one file, each with the place where it is put. `registers`: the addresses of
        kernels that are no templates are to be known by name as well."""
        found = []
        facts = self._outlines[path]
        for item in facts.items:
            if item.name not in self.kernels or "__global__" not in item.spaces:
                continue
            kernel = self._declared(facts, item)
            if kernel is not None:
                found.append((item.end, self._probe(facts, item, kernel, registers=registers)))
        tokens = facts.tokens
        for at, token in enumerate(tokens[:-1]):
            named = token.text in self.kernels and tokens[at + 1].text == ";" and at > 1
            first = at
            while named and first > 1 and tokens[first - 1].text == "::":
                first -= 2
            if named and tokens[first - 1].text == "using":
                written = facts.slice(tokens[first - 1].start, token.start)
                stand = [_PROBE, *([_COMPLETED] if token.text in self.defaulted else [])]
                text = "".join(f" {written}{one}{token.text};" for one in stand)
                found.append((tokens[at + 1].end, text))
        return found

    def _declared(self, facts: Outline, item: Declaration) -> Kernel | None:
        """The kernel that a definition, or a declaration before it, is of."""
        if item.parameters is None or item.kind not in ("function", "declaration"):
            return None
        if _is_cut(facts, item):
            return None
        mine = _words(_signature(facts, item))
        named = [k for k in self.kernels[item.name] if k.qualified_name == item.qualified_name]
        spelled = next((k for k in named if _words(signature_of(k)) == mine), None)
        if spelled is None and len(named) == 1:  # the same types may have other names there
            count = len(read_parameters(parameters_of(facts, item)))
            return named[0] if len(named[0].parameters) == count else None
        return spelled

    def _probe(self, facts: Outline, item: Declaration, kernel: Kernel, *, registers: bool) -> str:
        signature = _signature(facts, item)
        header = "" if signature.template is None else f"template <{signature.template}> "
        header += _condition(facts, item)
        result = _result(facts, item)
        # A word alone is `void`, or a macro of the author's that has `__global__` in it too.
        condition = f", {result}" if item.template is not None and "<" in result else ""
        number = self.names(item.name).index(kernel.name)
        kind = f"::cudaops::Overload<{number}, void({signature.types}){condition}>"
        text = f" {header}{kind} {_PROBE}{item.name}({signature.parameters});"
        if item.kind == "function" and item.name in self.defaulted:
            text += _completing(item.name, kernel, signature)
        if registers and item.kind == "function" and not kernel.template_parameters:
            own = exact_address(kernel, signature, item.name)
            text += f' CUDAOPS_KERNEL("{kernel.name}", ({own}));'
        return text

    def chosen(self, name: str, callee: str, arguments: Sequence[str]) -> Chosen | None:
        """The kernel that a call means; None where nobody can be asked. `name`: the last one of the
        callee."""
        head, angle, rest = callee.partition("<")
        spaces, found, _ = head.rstrip().rpartition(name)
        if not found or any(map(has_closure, arguments)):
            return None
        asked = f"{spaces}{_PROBE}{name}{angle}{rest}({', '.join(arguments)})"
        listed = ", ".join(f'"{one}"' for one in self.names(name))
        return Chosen(
            f"::cudaops::overload_name(decltype({asked})::index, {listed})",
            f"static_cast<typename decltype({asked})::Pointer>(&{callee})",
            f"{spaces}{_COMPLETED}{name}{angle}{rest}"
            if self._leaves_out(name, len(arguments))
            else "",
        )

    def _leaves_out(self, name: str, given: int) -> bool:
        """Whether a default stands for an argument of a launch, or none does: so says the overload
        that is chosen. Where all take more, `left_out` puts them in."""
        taken = {len(k.parameters) for k in self.kernels[name]}
        return name in self.defaulted and given in taken and max(taken) > given


class Chosen(NamedTuple):
    """The kernel that a launch means, as C++ expressions."""

    name: str
    address: str
    completed: str
    """A function that calls its first argument with the others, and with the kernel's defaults for
    those that are left out; empty where none may be."""


def _completing(name: str, kernel: Kernel, signature: Signature) -> str:
    """`Chosen.completed`, beside a kernel: its defaults mean what they mean there."""
    header = "" if signature.template is None else f"{signature.template}, "
    names = (f"{p.name}{'...' * ('...' in p.type_text)}" for p in kernel.parameters)
    handed = f"Cudaops_k&& cudaops_k{f', {signature.parameters}' * bool(kernel.parameters)}"
    return (
        f" template <{header}class Cudaops_k> void {_COMPLETED}{name}({handed})"
        f" {{ cudaops_k({', '.join(names)}); }}"
    )


def has_closure(argument: str) -> bool:
    """Whether a lambda is in it: in what is not evaluated C++17 takes none."""
    tokens = lex(byte_text(argument)).tokens
    return any(
        token.text == "[" and (at == 0 or tokens[at - 1].text in _BEFORE_CLOSURE)
        for at, token in enumerate(tokens)
    )


def _words(signature: Signature) -> list[str]:
    """Types alone: names and defaults may differ from declaration to definition."""
    types = [p.type_text for p in read_parameters(signature.types)]
    header = (signature.template or "").partition("=")[0]
    return [t.text for t in lex(byte_text(f"{header} ; {' , '.join(types)}")).tokens]


def _is_cut(facts: Outline, item: Declaration) -> bool:
    """Whether a directive is in its head."""
    assert item.parameters is not None
    first, last = facts.tokens[item.first].start, facts.tokens[item.parameters[1]].end
    return any(first <= d.start < last for d in facts.lexed.directives)


def _condition(facts: Outline, item: Declaration) -> str:
    """What is between its template header and its type: `requires C<T> `, and a word that keeps
    `::` of the type from it."""
    if item.template is None:
        return ""
    first = item.template[1] + 1
    words = facts.tokens[first : constraint_end(facts.tokens, first)]
    return one_line(facts.lexed, words[0].start, words[-1].end) + " extern " if words else ""


def _result(facts: Outline, item: Declaration) -> str:
    """Its type as written: of a template it may be a condition."""
    assert item.parameters is not None
    at = item.first
    if item.template is not None:
        at = constraint_end(facts.tokens, item.template[1] + 1)
    name = item.parameters[0] - 1
    kept = []
    while at < name:
        text = facts.tokens[at].text
        if text in _WITH_PARENTHESES:
            at = closing(facts.tokens, at + 1)
        elif text not in _ATTRIBUTES:
            kept.append(text)
        at += 1
    return " ".join(kept)
