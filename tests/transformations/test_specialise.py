"""Launch constants: where every launch agrees, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.specialise import Specialise
from tests.transformations.bench import Case, every_setting, expressions

GRID_2D = """
// Keeps its words.
__global__ void shade(const float* x, float* y, const int w, int h, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // the pixel
    int row = i / w, column = i % w;
    if (row < h) y[row * w + column] = by * x[i] + column;
}"""


def test_numbers_become_constants(case: Callable[..., Case]) -> None:
    x = np.arange(12 * 7, dtype=np.float32)
    made = case(
        GRID_2D, {"x": x, "y": x * 0, "w": 7, "h": 12, "by": 0.5}, grid=(3,), block=(32,)
    )  # fmt: skip
    drafts = every_setting(Specialise(), made)
    assert len(drafts) == 2
    for draft in drafts.values():
        made.same(draft)
        assert "// the pixel" in draft.text
    sizes, numbers = drafts.values()
    assert "constexpr float by = 0.5f;" in numbers.text
    assert "constexpr float" not in sizes.text
    assert set(sizes.requires) == set(expressions("w == 7", "h == 12", "blockDim.x == 32"))


def test_other_sizes_get_the_authors_kernel(case: Callable[..., Case]) -> None:
    x = np.arange(12 * 7, dtype=np.float32)
    made = case(
        GRID_2D, {"x": x, "y": x * 0, "w": 7, "h": 12, "by": 0.5}, grid=(3,), block=(32,)
    )  # fmt: skip
    rewrite = made.applied(Specialise()).rewrite()
    other = made.workload.model_copy(
        update={
            "arguments": tuple(
                a.model_copy(update={"value": 9}) if a.name == "w" else a
                for a in made.workload.arguments
            )
        }
    )
    assert not resolve(rewrite, made.kernel, other).applicable


@pytest.mark.parametrize(
    "body",
    ["y[threadIdx.x] = 1.0f;", "n -= 1; y[threadIdx.x] = n;", "int* p = &n; *p = 2; y[0] = n;"],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = case(
        f"__global__ void k(float* y, int n) {{ {body} }}",
        {"y": np.zeros(32, np.float32), "n": 4}, grid=(1,), block=(32,),
    )  # fmt: skip
    assert Specialise().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Specialise().apply(made.draft, {"what": "sizes"})
