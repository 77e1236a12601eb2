"""A process of its own that parses programs with libclang and answers with `syntax` trees.

clang is C++ that reads strangers' texts: it may crash, hang or eat memory, and then this process
dies, not the one that asked. Requests and answers are lines of JSON on stdin and stdout.
"""

from __future__ import annotations

import ctypes
import json
import re
import resource
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, TypeKind

from cudaops.domain.workload import Element
from cudaops.program import syntax as s
from cudaops.program.clang_bodies import Body, numbered, where_of
from cudaops.program.clang_classes import (
    REFERENCES,
    ROOT,
    is_const_method,
    is_method,
    is_own,
    is_volatile,
)
from cudaops.program.clang_constants import evaluated
from cudaops.program.clang_layouts import layout_of
from cudaops.program.clang_units import Clang, cursor_at, instance_asked_for
from cudaops.program.instances import callee_of

MEMORY_BYTES = 6 << 30
"""Address space: clang maps much more than it touches."""

MOST_POINTERS = 4095
"""Of one parameter, which takes up to 32,764 bytes. Source: CUDA C++ Programming Guide, function
parameters."""

_DIGITS = re.compile(r"\d+")
_K = CursorKind
_SCOPES = {
    _K.NAMESPACE, _K.LINKAGE_SPEC, _K.UNEXPOSED_DECL, _K.STRUCT_DECL, _K.CLASS_DECL,
    _K.CLASS_TEMPLATE, _K.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
}  # fmt: skip
_BODIES = {
    _K.FUNCTION_DECL, _K.FUNCTION_TEMPLATE, _K.CXX_METHOD, _K.CONSTRUCTOR, _K.DESTRUCTOR,
    _K.CONVERSION_FUNCTION,
}  # fmt: skip


def qualified(cursor: Cursor) -> str:
    names = []
    at = cursor
    while at is not None and at.kind not in (_K.TRANSLATION_UNIT, _K.INVALID_FILE):
        if at.spelling and not at.spelling.startswith("("):
            names.append(at.spelling)
        at = at.semantic_parent
    return "::".join(reversed(names))


def _attributes(cursor: Cursor) -> set[CursorKind]:
    return {c.kind for c in cursor.get_children() if c.kind.is_attribute()}


def definitions(cursor: Cursor) -> Iterator[Cursor]:
    """Functions that the program defines at namespace scope. The insides of others' namespaces,
    hundreds of them in the standard library, are not looked at."""
    for child in cursor.get_children():
        if child.kind in (_K.NAMESPACE, _K.LINKAGE_SPEC, _K.UNEXPOSED_DECL):
            if is_own(child):
                yield from definitions(child)
        elif child.kind == _K.FUNCTION_DECL and child.is_definition() and is_own(child):
            yield child


def find_kernel(unit: cindex.TranslationUnit, request: dict[str, Any]) -> Cursor:
    """The definition of a kernel; of a template the instance that `Clang.parse` asked for or, where
    its arguments mean nothing outside of the launch, the only one that the program launches."""
    name, callee, is_overloaded = request["kernel"], request["callee"], request["is_overloaded"]
    place = s.Range(request["place"])
    is_template = callee is not None
    if not is_template:
        text = request["files"][place.file]
        here = None if is_overloaded else _defined_at(unit, name, place, text)
        found = [here] if here is not None else [
            c
            for c in definitions(unit.cursor)
            if _K.CUDAGLOBAL_ATTR in _attributes(c) and qualified(c) == name
        ]  # fmt: skip
    else:
        asked = instance_asked_for(unit, request["main"])
        found = (_functions_named(asked) if asked else []) or launched(unit, name)
    if is_overloaded:
        found = [c for c in found if _stands_in(c, place)]
        if is_template:
            found = [c for c in found if _unspaced(spelled(c)) == _unspaced(callee)]
    if len(found) != 1:
        kind = "instances" if is_template else "definitions"
        raise s.NotUnderstood(f"{len(found)} {kind} of {name}")
    return found[0]


