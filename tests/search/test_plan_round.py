"""Properties of every round, whatever becomes of the branches."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.domain.judgement import TIE
from cudaops.domain.rewrite import LaunchPlan, Rewrite
from cudaops.domain.search import Branch, Order, SearchOptions
from cudaops.search.beam import Round, Seed, Supply, plan_round
from cudaops.search.selection import champion, kept, ranking, reference_us, retired
from tests.lanes import examples

NAMES = ("tiling", "coalescing", "unrolling", "fusion", "other")


def rewrite(number: int) -> Rewrite:
    return Rewrite(
        source=f"// {number}", plan=LaunchPlan(launches=()), proposer="recipe:x", title="t", why="w"
    )


def seeds(families: list[str], recipes: int) -> tuple[Seed, ...]:
    return tuple(
        Seed(f, rewrite=rewrite(i)) if i < recipes else Seed(f, hypothesis=i - recipes)
        for i, f in enumerate(families)
    )


def branch(order: Order, time_us: float | None, family: str | None = None) -> Branch:
    return Branch(
        order=order,
        family=family or order.family or "other",
        title="t",
        rewrite=order.rewrite,
        time_us=time_us,
    )


def check(
    options: SearchOptions, planned: Round, branches: list[Branch], incumbent_us: float | None
) -> None:
    """What must hold of any round."""
    assert len(planned.orders) <= options.width
    assert [o.id for o in planned.orders] == list(
        range(len(branches), len(branches) + len(planned.orders))
    )
    by_id, out = {b.id: b for b in branches}, retired(branches)
    for order in planned.orders:
        assert len(order.parents) == {"expand": 1, "crossover": 2}.get(order.kind, 0)
        for parent in order.parents:
            assert by_id[parent].time_us is not None
            assert by_id[parent].family not in out
        if order.kind == "expand":
            parent_us = by_id[order.parents[0]].time_us
            bar = reference_us(by_id[order.parents[0]], branches, incumbent_us)
            assert parent_us is not None
            assert bar is None or parent_us < bar * (1 - TIE)
        if order.kind in ("seed", "recipe"):
            assert order.family not in out
    asked = [b.order for b in branches] + list(planned.orders)
    hypotheses = [o.hypothesis for o in asked if o.hypothesis is not None]
    assert len(set(hypotheses)) == len(hypotheses)
    texts = [o.rewrite.source_id for o in asked if o.rewrite is not None]
    assert len(set(texts)) == len(texts)
    pairs = [frozenset(o.parents) for o in asked if o.kind == "crossover"]
    assert len(set(pairs)) == len(pairs)
    children = Counter(o.parents for o in asked if o.kind == "expand")
    assert all(count <= options.branching for count in children.values())


@settings(max_examples=examples(150), deadline=None)
@given(
    st.data(),
    st.builds(
        SearchOptions,
        strategy=st.sampled_from(["branch", "beam"]),
        width=st.integers(1, 7),
        rounds=st.integers(1, 5),
        branching=st.integers(1, 3),
        seed=st.integers(0, 3),
    ),
    st.lists(st.sampled_from(NAMES), max_size=12),
    st.none() | st.floats(1, 1000),
    st.booleans(),
)
def test_every_round_keeps_its_promises(
    data: st.DataObject,
    options: SearchOptions,
    families: list[str],
    incumbent_us: float | None,
    can_write: bool,
) -> None:
    recipes = data.draw(st.integers(0, len(families))) if can_write else len(families)
    supply = Supply(seeds(families, recipes), can_write, can_plan=False)
    branches: list[Branch] = []
    for number in range(options.rounds + 1):
        planned = plan_round(options, branches, incumbent_us, supply)
        assert planned == plan_round(options, list(branches), incumbent_us, supply)
        check(options, planned, branches, incumbent_us)
        if planned.stop is not None:
            assert not planned.orders
            break
        assert planned.orders
        assert {o.round for o in planned.orders} == {number}
        assert can_write or all(o.kind == "recipe" for o in planned.orders)
        for order in planned.orders:
            time_us = data.draw(st.none() | st.floats(0.5, 2000, width=16))
            family = data.draw(st.none() | st.sampled_from(NAMES))
            branches.append(branch(order, time_us, family))
    else:
        pytest.fail("a search has no more rounds than it was given")
    assert len(branches) <= options.width * options.rounds
    timed = [b for b in branches if b.time_us is not None]
    ranked = ranking(branches, options.seed)
    assert sorted(b.id for b in ranked) == sorted(b.id for b in timed)
    assert [b.time_us for b in ranked] == sorted(b.time_us or 0 for b in timed)
    assert champion(branches, options.seed) == (ranked[0] if ranked else None)
    assert len(kept(options, branches)) <= options.width


def test_a_planner_is_asked_for_families_where_too_few_are_left() -> None:
    options = SearchOptions(strategy="beam", width=4)
    one = Supply(seeds(["tiling"], 0), can_write=True, can_plan=True)
    first = plan_round(options, [], 1000.0, one)
    assert [o.hypothesis for o in first.orders] == [0]
    won = [branch(first.orders[0], 500.0)]
    asking = plan_round(options, won, 1000.0, one)
    assert (asking.orders, asking.stop, asking.wanted) == ((), None, 1)
    more = Supply(seeds(["tiling", "fusion"], 0), can_write=True, can_plan=False)
    second = plan_round(options, won, 1000.0, more)
    assert [(o.kind, o.family) for o in second.orders] == [
        ("seed", "fusion"),
        ("expand", "tiling"),
        ("expand", "tiling"),
    ]


def test_a_whole_round_is_asked_for_where_nothing_beats_the_incumbent() -> None:
    options = SearchOptions(strategy="beam", width=4)
    supply = Supply(seeds(["tiling", "fusion"], 0), can_write=True, can_plan=True)
    first = plan_round(options, [], 100.0, supply)
    lost = [branch(o, 500.0) for o in first.orders]
    asking = plan_round(options, lost, 100.0, supply)
    assert (asking.orders, asking.stop, asking.wanted) == ((), None, 3)


def test_recipes_alone_have_one_round_and_the_rest_of_their_proposals() -> None:
    options = SearchOptions(strategy="beam", width=2)
    names = ["tiling", "coalescing", "launch_geometry"]
    supply = Supply(seeds(names, 3), can_write=False, can_plan=False)
    first = plan_round(options, [], 1000.0, supply)
    assert [o.family for o in first.orders] == names[:2]
    branches = [branch(o, 500.0) for o in first.orders]
    second = plan_round(options, branches, 1000.0, supply)
    assert [o.family for o in second.orders] == names[2:]
    branches += [branch(o, 700.0) for o in second.orders]
    third = plan_round(options, branches, 1000.0, supply)
    assert third.stop == "nothing is left to develop"


def test_greedy_is_no_search() -> None:
    with pytest.raises(ValueError, match="no rounds"):
        plan_round(SearchOptions(), [], None, Supply((), False, False))
