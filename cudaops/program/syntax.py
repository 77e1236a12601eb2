"""A function's body as clang understood it: typed trees, macros and template arguments in place.

Types are spelled in one way each (`normal_type`), without qualifiers, a pointer with its stars:
`float*`; of the qualifiers those that matter have fields. What C++ converts by itself is no node:
an operand's type next to its parent's tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from cudaops.domain.workload import Element

POINTER_BYTES = 8
ORDERS = frozenset({"<", ">", "<=", ">="})
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
"""What says the same with the sides exchanged: `a < b` is `b > a`."""
NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
"""What holds where the comparison does not."""
BUILTINS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


class NotUnderstood(Exception):
    """The program uses a construct that is not modelled; the caller must not change it."""


class Range(tuple[str, int, int]):
    """File of the program, first byte and the byte after the last one, in the author's text."""

    __slots__ = ()

    @property
    def file(self) -> str:
        """Path as in `Program.files`."""
        return self[0]

    @property
    def start(self) -> int:
        """Offset of the first byte."""
        return self[1]

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self[2]

    def holds(self, other: Range | None) -> bool:
        """Whether another one lies in it, or is the same; None, which is nowhere, does not."""
        return (
            other is not None
            and self.file == other.file
            and self.start <= other.start
            and other.end <= self.end
        )


@dataclass(frozen=True, kw_only=True)
class _Placed:
    where: Range | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class _Typed(_Placed):
    type: str = field(default="", compare=False)
    is_volatile: bool = field(default=False, compare=False, repr=False)
    """Its type, or what that leads to at any level, is volatile."""


@dataclass(frozen=True)
class Number(_Typed):
    """A literal, or a constant of the program as the literal that it is worth."""

    text: str
    constant: str = field(default="", compare=False)
    """The function's own constant that is there: its text needs the declaration."""


@dataclass(frozen=True)
class Name(_Typed):
    """A variable or parameter; a second one of the same name in a function is `name#2`."""

    text: str


@dataclass(frozen=True)
class Member(_Typed):
    """`base.name`; `p->name` is a member of `*p`."""

    base: Expression
    name: str


@dataclass(frozen=True)
class Index(_Typed):
    """`base[index]`."""

    base: Expression
    index: Expression