def _defined_at(
    unit: cindex.TranslationUnit, name: str, place: s.Range, text: str
) -> Cursor | None:
    """The kernel whose name stands where it is defined; None where that is not seen. Looking at
    everything that the program and its headers declare takes clang 30 times as long."""
    written = text.encode()[place.start : place.end]
    for match in re.finditer(rf"\b{name.rpartition('::')[2]}\b".encode(), written):
        cursor = cursor_at(unit, f"{ROOT}/{place.file}", place.start + match.start())
        if (
            cursor.kind == _K.FUNCTION_DECL
            and cursor.is_definition()
            and qualified(cursor) == name
            and _K.CUDAGLOBAL_ATTR in _attributes(cursor)
        ):
            return cursor
    return None


def _stands_in(cursor: Cursor, place: s.Range) -> bool:
    where = where_of(cursor)
    return where is not None and where.file == place.file and place.start <= where.end <= place.end


def _unspaced(callee: str | None) -> str:
    return "".join((callee or "").split()).removeprefix("::")


def _functions_named(cursor: Cursor) -> list[Cursor]:
    """Definitions of the functions that an expression or a body names, each once."""
    found: dict[int, Cursor] = {}
    for node in cursor.walk_preorder():
        if node.kind not in (_K.DECL_REF_EXPR, _K.CALL_EXPR, _K.MEMBER_REF_EXPR):
            continue
        target = node.referenced
        if target is not None and target.kind in (_K.FUNCTION_DECL, _K.CXX_METHOD):
            definition = target.get_definition()
            if definition is not None and is_own(definition):
                found.setdefault(definition.hash, definition)
    return list(found.values())


def reached(unit: cindex.TranslationUnit) -> Iterator[Cursor]:
    """Functions that the program defines, and instances of templates that these name."""
    seen: set[int] = set()
    waiting = list(definitions(unit.cursor))
    while waiting:
        cursor = waiting.pop()
        if cursor.hash not in seen:
            seen.add(cursor.hash)
            yield cursor
            if _K.CUDAGLOBAL_ATTR not in _attributes(cursor):
                waiting += _functions_named(cursor)


def launched(unit: cindex.TranslationUnit, name: str) -> list[Cursor]:
    """Instances of a kernel template that the program names."""
    return [
        c for c in reached(unit) if _K.CUDAGLOBAL_ATTR in _attributes(c) and qualified(c) == name
    ]


def launches(unit: cindex.TranslationUnit) -> Iterator[s.LaunchedInstance]:
    """What each launch of the program means; several where it is in a template. Those whose
    kernel no other place can name are left out; one in a macro stands where the macro is used."""
    plain = {c.hash for c in definitions(unit.cursor)}
    for function in reached(unit):
        for call in function.walk_preorder():
            if call.kind != _K.CALL_EXPR or not _is_launch(call):
                continue
            kernel, where = call.referenced, where_of(call)
            callee = spelled(kernel) if kernel is not None else None
            if callee is not None and where is not None:
                parameters = tuple(parameter_of(p) for p in kernel.get_arguments())
                yield s.LaunchedInstance(
                    where.file, where.start, callee, parameters, function.mangled_name,
                    is_only=function.hash in plain, defined=_defined(kernel),
                )  # fmt: skip


def _defined(kernel: Cursor) -> s.Range | None:
    definition = kernel.get_definition()
    return None if definition is None else where_of(definition)


def _is_launch(call: Cursor) -> bool:
    return any(
        c.kind == _K.CALL_EXPR and c.spelling == "__cudaPushCallConfiguration"
        for c in call.get_children()
    )


def spelled(kernel: Cursor) -> str | None:
    """A kernel with all its template arguments, as any place of the program can name it; None
    where one is a type that is local or has no name.

    By its mangled name: libclang does not tell the contents of a parameter pack.
    """
    mangled = re.sub(
        r"(\d+)__device_stub__",
        lambda m: str(int(m[1]) - len("__device_stub__")),
        kernel.mangled_name,
        count=1,
    )
    if not mangled.startswith("_Z"):  # extern "C"
        return str(kernel.spelling)
    # `Z` begins a name within a function; source names, which may hold one, go first.
    at, rest = 2, ""
    while at < len(mangled):
        number = _DIGITS.match(mangled, at)
        rest += "" if number else mangled[at]
        at = number.end() + int(number[0]) if number else at + 1
    text = demangled(mangled)
    if text is None or "Z" in rest or any(mark in text for mark in "{'$"):
        return None
    return callee_of(text)


