"""Bodies of functions, from clang's cursors to `syntax` trees. Runs in `clang_child`'s process."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from clang.cindex import Cursor, CursorKind, StorageClass, TypeKind, conf

from cudaops.domain.workload import Element
from cudaops.program import syntax as s
from cudaops.program.analysis.library_calls import TEXTURES
from cudaops.program.clang_classes import (
    REFERENCES,
    ROOT,
    first_value,
    is_made,
    is_own,
    is_value,
    is_volatile,
    is_written,
    members,
    only_element,
    runs_by_itself,
)
from cudaops.program.clang_constants import digits, evaluated

_DEEPEST = 400
"""Nesting of a tree; deeper ones are generated."""

_K = CursorKind
_BINARY = {
    3: "*", 4: "/", 5: "%", 6: "+", 7: "-", 8: "<<", 9: ">>", 11: "<", 12: ">", 13: "<=",
    14: ">=", 15: "==", 16: "!=", 17: "&", 18: "^", 19: "|", 20: "&&", 21: "||", 22: "=",
    23: "*=", 24: "/=", 25: "%=", 26: "+=", 27: "-=", 28: "<<=", 29: ">>=", 30: "&=", 31: "^=",
    32: "|=", 33: ",",
}  # fmt: skip
"""CXBinaryOperatorKind (clang-c/Index.h, LLVM 17 and later)."""
_UNARY = {1: "p++", 2: "p--", 3: "++", 4: "--", 5: "&", 6: "*", 7: "+", 8: "-", 9: "~", 10: "!"}
"""CXUnaryOperatorKind."""
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F']+|[\d.][\d'.]*([eE][+-]?\d+)?)[uUlLfF]*")
_ATTRIBUTES = {_K.CUDACONSTANT_ATTR, _K.CUDADEVICE_ATTR}
SHARED = "cudaops_shared"
"""Stands for CUDA's own attribute, which clang takes in no function that the host may call too."""
_EXPLICIT_CASTS = {
    _K.CSTYLE_CAST_EXPR, _K.CXX_STATIC_CAST_EXPR, _K.CXX_FUNCTIONAL_CAST_EXPR,
}  # fmt: skip


_PLACES = {
    _K.DECL_REF_EXPR, _K.MEMBER_REF_EXPR, _K.ARRAY_SUBSCRIPT_EXPR, _K.UNARY_OPERATOR,
    _K.PAREN_EXPR, _K.CALL_EXPR, _K.CONDITIONAL_OPERATOR,
}  # fmt: skip
"""What may be written where it is without a conversion."""


def _is_shared(cursor: Cursor) -> bool:
    return any(c.kind == _K.ANNOTATE_ATTR and c.spelling == SHARED for c in cursor.get_children())


def where_of(cursor: Cursor) -> s.Range | None:
    """Where it is in the program. What a macro made stands where the whole macro is used; a
    name or number handed to a macro stands where it was written, and anything larger made of what
    was handed to one has an empty range at the macro's name."""
    start, end = cursor.extent.start, cursor.extent.end
    if start.file is None or not start.file.name.startswith(f"{ROOT}/"):
        return None
    at = (start.offset, end.offset)
    if at[0] == at[1] and next(cursor.get_children(), None) is None:
        at = (_written_at(start), _written_at(end))
    return s.Range((start.file.name.removeprefix(f"{ROOT}/"), *at))


def _written_at(location: Any) -> int:
    """Offset of a location, of a macro's argument where that was written."""
    offset = ctypes.c_uint()
    conf.lib.clang_getFileLocation(location, None, None, None, ctypes.byref(offset))
    return offset.value


def numbered(spelled: str, names: Iterable[str]) -> str:
    """A name that is not among `names`: `spelled`, or `spelled#2` for the second of its kind."""
    taken = sum(s.plain_name(name) == spelled for name in names)
    return f"{spelled}#{taken + 1}" if taken else spelled


