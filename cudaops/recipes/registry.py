"""What a recipe is, all of them, and what they propose for one kernel and verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from cudaops.domain.hypothesis import Family
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import PlanError
from cudaops.plugins import Plugin, plugins, unusable, wrong_type
from cudaops.program.plans import resolve
from cudaops.recipes.convolution import ConvolutionRecipe
from cudaops.recipes.matmul import MatmulRecipe
from cudaops.recipes.transpose import TransposeRecipe
from cudaops.transformations.draft import PROPOSER
from cudaops.transformations.registry import transformation


class Recipe(Protocol):
    """One optimisation. It proposes only for kernels whose whole meaning it has understood.

    One with a true attribute `reassociates` computes another formula, equal over the real numbers
    and with a larger bound of the rounding error; it is asked only where the user allows that.
    """

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


RECIPES: tuple[Recipe, ...] = (MatmulRecipe(), TransposeRecipe(), ConvolutionRecipe())
"""In order of what they usually gain."""


@cache
def _plugged() -> dict[str, Plugin]:
    """Recipes of installed packages by their names. Raises InputError where one is none."""
    found: dict[str, Plugin] = {}
    for one in plugins("recipes"):
        missing = [name for name in _PARTS if not hasattr(one.value, name)]
        if missing:
            raise wrong_type(one, f"a recipe: it has no {', '.join(missing)}")
        if one.value.name in {recipe.name for recipe in RECIPES} | found.keys():
            raise unusable(one, f"there is a recipe {one.value.name!r} already")
        found[one.value.name] = one
    return found


_PARTS = ("name", "title", "family", "relieves", "propose", "seeds", "refusal")


def all_recipes() -> tuple[Recipe, ...]:
    """RECIPES and those of installed packages, behind them."""
    return (*RECIPES, *(one.value for one in _plugged().values()))


def _asked(recipe: Recipe, what: str, *arguments: object) -> Any:
    """What a method of it gives; one of a package that raises is named in one line."""
    method, plugged = getattr(recipe, what), _plugged().get(recipe.name)
    return method(*arguments) if plugged is None else plugged.called(method, *arguments)


def _proposed(recipe: Recipe, *known: object) -> tuple[Rewrite, ...]:
    found = tuple(_asked(recipe, "propose", *known))
    wrong = next((one for one in found if not isinstance(one, Rewrite)), None)
    if wrong is not None:
        raise wrong_type(
            _plugged()[recipe.name]._replace(value=wrong), "a Rewrite of its proposals"
        )
    return found


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
    allow_reassociation: bool = False,
) -> tuple[Rewrite, ...]:
    """Rewrites not tried yet: those that relieve the verdict first, then in RECIPES' order.

    Args:
        tried: `Rewrite.source_id`s; every tuning of such a rewrite is kept out.
        relieving_only: Leave out recipes that are no remedy for the verdict.
        favour: What paid for the kernel before comes first and what was rejected for it last, never
            left out: the bar or the machine may differ. In between what relieves the verdict, or
            did so elsewhere, leads, the more favoured first. None or 0 throughout changes nothing.
        allow_reassociation: Take recipes too that compute another formula (`reassociates`).
    """
    subtype = verdict.subtype if verdict else ""
    proposals = [
        (recipe, rewrite)
        for recipe in all_recipes()
        if not relieving_only or subtype in recipe.relieves
        if allow_reassociation or not getattr(recipe, "reassociates", False)
        for rewrite in _proposed(recipe, program, kernel, workloads, verdict)
        if rewrite.source_id not in tried
    ]
    return ranked(proposals, subtype, favour)


def ranked(
    proposals: Iterable[tuple[Recipe, Rewrite]], subtype: str, favour: Favour | None = None
) -> tuple[Rewrite, ...]:
    """The rewrites in the order of `propose`; equal ones as they were."""

    def rank(proposal: tuple[Recipe, Rewrite]) -> tuple[int, bool, float]:
        recipe, rewrite = proposal
        value = favour(rewrite, recipe.family) if favour else 0.0
        before = (value >= 1.0) - (value <= -1.0)
        return -before, not (subtype in recipe.relieves or value > 0.0), -value

    return tuple(rewrite for _, rewrite in sorted(proposals, key=rank))


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
    return tuple(_asked(recipe, "seeds", rewrite)) if recipe else ({},)


def refusal(rewrite: Rewrite, kernel: Kernel, workloads: Sequence[Workload]) -> str | None:
    """Why these tune values cannot be used on any workload, known without compiling.

    None where they may. For the tuner's `feasible`.
    """
    recipe = _recipe_of(rewrite)
    reason: str | None = _asked(recipe, "refusal", rewrite) if recipe else None
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
    return next((recipe for recipe in all_recipes() if recipe.name == name), None)
