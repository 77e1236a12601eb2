"""Which kernel a launch really names: through a macro's parameter, a variable or an alias."""

from __future__ import annotations

from cudaops.program.launches import Launch, macro_parameters
from cudaops.program.lexing import Lexed, closing, split_commas
from cudaops.program.outline import Item, Outline


def resolve_launched(launch: Launch, holder: Item | None, facts: Outline, kernels: set[str]) -> str:
    """The unqualified kernel name, or the callee's own last name where it cannot be told."""
    if launch.name in kernels:
        return launch.name
    if launch.macro_parameter:
        candidates = _macro_uses(launch, facts.lexed, kernels)
    else:
        candidates = _assigned(launch, holder, facts, kernels)
    return candidates.pop() if len(candidates) == 1 else launch.name


def _macro_uses(launch: Launch, lexed: Lexed, kernels: set[str]) -> set[str]:
    """Kernels handed to the macro whose parameter is launched."""
    assert launch.directive is not None
    position = macro_parameters(lexed, launch.directive).index(launch.name)
    macro = lexed.tokens[launch.directive.first + 2].text
    found: set[str] = set()
    for index, token in enumerate(lexed.tokens[:-1]):
        if token.text != macro or lexed.tokens[index + 1].text != "(" or token.directive >= 0:
            continue
        arguments = split_commas(lexed.tokens[index + 2 : closing(lexed.tokens, index + 1)])
        if position < len(arguments):
            found |= kernels & {t.text for t in arguments[position]}
    return found


def _assigned(launch: Launch, holder: Item | None, facts: Outline, kernels: set[str]) -> set[str]:
    """Kernels that the enclosing function stores under the launched name."""
    if holder is None or not launch.plain:
        return set()
    tokens = facts.tokens[holder.first : holder.last]
    found: set[str] = set()
    for index, token in enumerate(tokens[:-1]):
        after = tokens[index + 1].text
        if token.text != launch.name or after not in ("=", "{", "(", ")"):
            continue
        stop = next((i for i in range(index, len(tokens)) if tokens[i].text == ";"), len(tokens))
        found |= kernels & {t.text for t in tokens[index + 1 : stop]}
    return found
