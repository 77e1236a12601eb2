"""A made-up dialogue about naive_matmul for searches: every answer follows from its question alone.

So the server may be asked in any order, and one search asks and hears the same as another.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.hypothesis import Family
from tests.nim import Asked, Reply, Usage

RECORDED = Path(__file__).parents[2] / "examples" / "scripts" / "naive_matmul"
TOGETHER_S = 120.0
"""Longest that a coder is held back for the others; a search that asks one by one is that late."""

_TASK = "\n# Task\n"
_ROLE = re.compile(r"^# Your part: (\w+)$", re.MULTILINE)
_TITLE = re.compile(r"^\[\w+\] (.+)$", re.MULTILINE)


class Idea(NamedTuple):
    """A hypothesis, what the coder answers to it, and what the fixer does where that is refused."""

    family: Family
    title: str
    coder: str
    fixer: str = ""

    @property
    def planned(self) -> dict[str, object]:
        """As a planner words it."""
        return {"family": self.family, "title": self.title, "why": "L1 is at its limit"}


def role_of(asked: Asked) -> str:
    """Who asks."""
    found = _ROLE.search(str(asked.messages[0]["content"]))
    assert found, "every prompt says whose part it is"
    return found.group(1)


def task_of(asked: Asked) -> str:
    """The end of a prompt, which says what is to be done."""
    return asked.prompt.rpartition(_TASK)[2]


def title_of(asked: Asked) -> str:
    """Title of the hypothesis that a coder or a fixer is to follow."""
    found = _TITLE.search(task_of(asked))
    assert found, "a coder is told which hypothesis to follow"
    return found.group(1)


def question(asked: Asked) -> str:
    """All that was said to the model, for counting."""
    return json.dumps(asked.body["messages"], sort_keys=True)


class Dialogue:
    """Answers chats for `Nim.answer_with`.

    `first`: planned for the author's kernel. `later`: planned for an incumbent, by text that it
    holds. `joined`: written where two parents are to be joined. `together`: coders who must ask at
    once before the first of them is answered. `most_at_once`: coders that were seen to.
    """

    def __init__(
        self,
        first: Sequence[Idea],
        later: dict[str, Sequence[Idea]] | None = None,
        *,
        joined: str = "",
        together: int = 1,
        usage: Callable[[Asked], Usage] | None = None,
    ) -> None:
        self._first, self._later = first, later or {}
        self._joined = joined
        self._together = together
        self._usage = usage
        self._by_title = {
            idea.title: idea for ideas in (first, *self._later.values()) for idea in ideas
        }
        self._at_work = 0
        self._gathered = threading.Condition()
        self.most_at_once = 0
        self.asked: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Reply:
        role = role_of(asked)
        self.asked[role] += 1
        answers = {"planner": self._plan, "coder": self._write, "fixer": self._mend}
        text = answers[role](asked) if role in answers else "The loads were the limit."
        return Reply(text) if self._usage is None else Reply(text, usage=self._usage(asked))

    def _plan(self, asked: Asked) -> str:
        _, _, incumbent = asked.prompt.partition("\n# The incumbent")
        ideas = next((i for text, i in self._later.items() if text in incumbent), self._first)
        return f"```json\n{json.dumps([idea.planned for idea in ideas])}\n```"

    def _write(self, asked: Asked) -> str:
        with self._gathered:
            self._at_work += 1
            self.most_at_once = max(self.most_at_once, self._at_work)
            self._gathered.notify_all()
            self._gathered.wait_for(lambda: self.most_at_once >= self._together, TOGETHER_S)
            self._at_work -= 1
        if "Join the two rewrites" in task_of(asked):
            return self._joined
        return self._by_title[title_of(asked)].coder

    def _mend(self, asked: Asked) -> str:
        return self._by_title[title_of(asked)].fixer


def _answer(title: str, kernel: str) -> str:
    return f"TITLE: {title}\nWHY: fewer loads for each multiply-add\n```cuda\n{kernel}```\n"


_SIXTEENTH = """// @requires N % 16 == 0
// @launch sampled grid=(N / 16, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void sampled(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < N; k += 16) sum += A[row * N + k] * B[k * N + col];
    C[row * N + col] = 16.0f * sum;
}
"""

_TWO = """// @requires N % 32 == 0
// @launch two_columns grid=(N / 32, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void two_columns(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y, pair = blockIdx.x * 16 + threadIdx.x;
    const float2* left = reinterpret_cast<const float2*>(A + row * N);
    const float2* right = reinterpret_cast<const float2*>(B) + pair;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int k = 0; k < N; k += 2) {
        const float2 a = left[k / 2], b = right[k * N / 2], next = right[(k + 1) * N / 2];
        sum.x += a.x * b.x + a.y * next.x;
        sum.y += a.x * b.y + a.y * next.y;
    }
    reinterpret_cast<float2*>(C + row * N)[pair] = sum;
}
"""

_FOUR = """// @requires N % 64 == 0
// @launch four_columns grid=(N / 64, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void four_columns(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y, four = blockIdx.x * 16 + threadIdx.x;
    const float4* right = reinterpret_cast<const float4*>(B) + four;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int k = 0; k < N; ++k) {
        const float a = A[row * N + k];
        const float4 b = right[k * N / 4];
        sum.x += a * b.x;
        sum.y += a * b.y;
        sum.z += a * b.z;
        sum.w += a * b.w;
    }
    reinterpret_cast<float4*>(C + row * N)[four] = sum;
}
"""

_APART = """// @requires N % 32 == 0
// @launch apart grid=(N / 32, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void apart(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    float left = 0.0f, right = 0.0f;
    for (int k = 0; k < N; ++k) {
        const float a = A[row * N + k];
        left += a * B[k * N + col];
        right += a * B[k * N + col + 16];
    }
    C[row * N + col] = left;
    C[row * N + col + 16] = right;
}
"""

_BOTH = """// @requires N % 32 == 0
// @launch both grid=(N / 32, N / 16) block=(16, 16) args=(A, B, C, N)
__global__ void both(const float* A, const float* B, float* C, int N) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    const float4* line = reinterpret_cast<const float4*>(A + row * N);
    float sum[2] = {};
    for (int k = 0; k < N / 4; ++k) {
        const float4 a = line[k];
        for (int c = 0; c < 2; ++c) {
            const float* b = B + 4 * k * N + col + 16 * c;
            sum[c] += a.x * b[0] + a.y * b[N] + a.z * b[2 * N] + a.w * b[3 * N];
        }
    }
    for (int c = 0; c < 2; ++c) C[row * N + col + 16 * c] = sum[c];
}
"""

# Modelled for an A10 by `gates.evaluate.screen` at N = 256 (2026-11-20): the author's kernel
# 20.8 us, _TWO 9.4 us, _FOUR 7.1 us, _APART 15.9 us, _BOTH 12.3 us.
WRONG = Idea(
    "algorithm", "every sixteenth product",
    _answer("sampled", _SIXTEENTH), _answer("sampled", _SIXTEENTH),
)  # fmt: skip
BROKEN = Idea(
    "coalescing",
    "tiles of a stride nobody declared",
    (RECORDED / "1-coder.md").read_text("utf-8"),
    (RECORDED / "1-fixer-1.md").read_text("utf-8"),
)
TWO = Idea("vector_loads", "two columns a thread", _answer("two columns", _TWO))
FOUR = Idea("vector_loads", "four columns a thread", _answer("four columns", _FOUR))
APART = Idea("unrolling", "two columns far apart", _answer("columns apart", _APART))
BOTH = _answer("vector loads and columns apart", _BOTH)