def _before(label: Cursor, statement: Cursor) -> s.Range | None:
    """Where a label stands, without its statement, which clang takes to be part of it."""
    whole, rest = where_of(label), where_of(statement)
    if whole is None or rest is None or not whole.start < rest.start <= whole.end:
        return whole
    return s.Range((whole.file, whole.start, rest.start))


class Body:
    """Statements of one function, with a name of its own for each variable."""

    def __init__(
        self,
        lib: Any,
        function_name: Callable[[Cursor], str],
        variables: dict[int, str],
        *,
        makes: bool = False,
    ) -> None:
        """`makes`: a constructor's, in which `this` names the object itself."""
        self._lib = lib
        self._function_name = function_name
        self._makes = makes
        self._variables = variables
        """Name by the hash of the declaration."""
        self.sizes: dict[str, int] = {}
        """Bytes of the types that pointers point to."""
        self.structures: dict[str, Element] = {}
        """Of those types: what the structures among them consist of."""
        self.outside: set[tuple[str, s.Range]] = set()
        self.named: dict[int, Cursor] = {}
        """Variables of the program, by their hashes."""
        """Variables of the program that are not the function's own, each with its declaration."""
        self._volatile: dict[str, bool] = {}
        """Whether a type is, by its canonical spelling."""
        self._depth = 0

    def _is_volatile(self, kind: Any) -> bool:
        if (spelled := kind.spelling) not in self._volatile:
            self._volatile[spelled] = is_volatile(kind)
        return self._volatile[spelled]

    def statements(self, compound: Cursor) -> tuple[s.Statement, ...]:
        """Those of a block."""
        return tuple(x for c in compound.get_children() for x in self._statement(c))

    def _if(self, cursor: Cursor, parts: list[Cursor]) -> s.Statement:
        """Of `if constexpr` what is compiled."""
        value = evaluated(self._lib, parts[0]) if _is_constexpr(cursor, parts[0]) else None
        if value is not None:
            taken = parts[1:2] if value else parts[2:]
            body = tuple(x for part in taken for x in self._nested(part))
            match body:
                case (s.Block(inner),):
                    return s.Block(inner)
            return s.Block(body)
        no = self._nested(parts[2]) if len(parts) == 3 else ()
        return s.If(self.expression(parts[0]), self._nested(parts[1]), no)

    def _nested(self, cursor: Cursor) -> tuple[s.Statement, ...]:
        if cursor.kind == _K.COMPOUND_STMT:
            return self.statements(cursor)
        return tuple(self._statement(cursor))

    def _statement(self, cursor: Cursor) -> Iterator[s.Statement]:
        where = where_of(cursor)
        for found in self._statements_of(cursor):
            yield found if found.where else replace(found, where=where)

    def _statements_of(self, cursor: Cursor) -> Iterator[s.Statement]:
        parts = list(cursor.get_children())
        match cursor.kind:
            case _K.NULL_STMT:
                return
            case _K.COMPOUND_STMT:
                yield s.Block(self.statements(cursor))
            case _K.DECL_STMT:
                for declared in parts:
                    yield from self._declared(declared)
            case _K.IF_STMT if len(parts) in (2, 3) and not _declares(parts[0]):
                yield self._if(cursor, parts)
            case _K.FOR_STMT:
                yield self._for(cursor, parts)
            case _K.WHILE_STMT if len(parts) == 2:
                yield s.For((), self.expression(parts[0]), (), self._nested(parts[1]))
            case _K.DO_STMT if len(parts) == 2:
                yield s.Do(self._nested(parts[0]), self.expression(parts[1]))
            case _K.SWITCH_STMT if len(parts) == 2:
                yield s.Switch(self.expression(parts[0]), self._nested(parts[1]))
            case _K.CASE_STMT if len(parts) == 2:
                yield s.Label(self.expression(parts[0]), where=_before(cursor, parts[1]))
                yield from self._statement(parts[1])
            case _K.DEFAULT_STMT if len(parts) == 1:
                yield s.Label(None, where=_before(cursor, parts[0]))
                yield from self._statement(parts[0])
            case _K.BREAK_STMT:
                yield s.Leave("break")
            case _K.CONTINUE_STMT:
                yield s.Leave("continue")
            case _K.RETURN_STMT:
                value = self.expression(parts[0]) if parts else s.Name("this")
                yield s.Give(value) if parts or self._makes else s.Leave("return")
            case _K.UNEXPOSED_STMT if parts and parts[-1].kind.is_statement():
                yield from self._statement(parts[-1])  # `#pragma unroll` and other attributes
            case _K.ASM_STMT | _K.MS_ASM_STMT as kind:
                yield s.Opaque(kind.name.lower(), *self._operands(parts))
            case kind if kind.is_expression():
                yield from map(s.Evaluate, _terms(self.expression(cursor)))
            case kind:
                yield s.Opaque(kind.name.lower())

    def _operands(self, parts: list[Cursor]) -> Iterator[tuple[s.Expression, ...]]:
        """Of assembly, those that may be written first: a value is converted to what is read."""
        operands = [p for p in parts if p.kind.is_expression()]
        for is_place in (True, False):
            found = (p for p in operands if (p.kind in _PLACES) == is_place)
            yield tuple(self.expression(p) for p in found)

    def _declared(self, cursor: Cursor) -> Iterator[s.Statement]:
        match cursor.kind:
            case _K.VAR_DECL:
                yield self._variable(cursor)
            case (
                _K.TYPEDEF_DECL | _K.TYPE_ALIAS_DECL | _K.USING_DECLARATION | _K.USING_DIRECTIVE
                | _K.NAMESPACE_ALIAS | _K.STATIC_ASSERT | _K.STRUCT_DECL | _K.CLASS_DECL
                | _K.UNION_DECL | _K.ENUM_DECL
            ):  # fmt: skip
                return
            case kind:
                yield s.Opaque(kind.name.lower())

    def _variable(self, cursor: Cursor) -> s.Statement:
        kind = cursor.type.get_canonical()
        shared, volatile = _is_shared(cursor), self._is_volatile(kind)
        if kind.kind in REFERENCES:
            return self._refer(cursor, kind)
        if (
            cursor.storage_class == StorageClass.STATIC
            and not shared
            and not self._is_number(cursor)
        ):
            return s.Opaque("static variable")
        if runs_by_itself(kind):
            return self._object(cursor, kind, shared=shared)
        name = self._name_of(cursor)
        extents: list[s.Expression] = []
        unsized = kind.kind == TypeKind.INCOMPLETEARRAY
        while kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY):
            if kind.kind == TypeKind.CONSTANTARRAY:
                extents.append(s.Number(str(kind.element_count), type="int"))
            kind = kind.element_type.get_canonical()
        value = self._initial(cursor)
        zeroed = isinstance(value, s.Values) and all(_is_zero(v) for v in value.items)
        pointer = kind.kind == TypeKind.POINTER
        plain = s.normal_type((kind.get_pointee() if pointer else kind).get_canonical().spelling)
        return s.Declare(
            plain, name, pointer, tuple(extents), shared, None if zeroed else value, zeroed,
            unsized, is_volatile=volatile,
        )  # fmt: skip

    def _is_number(self, cursor: Cursor) -> bool:
        """Whether a variable is one number for good."""
        return _is_constant(cursor) and evaluated(self._lib, cursor) is not None

    def _object(self, cursor: Cursor, kind: Any, *, shared: bool) -> s.Statement:
        """A variable of a class whose constructor the program writes: a call of it."""
        value = None if shared or not is_value(kind, self._lib) else self._initial(cursor)
        if value is None or isinstance(value, s.Unmodelled | s.Values):
            return s.Opaque("object with code of its own")
        if isinstance(value, s.Call) and value.where == where_of(cursor):
            value = replace(value, where=None)  # `V v(1)`: its text is the declaration's
        return s.Declare(
            s.normal_type(kind.spelling), self._name_of(cursor), value=value,
            is_volatile=self._is_volatile(kind),
        )  # fmt: skip

    def beginnings(self, constructor: Cursor) -> tuple[s.Statement, ...]:
        """What a constructor gives the members before its body runs, in their order."""
        given: dict[str, Cursor] = {}
        calls: list[Cursor] = []
        parts = iter(constructor.get_children())
        for part in parts:
            if part.kind == _K.MEMBER_REF:
                given[part.spelling] = next(parts)
            elif part.kind.is_expression():
                calls.append(part)  # of a base's constructor, or of another of the class
        parent, this = constructor.semantic_parent, s.Name("this")
        if len(calls) < sum(c.kind == _K.CXX_BASE_SPECIFIER for c in members(parent, self._lib)):
            return (s.Opaque("object with code of its own"),)
        found: list[s.Statement] = [
            s.Evaluate(s.Assign(this, "", self.expression(c))) for c in calls
        ]
        for member in parent.type.get_fields():
            value = given.get(member.spelling) or first_value(member)
            if value is not None:
                place = s.Member(this, member.spelling, type=_type_of(member))
                found.append(s.Evaluate(s.Assign(place, "", self.expression(value))))
            elif not calls and runs_by_itself(member.type.get_canonical()):
                return (s.Opaque("object with code of its own"),)
        return tuple(found)

    def _refer(self, cursor: Cursor, kind: Any) -> s.Statement:
        target = self._initial(cursor)
        if not isinstance(target, s.Name | s.Member | s.Index | s.Unary):
            return s.Opaque("reference")
        plain = s.normal_type(kind.get_pointee().get_canonical().spelling)
        volatile = self._is_volatile(kind)
        return s.Refer(plain, self._name_of(cursor), target, is_volatile=volatile)

    def _initial(self, cursor: Cursor) -> s.Expression | None:
        found = self._lib.clang_Cursor_getVarDeclInitializer(cursor)
        if found is None or found.kind == _K.INVALID_FILE or found.kind.is_invalid():
            return None
        found._tu = cursor._tu
        while found.kind == _K.UNEXPOSED_EXPR and len(inner := list(found.get_children())) == 1:
            found = inner[0]
        if found.kind == _K.CALL_EXPR and not list(found.get_arguments()):
            made = found.referenced
            if made is not None and made.kind == _K.CONSTRUCTOR and not is_written(made):
                return None
        return self.expression(found)

    def _name_of(self, declaration: Cursor) -> str:
        key = declaration.hash
        if key not in self._variables:
            spelled = declaration.spelling
            self._variables[key] = numbered(spelled, self._variables.values())
        return self._variables[key]

    def _for(self, cursor: Cursor, parts: list[Cursor]) -> s.Statement:
        """clang lists the parts that are there; the semicolons tell which they are."""
        places = [0, 1, 2] if len(parts) == 4 else _places(cursor, parts[:-1])
        if places is None or len(set(places)) != len(places):
            return s.Opaque("for_stmt")
        given = dict(zip(places, parts[:-1], strict=True))
        first: tuple[s.Statement, ...] = ()
        if 0 in given:
            first = tuple(self._statement(given[0]))
        condition = self.expression(given[1]) if 1 in given else None
        step = tuple(_terms(self.expression(given[2]))) if 2 in given else ()
        return s.For(first, condition, step, self._nested(parts[-1]))

    def expression(self, cursor: Cursor) -> s.Expression:
        """An expression; what is not modelled is an `Unmodelled` with what is in it."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise s.NotUnderstood("an expression nested too deeply")
            found = self._expression(cursor)
            kind = cursor.type.get_canonical()
            self._note_size(kind)
            if found.type:  # of the contents of parentheses, or under a conversion
                return found
            return replace(
                found,
                type=s.normal_type(kind.spelling),
                where=where_of(cursor),
                is_volatile=self._is_volatile(kind),
            )
        finally:
            self._depth -= 1

    def _note_size(self, kind: Any) -> None:
        if kind.kind == TypeKind.POINTER:
            pointee = kind.get_pointee().get_canonical()
            name = s.normal_type(pointee.spelling)
            if (size := pointee.get_size()) > 0:
                self.sizes[name] = size
            if pointee.kind == TypeKind.RECORD and name not in self.structures:
                self.structures[name] = only_element(pointee)
        elif kind.kind == TypeKind.RECORD and (size := kind.get_size()) > 0:
            self.sizes[s.normal_type(kind.spelling)] = size

    def _expression(self, cursor: Cursor) -> s.Expression:
        parts = [c for c in cursor.get_children() if not _is_type(c)]
        match cursor.kind:
            case _K.UNEXPOSED_EXPR | _K.PAREN_EXPR if len(parts) == 1:
                return self.expression(parts[0])
            case _K.INTEGER_LITERAL | _K.FLOATING_LITERAL | _K.CHARACTER_LITERAL:
                return self._literal(cursor)
            case _K.CXX_BOOL_LITERAL_EXPR | _K.CXX_UNARY_EXPR:
                return self._constant(evaluated(self._lib, cursor), _type_of(cursor))
            case _K.DECL_REF_EXPR:
                return self._reference(cursor, parts)
            case _K.MEMBER_REF_EXPR:
                return self._member(cursor, parts)
            case _K.ARRAY_SUBSCRIPT_EXPR if len(parts) == 2:
                base, index = (self.expression(p) for p in parts)
                return s.Index(base, index)
            case _K.CALL_EXPR:
                return self._call(cursor)
            case _K.CXX_REINTERPRET_CAST_EXPR if parts and _is_pointer(cursor):
                return self._cast(cursor, parts[-1])
            case found if found in _EXPLICIT_CASTS and parts:
                return self._cast(cursor, parts[-1])  # what the type is made of comes first
            case _K.UNARY_OPERATOR if len(parts) == 1:
                return self._unary(cursor, parts[0])
            case _K.BINARY_OPERATOR | _K.COMPOUND_ASSIGNMENT_OPERATOR if len(parts) == 2:
                return self._binary(cursor, parts)
            case _K.CONDITIONAL_OPERATOR if len(parts) == 3:
                condition, yes, no = (self.expression(p) for p in parts)
                return s.Choice(condition, yes, no)
            case _K.INIT_LIST_EXPR:
                return s.Values(tuple(self.expression(p) for p in parts))
            case _K.CXX_THIS_EXPR if not self._makes:
                return s.Name("this")
        inside = tuple(self.expression(p) for p in parts if p.kind.is_expression())
        return s.Unmodelled(cursor.kind.name.lower(), inside)

    def _cast(self, cursor: Cursor, operand: Cursor) -> s.Expression:
        return s.Cast(
            _type_of(cursor), self.expression(operand), where=where_of(cursor),
            is_volatile=self._is_volatile(cursor.type.get_canonical()),
        )  # fmt: skip

    def _literal(self, cursor: Cursor) -> s.Expression:
        token = next(cursor.get_tokens(), None)
        whole = token is not None and _NUMBER.fullmatch(token.spelling)
        if token is not None and whole and cursor.kind != _K.CHARACTER_LITERAL:
            return s.Number(token.spelling)
        return self._constant(evaluated(self._lib, cursor), _type_of(cursor))

    def _constant(self, value: float | None, kind: str, name: str = "") -> s.Expression:
        """A known value as the author could have written it; `name`: of the variable it is of."""
        if value is None:
            return s.Unmodelled("constant")
        if kind == "bool":
            return s.Name("true" if value else "false")
        text = digits(abs(value), kind)
        if text is None:
            return s.Unmodelled("constant")
        number = s.Number(text, name, type=kind)
        return s.Unary("-", number) if value < 0 else number

    def _reference(self, cursor: Cursor, parts: list[Cursor]) -> s.Expression:
        target = cursor.referenced
        if target is None or (not cursor.spelling and parts):
            # A template's value parameter, instantiated.
            return self.expression(parts[0]) if parts else s.Unmodelled("reference")
        if target.kind == _K.ENUM_CONSTANT_DECL:
            return self._constant(target.enum_value, _type_of(cursor))
        if target.kind in (_K.FUNCTION_DECL, _K.CXX_METHOD):
            return s.Name(self._called(target))
        if target.hash not in self._variables and (declared := where_of(target)) is not None:
            self.outside.add((target.spelling, declared))
            self.named[target.hash] = target
        if target.kind == _K.VAR_DECL and _is_constant(target):
            value = evaluated(self._lib, target)
            own = self._variables.get(target.hash, "")
            if value is not None and not (own and _type_of(cursor) == "bool"):
                return self._constant(value, _type_of(cursor), own)
        if target.hash in self._variables:
            return s.Name(self._variables[target.hash])
        return s.Name(target.spelling)

    def _member(self, cursor: Cursor, parts: list[Cursor]) -> s.Expression:
        this = s.Name("this")
        if not parts:
            return s.Member(this if self._makes else s.Unary("*", this), cursor.spelling)
        base = self.expression(parts[0])
        if self._makes and parts[0].kind == _K.CXX_THIS_EXPR:
            base = this
        elif parts[0].type.get_canonical().kind == TypeKind.POINTER:
            base = s.Unary("*", base)
        return s.Member(base, cursor.spelling)

    def _call(self, cursor: Cursor) -> s.Expression:
        target = cursor.referenced
        arguments = [a for a in cursor.get_arguments() if a.location.file is not None]
        values = tuple(self.expression(a) for a in arguments)
        if target is None or target.kind not in (
            _K.FUNCTION_DECL, _K.CXX_METHOD, _K.CONSTRUCTOR, _K.CONVERSION_FUNCTION,
        ):  # fmt: skip
            return s.Unmodelled("indirect call", values)
        if target.spelling == "operator=" and len(values) == 2 and is_made(target):
            return s.Assign(values[0], "", values[1])
        if target.kind == _K.CONSTRUCTOR:
            if len(values) == 1 and is_made(target) and _same(arguments[0], cursor):
                return values[0]  # a copy
            name = self._called(target) if is_written(target) else _type_of(cursor)
            return s.Call(name, values)
        if target.kind == _K.FUNCTION_DECL and is_own(target) and _is_whole(cursor):
            value = evaluated(self._lib, cursor)  # of a `constexpr` function, of constants
            if isinstance(value, int):
                return self._constant(value, _type_of(cursor))
        callee = next(iter(cursor.get_children()), None)
        if not values and not is_own(target) and target.is_static_method():
            if callee is not None and callee.kind == _K.UNEXPOSED_EXPR:
                callee = next(iter(callee.get_children()), None)
            asked = callee is not None and callee.kind == _K.MEMBER_REF_EXPR
            value = evaluated(self._lib, cursor)  # numeric_limits
            if value is not None or not asked:
                own = self._object_of(callee) if asked else ""
                return self._constant(value, _type_of(cursor), own)
        is_member = callee is not None and callee.kind == _K.MEMBER_REF_EXPR
        is_method = target.kind in (_K.CXX_METHOD, _K.CONVERSION_FUNCTION)
        if is_method and callee is not None and is_member:
            objects = [c for c in callee.get_children() if not _is_type(c)]
            values = (*(self.expression(c) for c in objects[:1]), *values)
        name = self._called(target)
        if name in TEXTURES and target.result_type.kind == TypeKind.VOID:
            return s.Unmodelled(f"{name} through a pointer", values)
        return s.Call(name, values)

    def _object_of(self, callee: Cursor | None) -> str:
        """The variable whose method is named; empty for another object."""
        parts = [] if callee is None else [c for c in callee.get_children() if not _is_type(c)]
        named = self.expression(parts[0]) if parts else None
        return named.text if isinstance(named, s.Name) else ""

    def _called(self, target: Cursor) -> str:
        """The name of a function of the program by its definition, or as CUDA knows it."""
        definition = target.get_definition()
        if definition is not None and is_own(definition):
            return self._function_name(definition)
        # Our headers give other names to what glibc (`__expf`) or clang keep for themselves.
        name = str(target.spelling)
        for prefix in ("fast__", "cudaops__"):
            name = f"__{name.removeprefix(prefix)}" if name.startswith(prefix) else name
        return name

    def _unary(self, cursor: Cursor, part: Cursor) -> s.Expression:
        operator = _UNARY.get(self._lib.clang_getCursorUnaryOperatorKind(cursor), "")
        operand = self.expression(part)
        if operator.endswith(("++", "--")):
            by = 1 if operator.endswith("+") else -1
            return s.Step(operand, by, gives_old=operator.startswith("p"))
        if not operator:
            return s.Unmodelled("unary_operator", (operand,))
        return s.Unary(operator, operand)

    def _binary(self, cursor: Cursor, parts: list[Cursor]) -> s.Expression:
        operator = _BINARY.get(self._lib.clang_getCursorBinaryOperatorKind(cursor), "")
        left, right = (self.expression(p) for p in parts)
        if operator.endswith("=") and operator not in ("<=", ">=", "==", "!="):
            return s.Assign(left, operator[:-1], right)
        if not operator:
            return s.Unmodelled("binary_operator", (left, right))
        return s.Binary(operator, left, right)


def _type_of(cursor: Cursor) -> str:
    return s.normal_type(cursor.type.get_canonical().spelling)


def _terms(value: s.Expression) -> Iterator[s.Expression]:
    """The expressions between commas."""
    if isinstance(value, s.Binary) and value.operator == ",":
        yield from _terms(value.left)
        yield from _terms(value.right)
    else:
        yield value


def _places(cursor: Cursor, parts: list[Cursor]) -> list[int] | None:
    """Which of a `for`'s three places each part has, from 0."""
    ends: list[int] = []
    depth = 0
    for token in cursor.get_tokens():
        depth += (token.spelling in ("(", "{", "[")) - (token.spelling in (")", "}", "]"))
        if token.spelling == ";" and depth == 1:
            ends.append(token.extent.start.offset)
        if depth == 0 and token.spelling == ")":
            break
    if len(ends) != 2:
        return None
    return [sum(part.extent.start.offset > end for end in ends) for part in parts]


