"""Changed trees back to text: what is unchanged stands as its author wrote it, comments and all.

Trees are changed by building new nodes around old ones. A node that the front end made is printed
as the slice of the text that it stands for; a new one in the usual form, with slices in it.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.syntax import NotUnderstood

INDENT = "    "

_BINARY = {
    ",": 1, "||": 4, "&&": 5, "|": 6, "^": 7, "&": 8, "==": 9, "!=": 9, "<": 10, "<=": 10,
    ">": 10, ">=": 10, "<<": 11, ">>": 11, "+": 12, "-": 12, "*": 13, "/": 13, "%": 13,
}  # fmt: skip
_ASSIGN, _CHOICE, _UNARY, _POSTFIX, _PRIMARY = 2, 3, 14, 15, 16
"""C++'s precedence of operators, the loosest first."""
_CALLEE = re.compile(r"[A-Za-z_][\w:]*(\s*<[^()<>]*>)?(?=\s*\()")
_CONDITIONAL = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b", re.MULTILINE)
_ALIAS = re.compile(rb"^[ \t]*((?:using\s+\w+\s*=|typedef\b)[^;{}]*;)", re.MULTILINE)
_TRAILING = re.compile(r"[ \t]*(//.*|/\*.*\*/(?=[ \t]*$))")
_GAP_LINE = re.compile(r"\s*(//.*|#\s*(pragma|define|undef)\b.*|/\*.*\*/\s*)?$")


@dataclass(frozen=True)
class Raw:
    """Statements as text, without indentation of their own."""

    text: str


@dataclass(frozen=True)
class RawExpression:
    """An expression as text; safe inside any other where it is a name, call or in parentheses."""

    text: str
    type: str = ""


