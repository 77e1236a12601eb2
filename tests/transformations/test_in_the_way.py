"""What stands in the way of transformations, with its line."""

from __future__ import annotations

from collections import Counter

import pytest

from cudaops.domain.program import SourceFile
from cudaops.program.parse import parse_files
from cudaops.transformations.in_the_way import in_the_way

SOURCE = """// return, asm, tex2D
__global__ void other(int* x) { return; }

template <int N>
__global__ void k(float* probs, volatile int* flag, int n) {
    // return and tex2D(probs) of a comment
    int i = threadIdx.x;
    if (i >= n)
        return;
    probs[i] = surf2Dread<float>(i, "return");
    __syncthreads();
    while (*flag) if (i) break;
}
int main() { return 0; }
"""


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("what surf2Dread does", 10),
        ("an early return", 9),
        ("threads that return before a barrier", 9),
        ("probs, which other threads may store to", 10),
        ("probs is read while other threads write it", 10),
        ("a barrier or shared-memory communication within the block", 11),
        ("an early exit of the loop", 9),
        ("volatile in k", 5),
        ("no uniform loop", None),
        ("what tex2D does", None),
        ("a value, which is not there", None),
    ],
)
def test_the_line_of_what_a_refusal_names(reason: str, line: int | None) -> None:
    program = parse_files("main", (SourceFile(path="a/main.cu", text=SOURCE),))
    refused = Counter({"no atomics": 5, reason: 2, "no loop": 1})
    place = f"{reason} (a/main.cu:{line})" if line else "no atomics"
    assert in_the_way(refused, program.kernel("k")) == place
    assert in_the_way(Counter(), program.kernel("k")) == ""
