"""Reads a function's body into `syntax`. What it does not know it refuses, it never skips."""

from __future__ import annotations

from cudaops.recipes.reading import syntax as s
from cudaops.recipes.reading.tokens import NotUnderstood, Token

_TYPE_WORDS = frozenset({
    "void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "auto",
    "size_t", "ptrdiff_t", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t",
    "int64_t", "uint64_t", "half", "__half", "__nv_bfloat16", "uint", "uchar", "ushort",
    "float2", "float3", "float4", "double2", "int2", "int3", "int4", "uint2", "uint4", "dim3",
})  # fmt: skip
_QUALIFIERS = frozenset({
    "const", "constexpr", "volatile", "static", "register", "__restrict__", "__restrict",
    "__shared__", "extern", "inline", "mutable", "std", "::",
})  # fmt: skip
_PRECEDENCE = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_NORMAL = {
    "unsigned int": "unsigned", "uint": "unsigned", "uint32_t": "unsigned", "int32_t": "int",
    "signed": "int", "signed int": "int", "long int": "long", "long long int": "long long",
    "int64_t": "long long", "ptrdiff_t": "long long", "size_t": "unsigned long long",
    "uint64_t": "unsigned long long", "unsigned long": "unsigned long long",
    "unsigned long int": "unsigned long long", "unsigned long long int": "unsigned long long",
    "long unsigned int": "unsigned long long", "long": "long long",
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short",
    "uint16_t": "unsigned short", "short int": "short", "__half": "half",
}  # fmt: skip


def normal_type(text: str) -> str:
    """One spelling for each arithmetic type (LP64), without qualifiers or aliases (`size_t`)."""
    words = [w for w in text.replace("::", " ").split() if w not in _QUALIFIERS]
    joined = " ".join(words)
    return _NORMAL.get(joined, joined)


