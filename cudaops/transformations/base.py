"""What a transformation is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cudaops.domain.hypothesis import Family
from cudaops.transformations.draft import Draft

Setting = Mapping[str, int | str]
"""Parameters of one application, by name: `{"factor": 4}`. Equal settings on equal drafts give
equal drafts."""


REROUNDING = frozenset({
    "accumulators", "atomics_private", "atomics_warp", "cooperate", "share_serial", "share_uniform",
    "shuffle_tree", "split_work", "strength_reduce",
})  # fmt: skip
"""Transformations after which results may be rounded otherwise, within what the gates allow: sums
and products in another order, products for powers and quotients."""


class Transformation(Protocol):
    """One kind of edit. It is proved right from the kernel's form, made right by conditions that
    the launch checks, or refused."""

    name: str
    """A verb or noun of the field: `unroll`."""
    title: str
    """A few words a person reads."""
    family: Family
    """Which strategy it follows; memory learns by it."""
    relieves: frozenset[str]
    """Verdict subtypes (`cudaops.cuda.subtypes`) that it is a remedy for."""

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        """What it may be applied with, the most promising first; empty where it cannot be.

        Quick: it looks at the form and the facts, and need not be sure. Raises NotUnderstood.
        """

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        """The draft with this done and told as one more step. Raises NotUnderstood where it is not
        proved right."""