def demangled(mangled: str) -> str | None:
    """A name of the Itanium ABI in C++; None where it is none."""
    function = _cxx().__cxa_demangle
    function.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = function(mangled.encode(), None, None, ctypes.byref(status))
    if not found:
        return None
    text = ctypes.string_at(found).decode()
    _cxx().free(ctypes.c_void_p(found))
    return text


@lru_cache(maxsize=1)
def _cxx() -> ctypes.CDLL:
    return ctypes.CDLL("libstdc++.so.6")


def walk_fields(
    kind: cindex.Type, path: str, offset: int, found: list[s.PointerMember], deep: int = 0
) -> str:
    """Collect the pointers in a structure; returns what keeps them from being told."""
    canonical = kind.get_canonical()
    if canonical.kind == TypeKind.POINTER:
        pointee = canonical.get_pointee().get_canonical()
        if pointee.kind == TypeKind.POINTER:
            return f"{path} is a table of pointers"
        if pointee.kind in (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO):
            return f"{path} points to a function"
        name = s.normal_type(pointee.spelling)
        const, layout = pointee.is_const_qualified(), layout_of(pointee)
        found.append(s.PointerMember(path, offset, name, const, layout=layout))
    elif canonical.kind == TypeKind.CONSTANTARRAY:
        element = canonical.element_type
        before = len(found)
        for n in range(canonical.element_count):
            at = offset + n * element.get_size()
            unclear = walk_fields(element, f"{path}[{n}]", at, found, deep + 1)
            if unclear or len(found) == before:  # without pointers, all elements are alike
                return unclear
            if len(found) > MOST_POINTERS:
                return f"{path} has too many pointers"
    elif canonical.kind == TypeKind.RECORD:
        return _walk_record(canonical, path, offset, found, deep)
    return ""