class Reader:
    """A cursor over tokens with one method a construct."""

    def __init__(self, tokens: tuple[Token, ...], types: frozenset[str] = frozenset()) -> None:
        self._tokens = tokens
        self._at = 0
        self._types = _TYPE_WORDS | types

    def body(self) -> tuple[s.Statement, ...]:
        """Statements of the first `{ ... }`, which must be the last thing there is."""
        while self._peek() not in ("{", ""):
            self._at += 1
        statements = self._braced()
        if self._peek():
            raise NotUnderstood(f"{self._peek()!r} after the body")
        return statements

    def whole_expression(self) -> s.Expression:
        """The one expression all tokens make up."""
        value = self._expression()
        if self._peek():
            raise NotUnderstood(f"{self._peek()!r} after an expression")
        return value

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _take(self, expected: str | None = None) -> str:
        text = self._peek()
        if not text or (expected is not None and text != expected):
            raise NotUnderstood(f"{text!r} where {expected or 'more'!r} was expected")
        self._at += 1
        return text

    def _accept(self, text: str) -> bool:
        if self._peek() == text:
            self._at += 1
            return True
        return False

    def _braced(self) -> tuple[s.Statement, ...]:
        self._take("{")
        statements: list[s.Statement] = []
        while not self._accept("}"):
            statements.extend(self._statement())
        return tuple(statements)

    def _nested(self) -> tuple[s.Statement, ...]:
        return self._braced() if self._peek() == "{" else self._statement()

    def _statement(self) -> tuple[s.Statement, ...]:
        word = self._peek()
        if self._accept(";"):
            return ()
        if word == "{":
            return (s.Block(self._braced()),)
        if word == "if":
            return (self._if(),)
        if word in ("for", "while"):
            return (self._loop(),)
        if word in ("return", "break", "continue"):
            return (self._leave(),)
        if self._starts_type():
            declared = self._declarations()
            self._take(";")
            return declared
        value = self._expression_list()
        self._take(";")
        return tuple(s.Evaluate(v) for v in value)

    def _leave(self) -> s.Statement:
        word = self._take()
        if self._accept(";"):
            return s.Leave(word)
        if word != "return":
            raise NotUnderstood(f"{word} with a value")
        value = self._expression()
        self._take(";")
        return s.Give(value)

    def _if(self) -> s.If:
        self._take("if")
        self._take("(")
        condition = self._expression()
        self._take(")")
        yes = self._nested()
        return s.If(condition, yes, self._nested() if self._accept("else") else ())

    def _loop(self) -> s.For:
        if self._take() == "while":
            self._take("(")
            condition: s.Expression | None = self._expression()
            self._take(")")
            return s.For((), condition, (), self._nested())
        self._take("(")
        first: tuple[s.Statement, ...] = ()
        if self._peek() != ";":
            first = (
                self._declarations()
                if self._starts_type()
                else tuple(s.Evaluate(v) for v in self._expression_list())
            )
        self._take(";")
        condition = None if self._peek() == ";" else self._expression()
        self._take(";")
        step = () if self._peek() == ")" else self._expression_list()
        self._take(")")
        return s.For(first, condition, step, self._nested())

    def _starts_type(self, ahead: int = 0) -> bool:
        while self._peek(ahead) in _QUALIFIERS:
            ahead += 1
        return self._peek(ahead) in self._types

    def _type_words(self) -> tuple[str, bool]:
        """Type words as written, and whether `__shared__` stood among them."""
        words: list[str] = []
        shared = False
        while True:
            text = self._peek()
            if text in _QUALIFIERS:
                if text == "extern":
                    raise NotUnderstood("extern storage")
                shared = shared or text == "__shared__"
                self._at += 1
            elif text in self._types and (not words or text in _TYPE_WORDS):
                words.append(self._take())
            else:
                break
        return " ".join(words), shared

    def _declarations(self) -> tuple[s.Statement, ...]:
        words, shared = self._type_words()
        declared: list[s.Statement] = []
        while True:
            declared.append(self._declarator(normal_type(words), shared))
            if not self._accept(","):
                return tuple(declared)

    def _declarator(self, base: str, shared: bool) -> s.Declare:
        pointer = False
        while self._peek() in ("*", "const", "__restrict__", "__restrict"):
            if self._take() == "*":
                if pointer:
                    raise NotUnderstood("a pointer to a pointer")
                pointer = True
        if self._kind() != "name":
            raise NotUnderstood(f"{self._peek()!r} in a declaration")
        name = self._take()
        extents: list[s.Expression] = []
        while self._accept("["):
            extents.append(self._expression())
            self._take("]")
        value: s.Expression | None = None
        zeroed = False
        if self._accept("="):
            if self._peek() == "{":
                self._zero_list()
                zeroed = True
            else:
                value = self._assignment()
        elif self._accept("("):
            value = self._assignment()
            self._take(")")
        return s.Declare(base, name, pointer, tuple(extents), shared, value, zeroed)

    def _zero_list(self) -> None:
        self._take("{")
        if self._peek() != "}" and self._take() not in ("0", "0.0f", "0.f", "0.0"):
            raise NotUnderstood("a list of initial values")
        self._take("}")

    def _expression_list(self) -> tuple[s.Expression, ...]:
        values = [self._assignment()]
        while self._accept(","):
            values.append(self._assignment())
        return tuple(values)

    def _expression(self) -> s.Expression:
        return self._assignment()

    def _assignment(self) -> s.Expression:
        target = self._choice()
        if self._peek() in _ASSIGNMENTS:
            operator = self._take()[:-1]
            return s.Assign(target, operator, self._assignment())
        return target

    def _choice(self) -> s.Expression:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        yes = self._assignment()
        self._take(":")
        return s.Choice(condition, yes, self._choice())

    def _binary(self, level: int) -> s.Expression:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            operator = self._take()
            left = s.Binary(operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> s.Expression:
        word = self._peek()
        if word in ("-", "+", "!", "~", "*", "&"):
            self._at += 1
            return s.Unary(word, self._unary())
        if word in ("++", "--"):
            self._at += 1
            return s.Step(self._unary(), 1 if word == "++" else -1)
        if word == "(" and self._starts_type(1):
            self._at += 1
            name = self._cast_type()
            self._take(")")
            return s.Cast(name, self._unary())
        return self._postfix()

    def _cast_type(self) -> str:
        words, _ = self._type_words()
        pointer = ""
        while self._peek() in ("*", "const"):
            pointer += "*" if self._take() == "*" else ""
        return normal_type(words) + pointer

    def _postfix(self) -> s.Expression:
        value = self._primary()
        while True:
            if self._accept("["):
                value = s.Index(value, self._expression())
                self._take("]")
            elif self._accept("."):
                value = s.Member(value, self._take())
            elif self._peek() in ("++", "--"):
                value = s.Step(value, 1 if self._take() == "++" else -1)
            else:
                return value

    def _primary(self) -> s.Expression:
        if self._accept("("):
            value = self._expression()
            self._take(")")
            return value
        if self._kind() == "number":
            return s.Number(self._take())
        if self._kind() != "name":
            raise NotUnderstood(f"{self._peek()!r} in an expression")
        if self._peek() in _CASTS:
            return self._named_cast()
        if self._starts_type():
            return s.Cast(self._cast_type(), self._parenthesised())
        name = self._take()
        while self._accept("::"):
            name = self._take()
        if self._accept("("):
            arguments = () if self._peek() == ")" else self._expression_list()
            self._take(")")
            return s.Call(name, arguments)
        return s.Name(name)

    def _named_cast(self) -> s.Expression:
        word = self._take()
        self._take("<")
        name = self._cast_type()
        self._take(">")
        if word != "static_cast":
            raise NotUnderstood(word)
        return s.Cast(name, self._parenthesised())

    def _parenthesised(self) -> s.Expression:
        self._take("(")
        value = self._expression()
        self._take(")")
        return value