def _is_constexpr(cursor: Cursor, condition: Cursor) -> bool:
    """Whether it is an `if constexpr`; of others the condition stands nearer to the beginning."""
    if condition.extent.start.offset - cursor.extent.start.offset < len("if constexpr("):
        return False
    words = (token.spelling for token in cursor.get_tokens())
    return next(words, "") == "if" and next(words, "") == "constexpr"


def _declares(cursor: Cursor) -> bool:
    return cursor.kind in (_K.VAR_DECL, _K.DECL_STMT)


def _is_pointer(cursor: Cursor) -> bool:
    return bool(cursor.type.get_canonical().kind == TypeKind.POINTER)


def _is_type(cursor: Cursor) -> bool:
    """Cursors beside an expression's operands: names of types, namespaces and templates."""
    return bool(cursor.kind.is_reference())


def _is_constant(target: Cursor) -> bool:
    kind = target.type.get_canonical()
    arithmetic = TypeKind.BOOL.value <= kind.kind.value <= TypeKind.LONGDOUBLE.value
    plain = not any(c.kind in _ATTRIBUTES for c in target.get_children())
    plain = plain and not _is_shared(target)
    known = arithmetic or kind.kind == TypeKind.ENUM
    return bool(is_own(target) and kind.is_const_qualified() and plain and known)


def _is_whole(cursor: Cursor) -> bool:
    kind = cursor.type.get_canonical().kind
    return bool(TypeKind.BOOL.value <= kind.value <= TypeKind.INT128.value)


def _same(argument: Cursor, call: Cursor) -> bool:
    return _type_of(argument) == _type_of(call)


def _is_zero(value: s.Expression) -> bool:
    return isinstance(value, s.Number) and value.text.rstrip("fFlLuU") in ("0", "0.0", "0.", ".0")
