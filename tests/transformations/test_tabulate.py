"""Tables of what all threads compute alike: where it is so, and where it may be computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudaops.program.plans import resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.tabulate import Tabulate
from tests.transformations.bench import Case

X = np.linspace(0.25, 3.0, 96, dtype=np.float32)
GUARDED = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float s = 0;"


def kernel_of(body: str) -> str:
    return f"""
    __device__ float own(float v) {{ return v * v; }}
    __global__ void k(const float* x, const float* w, float* y, int n, int m, float by) {{
        {body}
    }}"""


def launched(case: Callable[..., Case], source: str, **more: object) -> Case:
    given = {"x": X, "w": X[::-1].copy(), "y": X * 0, "n": 90, "m": 17, "by": 1.5, **more}
    return case(source, given, grid=(3,), block=(32,))


READ = "for (int j = 0; j < m; j++) s += sqrtf(w[j]); y[i] = s;"
POLYGON = f"""{GUARDED}
    int q = m - 1;
    for (int j = 0; j < m; q = j++) {{  // the edge from q to j
        float a = w[j], b = w[q];
        float slope = (a - b) / (a + b);
        s += slope * x[i];
    }}
    y[i] = s;"""
WINDOW = f"""{GUARDED}
    for (int r = -3; r <= 3; r++)
        for (int c = -2; c < 4; c++)
            s += x[(i + 96 + r + c) % 96] * expf(-(r * r + c * c) / (2 * by * by));
    y[i] = s;"""
LEFT_EARLY = f"""{GUARDED}
    for (int j = 1; j <= m; j++) {{
        if (x[j] > 1) {{ s += logf(j + by) * x[i]; }}
        if (s > 9) break;
    }}
    y[i] = s;"""
GUARDED_LOOP = """
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float s = 0;
        for (int j = 0; j < m; ++j) { s += x[i] * sqrtf(w[j]) / by; }
        y[i] = s;
    }"""


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (POLYGON, "float slope = table[j];"),
        (WINDOW, "* table[(r + 3) * 6 + (c + 2)]"),
        (LEFT_EARLY, "s += table[j - 1] * x[i];"),
        (GUARDED_LOOP, "s += x[i] * table[j] / by;"),
    ],
)
def test_tables(body: str, shown: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body))
    draft = made.applied(Tabulate())
    assert shown in draft.text
    assert len(draft.launches) == 2
    made.same(draft, tolerance=1e-6)


def test_other_launches(case: Callable[..., Case]) -> None:
    body = f"{GUARDED} for (int j = 0; j < m; ++j) s += x[i] * sqrtf(w[j]); y[i] = s;"
    made = launched(case, kernel_of(body))
    rewrite = made.applied(Tabulate()).rewrite()
    for name, value, runs in (("n", 0, False), ("m", 1 << 21, False), ("m", 0, True)):
        arguments = tuple(
            a.model_copy(update={"value": value}) if a.name == name else a
            for a in made.workload.arguments
        )
        other = made.workload.model_copy(update={"arguments": arguments})
        assert resolve(rewrite, made.kernel, other).applicable == runs


@pytest.mark.parametrize(
    "body",
    [
        # A thread's own, or cheap.
        f"{GUARDED} for (int j = 0; j < m; j++) s += expf(x[i] * j); y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m; j++) s += x[i] * (w[j] + by); y[i] = s;",
        # Turns that the launch does not give, or that are counted otherwise.
        f"{GUARDED} for (int j = i; j < m; j++) s += expf(j * by); y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m + i; j++) s += expf(j * by); y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m; j += 2) s += expf(j * by); y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m; j++) {{ s += expf(j * by); if (s > 3) j++; }} y[i] = s;",
        # What changes on the way.
        f"{GUARDED} for (int j = 0; j < m; j++) {{ s += expf(j * by); by += 1; }} y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m; j++) {{ s += sqrtf(y[j]); }} y[i] = s;",
        f"{GUARDED} float* p = &by; for (int j = 0; j < m; j++) {{ s += expf(j * by); *p = s; }}",
        # Read where the author may not.
        f"{GUARDED} for (int j = 0; j < m; j++) if (j < 9) s += sqrtf(w[j]); y[i] = s;",
        f"{GUARDED} for (int j = 0; j < m; j++) {{ if (s > 2) break; s += sqrtf(w[j]); }}",
        f"{GUARDED} if (s > x[i]) {{ if (i > 2) return; }} {READ}",
        f"{GUARDED} if (x[0] > 0) {{ {READ} }}",
        f"{GUARDED} switch (m) {{ case 3: {READ} }}",
        # Not pure, or not seen to be.
        f"{GUARDED} for (int j = 0; j < m; j++) s += own(sqrtf(x[i]) * j); y[i] = s;",
        # The turn before, which another loop has left behind.
        f"{GUARDED} int q = 3; while (s < 9) for (int j = 0; j < m; q = j++) s += expf(q * by);",
    ],
)
def test_what_it_leaves(body: str, case: Callable[..., Case]) -> None:
    made = launched(case, kernel_of(body))
    assert Tabulate().settings(made.draft) == ()
    with pytest.raises(NotUnderstood):
        Tabulate().apply(made.draft, {})
