"""The kernels that a rewrite's text defines."""

from __future__ import annotations

from dataclasses import dataclass

from cudaops.domain.program import Parameter
from cudaops.program.lexing import byte_text, plain_text
from cudaops.program.outline import Item, Outline, outline
from cudaops.program.signature import read_parameters


@dataclass(frozen=True)
class KernelSignature:
    """A kernel of a rewrite."""

    parameters: tuple[Parameter, ...]
    """Of its first definition."""
    counts: frozenset[int]
    """Numbers of arguments it takes; several where it is overloaded."""


def kernel_signatures(source: str) -> dict[str, KernelSignature]:
    """Unqualified name to signature of every kernel that a text defines."""
    facts = outline(byte_text(source))
    found: dict[str, KernelSignature] = {}
    for item in facts.items:
        if item.is_kernel and item.parameters is not None:
            parameters = _parameters(facts, item)
            first = found.get(item.name, KernelSignature(parameters, frozenset()))
            counts = first.counts | {len(parameters)}
            found[item.name] = KernelSignature(first.parameters, counts)
    return found


def _parameters(facts: Outline, item: Item) -> tuple[Parameter, ...]:
    assert item.parameters is not None
    opener, closer = (facts.tokens[i] for i in item.parameters)
    return read_parameters(plain_text(facts.slice(opener.end, closer.start)))
