"""What a recipe is, all of them, and what they propose for one kernel and verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import PlanError
from cudaops.program.plans import resolve
from cudaops.recipes.geometry import GeometryRecipe
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe
from cudaops.transformations.draft import PROPOSER
from cudaops.transformations.registry import transformation


class Recipe(Protocol):
    """One optimisation. It proposes only for kernels whose whole meaning it has understood."""

    name: str
    """In `Rewrite.proposer` as `recipe:NAME`."""
    title: str
    """A few words a person reads."""
    family: Family
    """Which strategy it follows; memory learns by it."""
    relieves: frozenset[str]
    """Verdict subtypes (`cudaops.cuda.subtypes`) that it is a remedy for."""

    def propose(
        self,
        program: Program,
        kernel: Kernel,
        workloads: Sequence[Workload],
        verdict: Verdict | None,
    ) -> tuple[Rewrite, ...]:
        """Rewrites that compute the same function; none where the kernel is not understood."""

    def seeds(self, rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
        """Tune values worth measuring first, best guess first."""

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Why these tune values cannot work, known without compiling; None where they may."""


RECIPES: tuple[Recipe, ...] = (MatmulRecipe(), TransposeRecipe(), GeometryRecipe())
"""In order of what they usually gain."""


Favour = Callable[[Rewrite, Family], float]
"""What earlier runs say of a rewrite and its recipe's family. From 1: it paid for this kernel. To
-1 and below: it was rejected for it. Between: what the family brought elsewhere against the same
verdict, better or worse than one of which nothing is known, which is 0."""


def propose(
    program: Program,
    kernel: Kernel,
    workloads: Sequence[Workload],
    verdict: Verdict | None,
    tried: Collection[str] = (),
    *,
    relieving_only: bool = False,
    favour: Favour | None = None,
) -> tuple[Rewrite, ...]:
    """Rewrites not tried yet: those that relieve the verdict first, then in RECIPES' order.

    Args:
        tried: `Rewrite.source_id`s; every tuning of such a rewrite is kept out.
        relieving_only: Leave out recipes that are no remedy for the verdict.
        favour: What paid for the kernel before comes first and what was rejected for it last, never
            left out: the bar or the machine may differ. In between what relieves the verdict, or
            did so elsewhere, leads, the more favoured first. None or 0 throughout changes nothing.
    """
    subtype = verdict.subtype if verdict else ""

    def place(proposal: tuple[Recipe, Rewrite]) -> tuple[int, bool, float]:
        recipe, rewrite = proposal
        value = favour(rewrite, recipe.family) if favour else 0.0
        before = (value >= 1.0) - (value <= -1.0)
        return -before, not (subtype in recipe.relieves or value > 0.0), -value

    proposals = [
        (recipe, rewrite)
        for recipe in RECIPES
        if not relieving_only or subtype in recipe.relieves
        for rewrite in recipe.propose(program, kernel, workloads, verdict)
        if rewrite.source_id not in tried
    ]
    return tuple(rewrite for _, rewrite in sorted(proposals, key=place))


def family_of(rewrite: Rewrite) -> Family | None:
    """Of the recipe that proposed it, or of the transformation that brought most; None where
    neither made it."""
    made, _, name = rewrite.proposer.partition(":")
    if made == PROPOSER:
        return transformation(name).family
    recipe = _recipe_of(rewrite)
    return recipe.family if recipe else None


def seeds(rewrite: Rewrite) -> tuple[Mapping[str, int], ...]:
    """Tune values to measure first; the defaults alone for a rewrite that is no recipe's."""
    recipe = _recipe_of(rewrite)
    return recipe.seeds(rewrite) if recipe else ({},)


def refusal(rewrite: Rewrite, kernel: Kernel, workloads: Sequence[Workload]) -> str | None:
    """Why these tune values cannot be used on any workload, known without compiling.

    None where they may. For the tuner's `feasible`.
    """
    recipe = _recipe_of(rewrite)
    reason = recipe.refusal(rewrite) if recipe else None
    if reason is not None:
        return reason
    unmet = ""
    for workload in workloads:
        try:
            plan = resolve(rewrite, kernel, workload)
        except PlanError as error:
            return str(error)
        if plan.applicable:
            return None
        unmet = f"@requires {plan.unmet} does not hold"
    return unmet or None


def _recipe_of(rewrite: Rewrite) -> Recipe | None:
    name = rewrite.proposer.removeprefix("recipe:")
    return next((recipe for recipe in RECIPES if recipe.name == name), None)