class FunctionText:
    """A function of a text, to print changed versions of it."""

    def __init__(self, text: str, function: s.Function) -> None:
        """`text`: of the file that the function stands in."""
        self._bytes = text.encode()
        self._function = function
        self._at: dict[int, s.Range] = {}
        """By the node's id: what it stands for in the text."""
        self._groups: dict[int, int] = {}
        """Statements that one range stands for, by the id of each: how many they are."""
        self._declared: dict[s.Range, s.Declare] = {}
        """Variables that are declared alone, by where that is."""
        self._gap_starts: dict[s.Range, int] = {}
        """By a statement's place: where what stands above it begins."""
        self._several = _standing_for_several(function.body)
        """Ranges that stand for more than one thing: uses of macros."""
        self._note_body(function.body, None, _opened(function))

    # What stands for what

    def _note_body(
        self, body: Sequence[s.Statement], outer: s.Range | None, end: int | None = None
    ) -> None:
        """`end`: of what stands before the body, where that is known."""
        for group in _groups(body):
            whole = group[0].where
            if whole is not None and end is not None and end <= whole.start:
                self._gap_starts.setdefault(whole, end)
            end = None if whole is None else self._whole_end(group[0], whole.end)
            for statement in group:
                if _is_there(whole) and whole != outer and whole not in self._several:
                    assert whole is not None
                    if isinstance(statement, s.Declare) and len(group) == 1:
                        self._declared[whole] = statement
                    self._at[id(statement)] = whole
                    self._groups[id(statement)] = len(group)
                inner = whole if len(group) > 1 or whole == outer else None
                self._note_parts(statement, inner)

    def _note_parts(self, node: Any, outer: s.Range | None) -> None:
        """What is below a statement. `outer`: a range that stands for more than one thing."""
        bodies = list(_bodies_of(node))
        parts = [c for c in s.children(node) if not any(c is x for b in bodies for x in b)]
        ranges = [part.where for part in parts if _is_there(part.where)]
        for part in parts:
            again = ranges.count(part.where) > 1
            if isinstance(part, s.Statement):
                self._note_body((part,), part.where if again else outer)
            else:
                self._note(part, part.where if again else outer)
        for body in bodies:
            self._note_body(body, outer)

    def _note(self, node: Any, outer: s.Range | None) -> None:
        if _is_there(node.where) and node.where != outer and node.where not in self._several:
            self._at[id(node)] = node.where
        for child in s.children(node):
            self._note(child, node.where or outer)

    def _slice(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    # Printing

    @property
    def header(self) -> str:
        """Everything before the body's brace."""
        where, body = self._function.where, self._function.body_where
        if where is None or body is None or not body.start < body.end:
            raise NotUnderstood(f"where {self._function.name} stands")
        return self._slice(where.start, body.start).rstrip()

    def printed(self, body: Sequence[Any], header: str | None = None) -> str:
        """The function with this body, and this header in place of its own."""
        whole = self._function.body_where
        if whole is None or _CONDITIONAL.search(self._bytes, whole.start, whole.end):
            raise NotUnderstood("preprocessor conditions in the body")
        lines = "\n".join([*self._aliases(), *self.lines(body, 1)])
        return f"{self.header if header is None else header}\n{{\n{lines}\n}}"

    def _aliases(self) -> Iterator[str]:
        """Names of types that the body begins with: no statement stands for them."""
        whole = self._function.body_where
        assert whole is not None
        for found in _ALIAS.finditer(self._bytes, whole.start + 1, whole.end):
            before = self._bytes[whole.start + 1 : found.start()]
            if before.count(b"{") == before.count(b"}"):
                yield INDENT + found[1].decode()

    def statements(self, body: Sequence[Any], depth: int = 0) -> str:
        """Statements as text."""
        return "\n".join(self.lines(body, depth))

    def lines(self, body: Sequence[Any], depth: int) -> Iterator[str]:
        """One string a statement, indented; comments of unchanged ones go with them."""
        at = 0
        shown: set[s.Range | None] = set()
        while at < len(body):
            node = body[at]
            count = self._groups.get(id(node), 0)
            group = body[at : at + count]
            same = count and all(self._at.get(id(x)) == self._at[id(node)] for x in group)
            if same and len(group) == count:
                yield from self._sliced_lines(node, depth, first=at == 0)
                at += count
                continue
            where, text = getattr(node, "where", None), self._statement(node, depth)
            if where is not None and _is_there(where) and where not in shown:
                shown.add(where)
                yield from self._gap(where, depth, first=at == 0)
                rest = self._rest(node, where)
                text += rest if rest.strip() not in text else ""  # its last statement's, if there
            yield textwrap.indent(text, INDENT * depth)
            at += 1

    def _sliced_lines(self, node: Any, depth: int, *, first: bool) -> Iterator[str]:
        where = self._at[id(node)]
        yield from self._gap(where, depth, first=first)
        text = self._slice(where.start, self._whole_end(node, where.end)).rstrip()
        column = where.start - (self._bytes.rfind(b"\n", 0, where.start) + 1)
        text = _moved(text, column) + self._rest(node, where)
        yield textwrap.indent(text, INDENT * depth)

    def _rest(self, node: Any, where: s.Range) -> str:
        """The comment that follows on a statement's last line."""
        end = self._whole_end(node, where.end)
        line = self._bytes[end:].split(b"\n", 1)[0].decode()
        found = _TRAILING.match(line)
        return f"  {found[1]}" if found else ""

    def _whole_end(self, node: Any, end: int) -> int:
        """With the semicolon, which clang leaves out of most statements."""
        if self._slice(end - 1, end) == ";":
            return end
        found = re.compile(rb"\s*;").match(self._bytes, end)
        return found.end() if found else end

    def _gap(self, where: s.Range, depth: int, *, first: bool) -> Iterator[str]:
        """What stands above a statement and is none for clang: comments, pragmas, types, and one
        empty line."""
        begin = self._gap_starts.get(where)
        if begin is None:
            taken = self._comments_above(where.start)
        else:
            text = self._slice(begin, where.start)
            if "\n" not in text:
                return
            taken = textwrap.dedent(text[text.index("\n") + 1 : text.rindex("\n") + 1]).split("\n")
            taken = taken[:-1]
        while taken and not taken[0].strip() and (first or (taken[1:] and not taken[1].strip())):
            taken.pop(0)
        for line in taken:
            yield textwrap.indent(line.rstrip(), INDENT * depth)

    def _comments_above(self, start: int) -> list[str]:
        before = self._slice(0, start).split("\n")
        taken: list[str] = []
        if before[-1].strip():
            return taken
        for line in reversed(before[:-1]):
            if not _GAP_LINE.match(line):
                break
            taken.insert(0, line.strip())
            if not line.strip():
                break
        return taken

    def _statement(self, node: Any, depth: int) -> str:
        """A new statement, or one whose parts changed, without its own indentation."""
        match node:
            case Raw(text):
                return text
            case s.Declare():
                return self.declaration(node) + ";"
            case s.Refer(kind, name, target):
                if node.is_volatile:
                    raise NotUnderstood("a volatile variable to be printed")
                return f"{kind}& {s.plain_name(name)} = {self.expression(target)};"
            case s.Evaluate(value):
                return self.expression(value) + ";"
            case s.If(condition, yes, no):
                return self._if(condition, yes, no)
            case s.For():
                return f"{self._loop_header(node)} {self._braced(node.body)}"
            case s.Do(body, condition):
                return f"do {self._braced(body)} while ({self.expression(condition)});"
            case s.Switch(subject, body):
                return f"switch ({self.expression(subject)}) {self._braced(body)}"
            case s.Label(value):
                return "default:" if value is None else f"case {self.expression(value)}:"
            case s.Leave(word):
                return f"{word};"
            case s.Give(value):
                return f"return {self.expression(value)};"
            case s.Block(body):
                return self._braced(body)
        raise NotUnderstood(f"a {getattr(node, 'what', type(node).__name__)} to be printed")

    def _braced(self, body: Sequence[Any]) -> str:
        if not body:
            return "{\n}"
        return "{\n" + "\n".join(self.lines(body, 1)) + "\n}"

    def _if(self, condition: Any, yes: Sequence[Any], no: Sequence[Any]) -> str:
        text = f"if ({self.expression(condition)}) {self._braced(yes)}"
        if len(no) == 1 and isinstance(no[0], s.If):
            return f"{text} else {self._statement(no[0], 0)}"
        return f"{text} else {self._braced(no)}" if no else text

    def _loop_header(self, node: s.For) -> str:
        condition = "" if node.condition is None else self.expression(node.condition)
        if not node.first and not node.step and condition:
            return f"while ({condition})"
        first = self._loop_first(node.first)
        step = ", ".join(self.expression(x) for x in node.step)
        return f"for ({first}; {condition}; {step})".replace("; ;", ";;").replace("; )", ";)")

    def _loop_first(self, first: Sequence[Any]) -> str:
        if not first:
            return ""
        lines = list(self.lines(first, 0))
        if len(lines) == 1:
            return lines[0].strip().rstrip(";")
        if all(isinstance(x, s.Declare) and not x.extents for x in first):
            kinds = {x.type for x in first}
            if len(kinds) == 1:
                rest = (
                    self.declaration(x, with_type=False) for x in first if isinstance(x, s.Declare)
                )
                return f"{kinds.pop()} {', '.join(rest)}"
        if all(isinstance(x, s.Evaluate) for x in first):
            return ", ".join(self.expression(x.value) for x in first)
        raise NotUnderstood("an unsupported loop initialisation")

    def declaration(self, node: s.Declare, *, with_type: bool = True) -> str:
        """A declared variable without the semicolon."""
        if "(" in node.type or "lambda" in node.type:
            raise NotUnderstood(f"a variable of type {node.type}")
        extents = "".join(f"[{self.expression(e)}]" for e in node.extents)
        extents = "[]" + extents if node.unsized else extents
        text = f"{s.plain_name(node.name)}{extents}"
        if with_type:
            text = (self._written_type(node) or _type_text(node)) + text
        elif node.pointer:
            text = f"*{text}"
        if node.zeroed:
            return f"{text} = {{}}"
        return text if node.value is None else f"{text} = {self.expression(node.value, _ASSIGN)}"

    def _written_type(self, node: s.Declare) -> str:
        """How the author wrote the type, where it is still that: `size_t` is more than its
        canonical name says. Empty where it cannot be told."""
        old = self._declared.get(node.where) if node.where is not None else None
        if old is None or (old.type, old.pointer, old.shared, old.unsized) != (
            node.type, node.pointer, node.shared, node.unsized,
        ):  # fmt: skip
            return ""
        assert old.where is not None
        written = self._slice(old.where.start, old.where.end)
        before = re.match(rf"([^=\[({{;]*?)\b{re.escape(s.plain_name(old.name))}\b", written)
        return before[1] if before else ""

    def expression(self, node: Any, least: int = 0) -> str:
        """An expression that stands where operators of precedence `least` and up may."""
        text, own = self._expression(node)
        return text if own >= least else f"({text})"

    def _expression(self, node: Any) -> tuple[str, int]:
        if isinstance(node, RawExpression):
            return node.text, _PRIMARY if _is_primary(node.text) else 0
        if (where := self._at.get(id(node))) is not None:
            text = self._slice(where.start, where.end)
            # A word of a macro's body stands where the whole macro is used.
            if not (isinstance(node, s.Name | s.Number) and "(" in text):
                return text, _precedence(node)
        own = _precedence(node)
        match node:
            case s.Number(text):
                return text, own
            case s.Name(text):
                return s.plain_name(text), own
            case s.Member(base, name):
                if isinstance(base, s.Unary) and base.operator == "*":
                    return f"{self.expression(base.operand, _POSTFIX)}->{name}", own
                return f"{self.expression(base, _POSTFIX)}.{name}", own
            case s.Index(base, index):
                return f"{self.expression(base, _POSTFIX)}[{self.expression(index)}]", own
            case s.Call():
                return self._call(node), own
            case s.Cast(kind, operand):
                if node.is_volatile:
                    raise NotUnderstood("a conversion to what is volatile, to be printed")
                return f"({kind}){self.expression(operand, _UNARY)}", own
            case s.Unary(operator, operand):
                text = self.expression(operand, _UNARY)
                apart = " " if text[:1] == operator[:1] and operator in "+-&" else ""
                return f"{operator}{apart}{text}", own
            case s.Step(target, by, gives_old):
                sign, text = "++" if by > 0 else "--", self.expression(target, _UNARY)
                return f"{text}{sign}" if gives_old else f"{sign}{text}", own
            case s.Binary(operator, left, right):
                sides = self.expression(left, own), self.expression(right, own + 1)
                return f"{sides[0]} {operator} {sides[1]}", own
            case s.Choice(condition, yes, no):
                test = self.expression(condition, _CHOICE + 1)
                return f"{test} ? {self.expression(yes)} : {self.expression(no, _CHOICE)}", own
            case s.Assign(target, operator, value):
                place = self.expression(target, _UNARY)
                return f"{place} {operator}= {self.expression(value, _ASSIGN)}", own
            case s.Values(items):
                return "{" + ", ".join(self.expression(i, _ASSIGN) for i in items) + "}", own
        raise NotUnderstood(f"a {getattr(node, 'what', type(node).__name__)} to be printed")

    def _call(self, node: s.Call) -> str:
        arguments = [self.expression(a, _ASSIGN) for a in node.arguments]
        name = s.plain_name(node.function)
        if node.where is not None and _is_there(node.where):
            text = self._slice(node.where.start, node.where.end)
            written = _CALLEE.match(text)
            if written and "operator" not in name and _closes_last(text, written.end()):
                return f"{written.group()}({', '.join(arguments)})"
            if (method := self._method(node, name.rpartition("::")[2])) is not None:
                return f"{method}({', '.join(arguments[1:])})"
        if name.startswith("operator") and len(arguments) == 2:
            return f"({arguments[0]} {name.removeprefix('operator')} {arguments[1]})"
        if name.startswith("operator") or "::" in name or "#" in node.function:
            raise NotUnderstood(f"a call of {name} to be printed")
        return f"{name}({', '.join(arguments)})"

    def _method(self, node: s.Call, name: str) -> str | None:
        """`object.name`, where the author calls it so; None where it is another call."""
        on = node.arguments[0] if node.arguments else None
        at: s.Range | None = getattr(on, "where", None)
        if node.where is None or at is None or not _is_there(at) or at.file != node.where.file:
            return None
        behind = self._slice(at.end, node.where.end)
        if not re.match(rf"\s*\.\s*{re.escape(name)}\s*\(", behind):
            return None
        return f"{self.expression(on, _POSTFIX)}.{name}"


def _closes_last(text: str, opened: int) -> bool:
    """Whether the parenthesis that opens there is closed by the text's last character."""
    depth = 0
    for at in range(text.index("(", opened), len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _type_text(node: s.Declare) -> str:
    if node.is_volatile:
        raise NotUnderstood("a volatile variable to be printed")
    storage = ("extern " if node.unsized else "") + ("__shared__ " if node.shared else "")
    return f"{storage}{node.type}{'*' if node.pointer else ''} "


def _standing_for_several(body: Sequence[s.Statement]) -> set[s.Range]:
    """Ranges of nodes of which neither is below the other: `for (LOOP(i, n))` is one macro for all
    that stands in the parentheses. Neighbouring statements are not meant: see `_groups`."""
    found: Counter[s.Range] = Counter()
    waiting: list[tuple[Any, s.Range | None]] = [(tuple(body), None)]
    while waiting:
        node, above = waiting.pop()
        lists = [node, *_bodies_of(node)] if isinstance(node, tuple) else _bodies_of(node)
        followers = {id(x) for items in lists for group in _groups(items) for x in group[1:]}
        for child in s.children(node):
            where = getattr(child, "where", None)
            if where is not None and where != above and id(child) not in followers:
                found[where] += 2 if _begins_in_macro(node, where) else 1
            waiting.append((child, where or above))
    return {where for where, count in found.items() if count > 1}


def _begins_in_macro(node: Any, where: s.Range) -> bool:
    """Whether a part of a statement stands where its keyword should."""
    begins = isinstance(node, s.For | s.If | s.Do | s.Switch) and node.where is not None
    return bool(begins and node.where.start == where.start)


def _opened(function: s.Function) -> int | None:
    """The byte after the body's brace."""
    return None if function.body_where is None else function.body_where.start + 1


def _is_there(where: s.Range | None) -> bool:
    return where is not None and where.start < where.end


def _groups(body: Sequence[s.Statement]) -> Iterable[list[s.Statement]]:
    """Neighbours that one range stands for: `int a, b;`, or what one macro makes."""
    groups: list[list[s.Statement]] = []
    for statement in body:
        if groups and statement.where is not None and groups[-1][0].where == statement.where:
            groups[-1].append(statement)
        else:
            groups.append([statement])
    return groups


def _bodies_of(node: Any) -> list[Sequence[s.Statement]]:
    match node:
        case s.If(_, yes, no):
            return [yes, no]
        case s.For():
            return [node.first, node.body]
        case s.Do(body) | s.Block(body):
            return [body]
        case s.Switch(_, body):
            return [body]
    return []


def _moved(text: str, column: int) -> str:
    """Later lines as far to the left as the first one was moved."""
    first, *rest = text.split("\n")
    moved = [line[column:] if not line[:column].strip() else line.lstrip() for line in rest]
    return "\n".join([first, *moved])


def _precedence(node: Any) -> int:
    match node:
        case s.Binary(operator):
            return _BINARY[operator]
        case s.Assign():
            return _ASSIGN
        case s.Choice():
            return _CHOICE
        case s.Cast() | s.Unary():
            return _UNARY
        case s.Step(_, _, gives_old):
            return _POSTFIX if gives_old else _UNARY
        case s.Index() | s.Member() | s.Call():
            return _POSTFIX
        case s.Unmodelled():
            return 0
    return _PRIMARY


def _is_primary(text: str) -> bool:
    """Whether a text binds as tightly as a name."""
    if re.fullmatch(r"[\w.]+", text):
        return True
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character not in ")]" and not re.match(r"[\w.:]", character):
            return False
        if depth == 0 and character == ")" and text[0] == "(" and at < len(text) - 1:
            return False
    return True


def with_parameters(header: str, declarations: Sequence[str]) -> str:
    """A function's header with further parameters."""
    if not declarations:
        return header
    head, _, tail = header.rpartition(")")
    empty = re.search(r"\(\s*(void)?\s*$", head)
    head = head[: empty.start() + 1] if empty else head.rstrip() + ", "
    return f"{head}{', '.join(declarations)}){tail}"
