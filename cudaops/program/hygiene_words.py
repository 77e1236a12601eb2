"""Words and spellings that device code has no use for; shared by both hygiene gates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cudaops.program.hygiene_items import Problem, live_tokens
from cudaops.program.lexing import Lexed, Token, closing

_REFUSED_WORDS = {
    "asm": "inline assembly",
    "__asm__": "inline assembly",
    "__asm": "inline assembly",
    "constructor": "a global constructor or destructor",
    "destructor": "a global constructor or destructor",
    "init_priority": "an object with a global constructor",
    "ifunc": "an IFUNC resolver, which runs at load time",
    "__declspec": "a compiler extension",
}
_QUESTIONS = {
    **dict.fromkeys(("__has_include", "__has_include_next", "__has_embed"), "which files exist"),
    **dict.fromkeys(("__SANITIZE_THREAD__", "__SANITIZE_ADDRESS__"), "whether it is being checked"),
    **dict.fromkeys(("__DATE__", "__TIME__", "__TIMESTAMP__"), "when it is built"),
}
"""Answers of a compiler by which a text could be another one where it is checked."""
_HOST_CALLS = frozenset({
    "system", "popen", "fork", "vfork", "execl", "execv", "execve", "execvp", "dlopen", "dlsym",
    "ptrace", "mmap", "mprotect", "syscall", "getenv", "setenv", "environ", "fopen", "freopen",
    "open", "socket", "longjmp", "setjmp", "signal", "sigaction", "atexit", "_exit", "exit",
    "abort", "quick_exit", "raise", "kill", "clock_gettime", "gettimeofday", "getpid",
})  # fmt: skip
_C_LIBRARY = frozenset({
    "remove", "rename", "tmpfile", "tmpnam", "fwrite", "fread", "fputs", "fputc", "puts", "putchar",
    "perror", "fclose", "fprintf", "write", "read", "close", "unlink", "time", "terminate", "rand",
    "srand", "set_new_handler", "at_quick_exit",
})  # fmt: skip
"""Names that device code may have itself, and that `std::` or `::` makes the C library's."""
_HOST_BUILTIN = re.compile(
    r"__builtin_(?:ia32_\w+|cpu_\w+|apply\w*|return|return_address|frame_address"
    r"|extract_return_addr|frob_return_addr|setjmp|longjmp|eh_\w+|unwind\w*|dwarf\w*|init_dwarf\w*"
    r"|__clear_cache|thread_pointer|set_thread_pointer)"
)
"""Builtins that reach into the processor or the stack. Source: GCC manual, chapter 6.59 on."""
_ATTRIBUTES = frozenset({
    "aligned", "align", "alignas", "always_inline", "noinline", "unused", "maybe_unused", "pure",
    "const", "nodiscard", "noreturn", "likely", "unlikely", "fallthrough", "packed", "may_alias",
    "gnu", "nothrow", "cold", "hot", "flatten", "assume",
    "global", "device", "host", "shared", "constant", "managed", "launch_bounds", "maxnreg",
    "grid_constant",
})  # fmt: skip
"""Attributes that place nothing, name nothing and run nothing: no section, alias, weak, optimize,
cleanup. The second half is what CUDA's own keywords stand for."""
_ROW_TYPE = re.compile(r"cudaops_row_\w+")
"""A row's type in dynamic shared memory, which `program.dialect` inserts for a C++ compiler."""

_PTX_NAME = re.compile(r"cudaops_ptx(?:_[a-z]\w*)?")
"""What a C++ compiler is given in the place of inline PTX."""

_CLOCK = "reads a clock"
_PLACE = "asks where or for how long it runs"
_SUSPICIOUS = {
    **dict.fromkeys(("clock", "clock64", "__clock", "__clock64", "__clock_hi"), _CLOCK),
    **dict.fromkeys(("globaltimer", "__globaltimer", "__builtin_readcyclecounter"), _CLOCK),
    **dict.fromkeys(("__nanosleep", "nanosleep", "usleep"), "waits for time to pass"),
    **dict.fromkeys(("__smid", "__nsmid", "__warpid", "__nwarpid", "__gridid"), _PLACE),
    "__prof_trigger": "tells a profiler something",
}
_SPECIAL_REGISTER = re.compile(
    r"(?:__nvvm_read_ptx_sreg_|get_sreg_)(?:clock\w*|globaltimer\w*|n?smid|n?warpid|gridid|pm\d+)"
)
"""NVVM's own names of registers and libcu++'s (`cuda::ptx`). Source: PTX ISA 9.0, chapter 10."""

_TUNE_NAME = re.compile(r"^\s*//\s*@tune\s+(\w+)", re.MULTILINE)


def tuned_names(rewrite_source: str) -> frozenset[str]:
    """Names of `@tune`: defined for the length of the candidate, so they cannot leak."""
    return frozenset(_TUNE_NAME.findall(rewrite_source))