def _walk_record(
    kind: cindex.Type, path: str, offset: int, found: list[s.PointerMember], deep: int
) -> str:
    declaration = kind.get_declaration()
    if deep > 16:
        return f"{path} is nested too deeply"
    inner: list[s.PointerMember] = []
    bases = [c for c in declaration.get_children() if c.kind == _K.CXX_BASE_SPECIFIER]
    for number, base in enumerate(bases):
        unclear = walk_fields(base.type, path, offset, inner, deep + 1)
        if unclear or (inner and number > 0):
            return unclear or f"{path} has several bases"
    members = list(kind.get_fields())
    if not bases and _has_bases(declaration):
        end = min((m.get_field_offsetof() // 8 for m in members), default=kind.get_size())
        inner += [
            s.PointerMember(f"{path}+{at}", offset + at, "void", False, is_certain=False)
            for at in range(0, end - s.POINTER_BYTES + 1, s.POINTER_BYTES)
        ]
    for member in members:
        at = offset + member.get_field_offsetof() // 8
        named = member.spelling and "(" not in member.spelling
        inside = f"{path}.{member.spelling}" if named else path
        unclear = walk_fields(member.type, inside, at, inner, deep + 1)
        if unclear:
            return unclear
    if any(f.is_certain for f in inner) and declaration.kind == _K.UNION_DECL:
        return f"{path} is a union that holds a pointer"
    found += inner
    return ""


def _has_bases(declaration: Cursor) -> bool:
    """Of an instance of a class template, which has no cursors of its own below it."""
    template = cindex.conf.lib.clang_getSpecializedCursorTemplate(declaration)
    return template is not None and any(
        c.kind == _K.CXX_BASE_SPECIFIER for c in template.get_children()
    )


def parameter_of(cursor: Cursor) -> s.TypedParameter:
    """A parameter with its type, a structure walked to its pointers."""
    canonical = cursor.type.get_canonical()
    size = max(0, canonical.get_size())
    if canonical.kind == TypeKind.POINTER:
        pointee = canonical.get_pointee().get_canonical()
        inside: list[s.PointerMember] = []
        if pointee.kind == TypeKind.RECORD:
            walk_fields(pointee, "", 0, inside)
        return s.TypedParameter(
            cursor.spelling, s.normal_type(pointee.spelling), True, pointee.is_const_qualified(),
            size, tuple(inside), "points to pointers" if pointee.kind == TypeKind.POINTER else "",
            layout_of(pointee), is_volatile=is_volatile(canonical),
            is_restrict=canonical.is_restrict_qualified(),
        )  # fmt: skip
    found: list[s.PointerMember] = []
    unclear = walk_fields(canonical, cursor.spelling, 0, found)
    is_reference = canonical.kind in REFERENCES
    if is_reference:
        unclear = f"{cursor.spelling} is a reference"
    return s.TypedParameter(
        cursor.spelling, s.normal_type(canonical.spelling), False, canonical.is_const_qualified(),
        size, tuple(found), unclear, layout_of(canonical, by_value=True),
        is_reference=is_reference, is_volatile=is_volatile(canonical),
    )  # fmt: skip


def variable_of(cursor: Cursor) -> s.TypedVariable:
    """A variable's type; of an array that of its elements."""
    kind = cursor.type.get_canonical()
    volatile = is_volatile(kind)
    while kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
        kind = kind.element_type.get_canonical()
    if kind.kind == TypeKind.ENUM:
        kind = kind.get_declaration().enum_type.get_canonical()
    spelled = s.normal_type(kind.spelling)
    return s.TypedVariable(qualified(cursor), spelled, layout_of(kind), volatile)


class Reader:
    """Functions of one translation unit as trees."""

    def __init__(self, clang: Clang) -> None:
        self._lib = clang.lib
        self._names: dict[int, str] = {}
        """Function by the hash of its definition."""
        self._waiting: list[Cursor] = []
        self._sizes: dict[str, int] = {}
        self._structures: dict[str, Element] = {}
        self._outside: set[tuple[str, s.Range]] = set()
        self._variables: dict[int, Cursor] = {}

    def form(self, kernel: Cursor) -> s.KernelForm:
        """A kernel and all functions of the program that it reaches."""
        self._named(kernel)
        first, *rest = self._all()
        sizes, outside = tuple(sorted(self._sizes.items())), tuple(sorted(self._outside))
        structures = tuple(sorted(self._structures.items()))
        variables = tuple(sorted(map(variable_of, self._variables.values()), key=lambda v: v.name))
        return s.KernelForm(first, tuple(rest), sizes, outside, variables, structures)

    def _all(self) -> Iterator[s.Function]:
        while self._waiting:
            yield self._function(self._waiting.pop(0))

    def _named(self, definition: Cursor) -> str:
        if definition.hash not in self._names:
            spelled = definition.spelling
            if definition.kind == _K.CONSTRUCTOR:
                spelled = s.normal_type(definition.semantic_parent.type.get_canonical().spelling)
            elif definition.kind == _K.CXX_METHOD:
                spelled = f"{definition.semantic_parent.spelling}::{spelled}"
            self._names[definition.hash] = numbered(spelled, self._names.values())
            self._waiting.append(definition)
        return self._names[definition.hash]

    def _function(self, cursor: Cursor) -> s.Function:
        body = next((c for c in cursor.get_children() if c.kind == _K.COMPOUND_STMT), None)
        if body is None:
            raise s.NotUnderstood(f"{cursor.spelling} has no body")
        parameters = tuple(parameter_of(p) for p in cursor.get_arguments())
        variables = {p.hash: p.spelling for p in cursor.get_arguments()}
        makes = cursor.kind == _K.CONSTRUCTOR
        reader = Body(self._lib, self._named, variables, makes=makes)
        statements = reader.statements(body)
        result = s.normal_type(cursor.result_type.get_canonical().spelling)
        if makes:
            result = s.normal_type(cursor.semantic_parent.type.get_canonical().spelling)
            begun = (s.Declare(result, "this"), *reader.beginnings(cursor))
            statements = (*begun, *statements, s.Give(s.Name("this", type=result)))
        self._sizes |= reader.sizes
        self._structures |= reader.structures
        self._outside |= reader.outside
        self._variables |= reader.named
        return s.Function(
            name=self._named(cursor),
            qualified_name=qualified(cursor),
            result=result,
            parameters=parameters,
            body=statements,
            launch_bounds=tuple(self._launch_bounds(cursor)),
            body_where=where_of(body),
            gives_reference=cursor.result_type.get_canonical().kind in REFERENCES,
            is_method=is_method(cursor),
            is_const=is_const_method(cursor),
            where=where_of(cursor),
        )

    def _launch_bounds(self, cursor: Cursor) -> Iterator[int]:
        for attribute in cursor.get_children():
            if attribute.kind == _K.ANNOTATE_ATTR and attribute.spelling == "launch_bounds":
                for bound in attribute.get_children():
                    value = evaluated(self._lib, bound)
                    if isinstance(value, int):
                        yield value


def answer(clang: Clang, request: dict[str, Any]) -> dict[str, Any]:
    """One request: the form of a kernel, or all launches; or what was not understood."""
    # A name of several does not say which instance is asked for: the program's own are looked at.
    asked = None if request.get("is_overloaded") else request.get("callee")
    unit = clang.parse(request["files"], request["main"], asked, request.get("flags", ()))
    if "kernel" not in request:
        return {"launches": [s.encoded(one) for one in launches(unit)]}
    try:
        form = Reader(clang).form(find_kernel(unit, request))
    except s.NotUnderstood as problem:
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        first = "".join(f"; {_error(d)}" for d in errors[:1])
        return {"problem": f"{problem}{first}"}
    reached = [f.where for f in (form.kernel, *form.functions) if f.where]
    error = _error_in(unit, reached)
    return {"problem": error} if error else {"form": s.encoded(form)}


def _error_in(unit: cindex.TranslationUnit, reached: list[s.Range]) -> str:
    """The first error in these functions or outside of all: there clang drops the statement, or
    the field of a structure, that has it."""
    severe = [d for d in unit.diagnostics if _matters(d)]
    if not severe:
        return ""
    others = [w for c in functions(unit.cursor) if (w := where_of(c)) and w not in reached]
    for found in severe:
        if any(_is_in(w, found) for w in reached) or not any(_is_in(w, found) for w in others):
            return _error(found)
    return ""


def _matters(found: cindex.Diagnostic) -> bool:
    """Errors in the program but for two, for which nothing is dropped: a kernel that is declared
    before it is defined has, by the prelude's pragma, qualifiers that a kernel must not have; and a
    header that is not there leaves errors where it is missed."""
    file = found.location.file
    own = file is not None and file.name.startswith(f"{ROOT}/")
    known = "attributes are not compatible" in found.spelling or "file not found" in found.spelling
    return bool(found.severity >= cindex.Diagnostic.Error and own and not known)


def functions(cursor: Cursor) -> Iterator[Cursor]:
    """Definitions of functions, methods and their templates."""
    for child in cursor.get_children():
        if child.kind in _SCOPES:
            yield from functions(child)
        elif child.kind in _BODIES and is_own(child):
            yield child


def _is_in(where: s.Range, found: cindex.Diagnostic) -> bool:
    if found.location.file.name != f"{ROOT}/{where.file}":
        return False
    return bool(where.start <= found.location.offset <= where.end)


def _error(found: cindex.Diagnostic) -> str:
    file = found.location.file
    name = file.name.removeprefix(f"{ROOT}/") if file else "?"
    return f"{name}:{found.location.line}: {found.spelling}"


def serve() -> None:
    """Answer requests until stdin ends; the working folder is the prelude's."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    clang = Clang(Path.cwd())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        try:
            found = answer(clang, json.loads(line))
        except Exception as error:  # noqa: BLE001  # ours or clang.cindex: shown, not died of
            found = {"problem": f"reading it failed: {type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serve on a stack that deep trees fit on."""
    sys.setrecursionlimit(20_000)
    threading.stack_size(256 << 20)
    deep = threading.Thread(target=serve)
    deep.start()
    deep.join()
