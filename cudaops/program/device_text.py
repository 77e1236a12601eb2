"""The kernels that a rewrite's text defines."""

from __future__ import annotations

from dataclasses import dataclass

from cudaops.domain.program import Parameter
from cudaops.program.instances import parameter_name
from cudaops.program.lexing import byte_text, plain_text
from cudaops.program.outline import Declaration, Outline, outline
from cudaops.program.signature import read_parameters, read_template_parameters


@dataclass(frozen=True)
class KernelSignature:
    """A kernel of a rewrite."""

    parameters: tuple[Parameter, ...]
    """Of its first definition."""
    counts: frozenset[int]
    """Numbers of arguments it takes; several where it is overloaded."""
    template_parameters: frozenset[str]
    """Names of its template parameters, of every overload."""


def kernel_signatures(source: str) -> dict[str, KernelSignature]:
    """Unqualified name to signature of every kernel that a text defines."""
    facts = outline(byte_text(source))
    found: dict[str, KernelSignature] = {}
    for item in facts.items:
        if item.is_kernel and item.parameters is not None:
            parameters = _parameters(facts, item)
            first = found.get(item.name, KernelSignature(parameters, frozenset(), frozenset()))
            counts = first.counts | {len(parameters)}
            names = first.template_parameters | _template_names(facts, item)
            found[item.name] = KernelSignature(first.parameters, counts, names)
    return found


def _template_names(facts: Outline, item: Declaration) -> frozenset[str]:
    if item.template is None:
        return frozenset()
    opener, closer = (facts.tokens[i] for i in item.template)
    written = read_template_parameters(plain_text(facts.slice(opener.end, closer.start)))
    return frozenset(parameter_name(one) for one in written)


def _parameters(facts: Outline, item: Declaration) -> tuple[Parameter, ...]:
    assert item.parameters is not None
    opener, closer = (facts.tokens[i] for i in item.parameters)
    return read_parameters(plain_text(facts.slice(opener.end, closer.start)))