def refused_words(
    lexed: Lexed, tuned: frozenset[str], asm_read: frozenset[int], *, translated: bool = False
) -> Iterator[Problem]:
    """Host calls, assembly, launches, names of ours, attributes that do more than describe.

    `asm_read`: where asm statements begin that were read in full. `translated`: whether they may
    are there as the C++ that `program.ptx_asm` writes for them.
    """
    tokens = live_tokens(lexed)
    for index, token in enumerate(tokens):
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        before = tokens[index - 1].text if index else ""
        if token.text == "<<<":
            yield token.start, "`<<<` launches a kernel; use a `// @launch` directive"
        elif token.start in asm_read or (translated and _PTX_NAME.fullmatch(token.text)):
            continue
        elif token.kind == "name" and token.text in _REFUSED_WORDS:
            yield token.start, f"`{token.text}`: {_REFUSED_WORDS[token.text]} is not device code"
        elif token.text == "__block_size__":
            yield token.start, "`__block_size__`: say the block in `@launch`, not in the kernel"
        elif token.kind == "name" and _is_ours(token.text) and token.text not in tuned:
            yield token.start, f"`{token.text}`: names of cudaops itself are reserved"
        elif token.text in _HOST_CALLS and after == "(" and before not in (".", "->"):
            yield token.start, f"`{token.text}` is a host function"
        elif token.text in _C_LIBRARY and after == "(" and _is_outermost(tokens, index):
            yield token.start, f"`{token.text}` is a function of the host's C library"
        elif _HOST_BUILTIN.fullmatch(token.text):
            yield token.start, f"`{token.text}` is the host compiler's, not device code"
        elif token.text == "namespace" and after in ("std", "cuda", "__gnu_cxx"):
            yield token.start, f"`namespace {after}` must not be extended"
    yield from _attributes(tokens)


def questions(lexed: Lexed) -> Iterator[Problem]:
    """Words that ask the compiler where it works; gone once it has preprocessed the text."""
    for token in live_tokens(lexed):
        if token.kind == "name" and token.text in _QUESTIONS:
            yield token.start, f"`{token.text}` asks {_QUESTIONS[token.text]}"


def suspicious_words(lexed: Lexed, author_words: frozenset[str]) -> Iterator[Problem]:
    """Calls that read a clock or ask where they run, and that the author does not make."""
    for before, token, after in _threes(live_tokens(lexed)):
        why = _SUSPICIOUS.get(token.text)
        if _SPECIAL_REGISTER.fullmatch(token.text):
            why = _CLOCK if re.search("clock|timer", token.text) else _PLACE
        called = after == "(" and before not in (".", "->")
        if why and called and token.text not in author_words:
            yield token.start, f"`{token.text}` {why}"


def spelling(lexed: Lexed) -> Iterator[Problem]:
    """Spellings that hide what a token is from a reader."""
    for match in re.finditer(r"(?<=[\w])\\\r?\n(?=\w)", lexed.text):
        yield match.start(), "a line continuation inside of a word"
    for token in lexed.tokens:
        if token.text == "\\":
            yield token.start, "a lone backslash"
    for first, second in pairwise(lexed.tokens):
        if first.end == second.start and first.text + second.text in ("%:", "<%", "%>", "??"):
            yield first.start, f"`{first.text}{second.text}`: write the plain token"
    if lexed.text.rstrip().endswith("\\"):
        yield len(lexed.text) - 1, "the text ends with a line continuation"
    for comment in lexed.comments:
        if comment.text.startswith("/*") and not (
            len(comment.text) > 3 and comment.text.endswith("*/")
        ):
            yield comment.start, "a comment that does not end"


def _is_ours(name: str) -> bool:
    return name.lower().startswith("cudaops") and not _ROW_TYPE.fullmatch(name)


def _is_outermost(tokens: Sequence[Token], index: int) -> bool:
    """Whether a name is written with `::` or `std::` before it."""
    if index == 0 or tokens[index - 1].text != "::":
        return False
    scope = tokens[index - 2] if index > 1 else None
    return scope is None or scope.text == "std" or (scope.kind != "name" and scope.text != ">")


def _attributes(tokens: Sequence[Token]) -> Iterator[Problem]:
    """Names of `__attribute__((...))` and `[[...]]` that are not in the list."""
    for index, (first, second) in enumerate(pairwise(tokens)):
        gnu = first.text in ("__attribute__", "__attribute") and second.text == "("
        standard = first.text == second.text == "[" and first.end == second.start
        if not gnu and not standard:
            continue
        at, end = index + 2, closing(tokens, index + 1 if gnu else index)
        while at < end:
            token = tokens[at]
            word = token.text.strip("_")
            if token.kind == "name" and word not in _ATTRIBUTES | _REFUSED_WORDS.keys():
                yield token.start, f"attribute `{token.text}` is not allowed"
            called = token.kind == "name" and tokens[at + 1].text == "("
            at = closing(tokens, at + 1) + 1 if called else at + 1


def _threes(tokens: Sequence[Token]) -> Iterator[tuple[str, Token, str]]:
    """Each token with the texts of its neighbours."""
    texts = ["", *(t.text for t in tokens), ""]
    for index, token in enumerate(tokens):
        yield texts[index], token, texts[index + 2]
