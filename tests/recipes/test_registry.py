"""What is proposed in which order, and what is never proposed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from cudaops.cuda.subtypes import Subtype
from cudaops.domain.hypothesis import FAMILIES
from cudaops.domain.profile import Verdict
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.recipes.matmul import NAMES
from cudaops.recipes.registry import (
    RECIPES,
    Recipe,
    family_of,
    propose,
    ranked,
    refusal,
    seeds,
)

MakeProgram = Callable[..., Program]
MakeLaunch = Callable[..., Workload]

_TEXT = """
__global__ void mm(const float* A, const float* B, float* C, int N) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < N && col < N) {
        float acc = 0;
        for (int k = 0; k < N; ++k) acc += A[row * N + k] * B[k * N + col];
        C[row * N + col] = acc;
    }
}"""


_TRANSPOSE = """
__global__ void tr(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[x * h + y] = in[y * w + x];
}"""


def _verdict(subtype: str) -> Verdict:
    return Verdict(
        bottleneck_class="memory_bound", subtype=subtype, summary="s", evidence=(), relief="r",
        source="modelled",
    )  # fmt: skip


def test_recipes_name_known_subtypes_and_have_names_of_their_own() -> None:
    known = set(get_args(Subtype))
    for recipe in RECIPES:
        assert recipe.relieves <= known
        assert recipe.family in FAMILIES
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


def _both(program_of: MakeProgram) -> list[tuple[Recipe, Rewrite]]:
    """What each recipe that keeps the formula proposes for a kernel of its kind."""
    found = []
    keeping = [one for one in RECIPES if not getattr(one, "reassociates", False)]
    for recipe, name, text in zip(keeping, ("mm", "tr"), (_TEXT, _TRANSPOSE), strict=True):
        program = program_of(text)
        (rewrite,) = recipe.propose(program, program.kernel(name), (), None)
        found.append((recipe, rewrite))
    return found


def _names(rewrites: Sequence[Rewrite]) -> list[str]:
    return [rewrite.proposer.removeprefix("recipe:") for rewrite in rewrites]


def test_what_relieves_the_verdict_comes_first(program_of: MakeProgram) -> None:
    transpose_first = _both(program_of)[::-1]
    assert _names(ranked(transpose_first, "shared_throughput")) == ["matmul", "transpose"]
    assert _names(ranked(transpose_first, "l1_load_throughput")) == ["transpose", "matmul"], "both"


def test_a_proposal_names_the_verdict(program_of: MakeProgram) -> None:
    program = program_of(_TEXT)
    (found,) = propose(program, program.kernel("mm"), (), _verdict("l1_load_throughput"))
    assert "l1_load_throughput" in found.why


def test_nothing_is_proposed_twice(program_of: MakeProgram) -> None:
    program = program_of(_TEXT)
    kernel = program.kernel("mm")
    (matmul,) = propose(program, kernel, (), None)
    tuned = matmul.tuned_with({"CUDAOPS_BM": 128, "CUDAOPS_TM": 8})
    assert propose(program, kernel, (), None, {tuned.source_id}) == ()
    assert propose(program, kernel, (), None, {"0" * 12}) == (matmul,)


def test_only_what_relieves_where_that_is_asked_for(program_of: MakeProgram) -> None:
    program = program_of(_TEXT)
    kernel = program.kernel("mm")

    def proposers(subtype: str) -> list[str]:
        found = propose(program, kernel, (), _verdict(subtype), relieving_only=True)
        return [r.proposer for r in found]

    assert proposers("shared_throughput") == ["recipe:matmul"]
    assert proposers("atomic_contention") == []


def test_what_paid_leads_and_what_was_rejected_follows(program_of: MakeProgram) -> None:
    both = _both(program_of)

    def names(subtype: str, **favour: float) -> list[str]:
        def of(rewrite: Rewrite, family: str) -> float:
            return favour.get(rewrite.proposer.removeprefix("recipe:"), favour.get(family, 0.0))

        return _names(ranked(both, subtype, of))

    assert names("l1_load_throughput") == ["matmul", "transpose"], "nothing known: as ever"
    assert names("l1_load_throughput", transpose=1.2) == ["transpose", "matmul"]
    assert names("l1_load_throughput", transpose=1.2, matmul=1.5) == ["matmul", "transpose"]
    assert names("l1_load_throughput", matmul=-1.5) == ["transpose", "matmul"], "not dropped"
    assert names("l1_load_throughput", coalescing=0.1) == ["transpose", "matmul"]
    assert names("l1_load_throughput", tiling=-0.1) == ["transpose", "matmul"]
    # The matrix product relieves this verdict, the transpose does not.
    assert names("shared_throughput", tiling=-0.1) == ["matmul", "transpose"]
    assert names("shared_throughput", coalescing=0.3) == ["transpose", "matmul"]


@pytest.mark.parametrize("value", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_favour_for_all_changes_no_order(value: float, program_of: MakeProgram) -> None:
    both = _both(program_of)
    assert ranked(both, "", lambda rewrite, family: value) == ranked(both, "")


def test_the_family_of_a_recipes_rewrite(program_of: MakeProgram) -> None:
    (_, matmul), (_, transpose) = _both(program_of)
    assert (family_of(matmul), family_of(transpose)) == ("tiling", "coalescing")
    assert family_of(matmul.model_copy(update={"proposer": "llm:x"})) is None


def test_refusal_joins_the_recipe_and_the_plan(
    program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    program = program_of(_TEXT)
    kernel = program.kernel("mm")
    (matmul,) = propose(program, kernel, (), None)
    reached, short = launch_of("mm", N=64), launch_of("mm", N=65)
    assert refusal(matmul, kernel, (reached,)) is None
    assert refusal(matmul, kernel, (short, reached)) is None
    assert "@requires" in str(refusal(matmul, kernel, (short,)))
    assert "divide" in str(refusal(matmul.tuned_with({"CUDAOPS_BK": 4}), kernel, (reached,)))
    matmul = matmul.tuned_with(dict(zip(NAMES, (128, 64, 16, 8, 8, 2), strict=True)))
    uneven = matmul.tuned_with({"CUDAOPS_BK": 8, "CUDAOPS_GROUPS": 4})
    assert "do not divide" in str(refusal(uneven, kernel, (reached,)))
    spilling = matmul.tuned_with({"CUDAOPS_BM": 128, "CUDAOPS_BN": 128})
    assert "registers" in str(refusal(spilling, kernel, (reached,)))
    apart = matmul.tuned_with({"CUDAOPS_BN": 32})
    assert "a warp's 4x8" in str(refusal(apart, kernel, (reached,)))
    many = matmul.tuned_with({"CUDAOPS_BM": 64, "CUDAOPS_GROUPS": 4})
    assert "no room for the sums of 3 groups" in str(refusal(many, kernel, (reached,)))


def test_every_seed_is_allowed(program_of: MakeProgram, launch_of: MakeLaunch) -> None:
    program = program_of(_TEXT)
    kernel = program.kernel("mm")
    for rewrite in propose(program, kernel, (), None):
        for values in seeds(rewrite):
            assert (
                refusal(rewrite.tuned_with(dict(values)), kernel, (launch_of("mm", N=64),)) is None
            )


@pytest.mark.parametrize(
    ("n", "first"),
    [(1024, (128, 64, 16, 16, 8, 4)), (512, (64, 64, 16, 8, 8, 2)), (64, (32, 32, 32, 4, 4, 1))],
)
def test_small_products_begin_with_small_tiles(
    n: int, first: tuple[int, ...], program_of: MakeProgram, launch_of: MakeLaunch
) -> None:
    program = program_of(_TEXT)
    blocks = (n // 16, n // 16, 1)
    launch = launch_of("mm", grid=blocks, N=n)
    rewrite = propose(program, program.kernel("mm"), (launch,), None)[0]
    assert tuple(rewrite.values().values()) == first
    assert tuple(seeds(rewrite)[0].values()) == first