@dataclass(frozen=True)
class Call(_Typed):
    """`function(arguments)`. A function of the program is under the name that it has in
    `KernelForm.functions`, any other under its unqualified one; a method's object comes first."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Cast(_Placed):
    """A conversion that is written, in any of C++'s spellings."""

    type: str
    operand: Expression
    is_volatile: bool = field(default=False, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Unary(_Typed):
    """`-x`, `!x`, `~x`, `*x`, `&x`, and `+x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Step(_Typed):
    """`++x`, `x++`, `--x`, `x--`."""

    target: Expression
    by: int
    gives_old: bool = field(default=False, compare=False)
    """`x++`: its value is what stood there before."""


@dataclass(frozen=True)
class Binary(_Typed):
    """Two operands, assignment excluded; `,` too."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Choice(_Typed):
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Assign(_Typed):
    """`target op= value`; `operator` is empty for a plain assignment."""

    target: Expression
    operator: str
    value: Expression


@dataclass(frozen=True)
class Values(_Typed):
    """`{a, b}`, and `T{a, b}` of an aggregate."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Unmodelled(_Typed):
    """Anything else, by clang's name for it, with the expressions in it."""

    what: str
    parts: tuple[Expression, ...] = ()


Expression = (
    Number | Name | Member | Index | Call | Cast | Unary | Step | Binary | Choice | Assign
    | Values | Unmodelled
)  # fmt: skip


@dataclass(frozen=True)
class Declare(_Placed):
    """One declared variable."""

    type: str
    """Of an element for an array, of what is pointed at for a pointer."""
    name: str
    pointer: bool = False
    extents: tuple[Expression, ...] = ()
    shared: bool = False
    value: Expression | None = None
    zeroed: bool = False
    """Declared with `= {}` or `= {0}`."""
    unsized: bool = False
    """An array whose size the launch gives: `extern __shared__ float tile[]`."""
    is_volatile: bool = field(default=False, kw_only=True)
    """Itself, its elements or what it points to."""


@dataclass(frozen=True)
class Refer(_Placed):
    """A reference: another name for a variable or a place in memory."""

    type: str
    name: str
    target: Expression
    is_volatile: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Evaluate(_Placed):
    """An expression for its effect."""

    value: Expression


@dataclass(frozen=True)
class If(_Placed):
    """`if (condition) yes else no`."""

    condition: Expression
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class For(_Placed):
    """A loop; `while` has neither `first` nor `step`."""

    first: tuple[Statement, ...]
    condition: Expression | None
    step: tuple[Expression, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Do(_Placed):
    """`do body while (condition)`."""

    body: tuple[Statement, ...]
    condition: Expression


@dataclass(frozen=True)
class Switch(_Placed):
    """`switch (subject) body`, with `Label`s among the statements of the body."""

    subject: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Label(_Placed):
    """`case value:`; `default:` without one."""

    value: Expression | None = None


@dataclass(frozen=True)
class Leave(_Placed):
    """`return`, `break` or `continue`, without a value."""

    word: str


@dataclass(frozen=True)
class Give(_Placed):
    """`return value`."""

    value: Expression


@dataclass(frozen=True)
class Block(_Placed):
    """Statements with a scope of their own."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Opaque(_Placed):
    """Any other statement, by clang's name for it: `asm`, `goto`, a range-based loop."""

    what: str
    written: tuple[Expression, ...] = ()
    """Operands of assembly that it may write."""
    read: tuple[Expression, ...] = ()
    """Its other operands."""


Statement = (
    Declare | Refer | Evaluate | If | For | Do | Switch | Label | Leave | Give | Block | Opaque
)  # fmt: skip


@dataclass(frozen=True)
class NumberField:
    """A number inside of a structure."""

    path: str
    """`position.x`, from the structure on."""
    offset_bytes: int
    element: Element
    wide_offset_bytes: int | None
    """The same with every floating type widened (`Field.wide_at_bytes`)."""
    is_public: bool
    """Whether every name of the path is one that other code may use."""
    bits: tuple[int, int] | None = None
    """Of a bit-field (`Field.bits`)."""


@dataclass(frozen=True)
class Layout:
    """What a structure consists of."""

    size_bytes: int
    wide_size_bytes: int | None
    """With every floating type widened; None: not known."""
    fields: tuple[NumberField, ...]
    """All its numbers; none where anything else is in it than these and padding, but for
    pointers in a structure that is passed by value."""
    pointers: tuple[tuple[int, int], ...] = ()
    """Where these stand, and where with every floating type widened."""


@dataclass(frozen=True)
class PointerMember:
    """A pointer inside of a structure."""

    path: str
    """`position.x`, from the parameter on."""
    offset_bytes: int
    type: str
    """Of what it points to."""
    is_const: bool
    is_certain: bool = True
    """False for a word of a template's base class, of which libclang does not tell the members: it
    is a pointer where an address is in it."""
    layout: Layout | None = None
    """Of the structures that it points to."""


@dataclass(frozen=True)
class TypedParameter:
    """A parameter with its type, aliases and template arguments resolved."""

    name: str
    type: str
    """Of what it points to for a pointer, else the value's."""
    is_pointer: bool
    is_const: bool = False
    """For a pointer: whether what it points to is const."""
    size_bytes: int = 0
    pointers: tuple[PointerMember, ...] = ()
    """Of a structure, nested ones included; of a pointer in the structures it points to, as far as
    they can be told."""
    unclear: str = ""
    """What keeps a structure's pointers from being told: a union, or pointers to pointers."""
    layout: Layout | None = None
    """Of a structure; of a pointer that of the structures it points to."""
    is_reference: bool = False
    """It is another name for what the caller hands to it; `type` is of that."""
    is_volatile: bool = False
    """Itself or, at any level, what it points to, refers to or has as a member."""
    is_restrict: bool = False
    """A pointer that is declared not to alias others."""


@dataclass(frozen=True)
class TypedVariable:
    """A variable of the program with its type, or that of an array's elements, resolved."""

    name: str
    """Qualified."""
    type: str
    layout: Layout | None
    """Of a structure."""
    is_volatile: bool = False


@dataclass(frozen=True)
class Function(_Placed):
    """A kernel, or a function of the program that it calls."""

    name: str
    qualified_name: str
    result: str
    parameters: tuple[TypedParameter, ...]
    body: tuple[Statement, ...]
    launch_bounds: tuple[int, ...] = ()
    body_where: Range | None = field(default=None, compare=False, repr=False)
    """From `{` to the byte after `}`."""
    gives_reference: bool = False
    """What it returns is another name for something."""
    is_method: bool = False
    """Not a static one: its object is the first argument of a call."""
    is_const: bool = False
    """A method that leaves its object as it is."""


@dataclass(frozen=True)
class KernelForm:
    """One instance of a kernel with everything of the program that it can reach."""

    kernel: Function
    functions: tuple[Function, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    """(type, bytes) of everything that a pointer in it points to."""
    outside: tuple[tuple[str, Range], ...] = ()
    """Variables of the program that it names, each with its declaration."""
    variables: tuple[TypedVariable, ...] = ()
    """The same, sorted by their names."""
    structures: tuple[tuple[str, Element], ...] = ()
    """Structures that a pointer in it points to, each with what it consists of: `opaque` where that
    is more than one kind of number."""

    def function(self, name: str) -> Function | None:
        """The program's function that calls mean by this name; None for one of CUDA's or C's."""
        return next((f for f in self.functions if f.name == name), None)


@dataclass(frozen=True)
class LaunchedInstance:
    """The kernel that one launch means, as clang resolves its template and overload."""

    file: str
    start: int
    """Where the launch expression begins: bytes from the file's start."""
    callee: str
    """Qualified, with all template arguments: `ops::scale<float, 4>`."""
    parameters: tuple[TypedParameter, ...]
    within: str
    """Mangled name of the function that launches it."""
    is_only: bool
    """The launch means no other: it is in no template."""
    defined: Range | None = None
    """Where the kernel, or its template, is defined."""


_NORMAL = {
    "unsigned int": "unsigned", "long": "long long", "unsigned long": "unsigned long long",
    "__half": "half", "_Bool": "bool",
}  # fmt: skip


def normal_type(canonical: str) -> str:
    """One spelling for each type: clang's canonical one, on LP64, without qualifiers."""
    stars = ""
    named = canonical.replace("(anonymous namespace)::", "")
    words = named.replace("*", " * ").replace("&", " ").split()
    kept = []
    for word in words:
        if word == "*":
            stars += "*"
        elif word not in ("const", "volatile", "__restrict", "struct", "class", "enum", "union"):
            kept.append(word)
    plain = " ".join(kept)
    return _NORMAL.get(plain, plain) + stars


def integer_literal(text: str) -> tuple[int, str] | None:
    """Value and suffix of an integer as written; None for a floating literal. Raises ValueError for
    a text that is neither."""
    plain = text.replace("'", "").lower()
    is_hex = plain.startswith("0x")
    if not is_hex and any(c in plain for c in ".ef"):
        return None
    digits = plain.rstrip("ul")
    base = 16 if is_hex else 8 if len(digits) > 1 and digits[0] == "0" else 10
    return int(digits, base), plain[len(digits) :]


def integer_of(node: object) -> int | None:
    """Value of an integer literal; None for any other node."""
    if not isinstance(node, Number):
        return None
    try:
        found = integer_literal(node.text)
    except ValueError:
        return None
    return None if found is None else found[0]


def children(node: object) -> tuple[Any, ...]:
    """Expressions and statements directly below a node, or in a tuple, in the text's order.

    A node keeps them: trees are looked through thousands of times, and never change.
    """
    if type(node) is tuple:
        return node
    held = getattr(node, "__dict__", None)
    if held is None:
        return ()
    found: tuple[Any, ...] | None = held.get("_children")
    if found is None:
        names = field_names(type(node))
        if names is None:
            return ()
        found = held["_children"] = tuple(_children(node, names))
    return found


def _children(node: Any, names: Sequence[str]) -> Iterator[Any]:
    for name in names:
        value = getattr(node, name)
        for item in value if type(value) is tuple else (value,):
            if field_names(type(item)) is not None:
                yield item


_FIELDS: dict[type, tuple[str, ...] | None] = {}


def field_names(kind: type) -> tuple[str, ...] | None:
    """Fields of a kind of node, in order; None for what is no node. Kept: `dataclasses` looks them
    up anew each time."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None
    return _FIELDS[kind]


def plain_name(name: str) -> str:
    """A variable as its author spells it: a second one of a name has a number behind `#`."""
    return name.partition("#")[0]


def joined_by(node: Any, operator: str) -> Iterator[Any]:
    """Operands of a chain of one operator: `a`, `b`, `c` of `a && b && c`."""
    if isinstance(node, Binary) and node.operator == operator:
        yield from joined_by(node.left, operator)
        yield from joined_by(node.right, operator)
    else:
        yield node


def below(node: object) -> Iterator[Any]:
    """A node and everything below it, outer ones first, in the text's order."""
    waiting = [node]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += children(at)[::-1]


_KINDS = {
    kind.__name__: kind
    for kind in (
        Number, Name, Member, Index, Call, Cast, Unary, Step, Binary, Choice, Assign, Values,
        Unmodelled, Declare, Refer, Evaluate, If, For, Do, Switch, Label, Leave, Give, Block,
        Opaque, PointerMember, NumberField, Layout, TypedParameter, TypedVariable, Function,
        KernelForm, LaunchedInstance,
    )
}  # fmt: skip


def encoded(node: Any) -> Any:
    """A tree as JSON's lists: `[kind, field, ...]`, tuples as `[None, item, ...]`."""
    if isinstance(node, Range):
        return ["Range", *node]
    if isinstance(node, tuple):
        return [None, *map(encoded, node)]
    if is_dataclass(node):
        return [type(node).__name__, *(encoded(getattr(node, f.name)) for f in fields(node))]
    return node


def decoded(data: Any) -> Any:
    """The tree again. Raises NotUnderstood for what `encoded` did not write."""
    if not isinstance(data, list):
        return data
    kind, *rest = data
    values = [decoded(value) for value in rest]
    if kind is None:
        return tuple(values)
    if kind == "Range":
        return Range(values)
    if kind not in _KINDS:
        raise NotUnderstood(f"a {kind}")
    names = field_names(_KINDS[kind]) or ()
    return _KINDS[kind](**dict(zip(names, values, strict=True)))
