"""Kernels drawn at random, with launches: to transform at random and run against the original.

Each stays within its arrays, has no race and reads nothing unwritten, whatever is drawn. Floats
hold small whole numbers, so that sums in another order are equal to the bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tests.recipes.bench import Array

Values = dict[str, Array | int | float]


@dataclass(frozen=True)
class Drawn:
    """One kernel and one launch of it."""

    source: str
    arguments: Values
    grid: tuple[int, ...]
    block: tuple[int, ...]


class Generator:
    """Draws kernels by a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._numbers = np.random.default_rng(seed)

    def kernel(self) -> Drawn:
        """One of the kinds below."""
        kinds = (
            self._elementwise, self._rows, self._stencil, self._block_sum, self._histogram,
            self._counters, self._matrix, self._table, self._block_rows,
            self._channels, self._neighbours, self._tiles, self._prefixes, self.functions,
            self.alike, self.taken_apart, self.passes, self.qualified,
        )  # fmt: skip
        return self._draw.choice(kinds)()

    # Pieces

    def _values(self, count: int, kind: str, most: int = 5) -> Array:
        found = self._numbers.integers(0 if kind == "unsigned" else -most, most + 1, count)
        types = {"float": np.float32, "int": np.int32, "unsigned": np.uint32, "double": np.float64}
        return found.astype(types[kind])

    def _kind(self) -> str:
        return self._draw.choice(["float", "int", "double"])

    def _place(self, n: str) -> str:
        """How a thread finds its element, and leaves where there is none."""
        at = "blockIdx.x * blockDim.x + threadIdx.x"
        return self._draw.choice([
            f"int i = {at}; if (i < {n}) {{ BODY }}",
            f"const int i = {at};\n    if (i >= {n}) return;\n    BODY",
            f"for (int i = {at}; i < {n}; i += blockDim.x * gridDim.x) {{ BODY }}",
            f"unsigned i = {at}; if (i < {n}) {{ BODY }}",
        ])  # fmt: skip

    def _term(self, depth: int = 0) -> str:
        """An expression over a[i], b[i], i, n and c."""
        if depth > 2 or self._draw.random() < 0.3:
            return self._draw.choice(["a[i]", "b[i]", "c", "2", "(int)i % 7", "a[n - 1 - i]"])
        left, right = self._term(depth + 1), self._term(depth + 1)
        return self._draw.choice([
            f"({left} + {right})", f"({left} - {right})", f"{left} * {self._draw.randint(1, 3)}",
            f"(a[i] > b[i] ? {left} : {right})", f"min({left} * 1.0f, {right} * 1.0f)",
        ])  # fmt: skip

    def _made(
        self, kind: str, signature: str, body: str, arguments: Values,
        threads: int, *, extra: str = "",
    ) -> Drawn:  # fmt: skip
        block = self._draw.choice([32, 48, 64, 128, 256])
        source = f"{extra}__global__ void k({signature}) {{\n    {body}\n}}"
        source = source.replace("TYPE", kind)
        return Drawn(source, arguments, (-(-threads // block),), (block,))

    # Kinds

    def _elementwise(self) -> Drawn:
        kind, n = self._kind(), self._draw.choice([1, 33, 100, 256, 1000])
        body = f"y[i] = {self._term()};"
        if self._draw.random() < 0.4:
            body = f"TYPE t = {self._term()};  // kept\n    if (t > c) t -= c;\n    y[i] = t;"
        if self._draw.random() < 0.2:
            body = f"if (a[i] > 0) y[i] = {self._term()}; else y[i] += {self._term()};"
        arguments: Values = {
            "a": self._values(n, kind), "b": self._values(n, kind), "y": self._values(n, kind),
            "c": self._draw.randint(1, 4), "n": n,
        }  # fmt: skip
        signature = "const TYPE* a, const TYPE* b, TYPE* y, int c, int n"
        return self._made(kind, signature, self._place("n").replace("BODY", body), arguments, n)

    def _rows(self) -> Drawn:
        """A loop a thread."""
        kind, n, m = self._kind(), self._draw.choice([3, 40, 65]), self._draw.choice([1, 7, 32, 61])
        at = self._draw.choice(["i * m + k", "k * n + i"])
        take = self._draw.choice([f"a[{at}] * w[k]", f"a[{at}]", f"abs(a[{at}] - w[k])"])
        header = self._draw.choice([
            "for (int k = 0; k < m; k++)", "for (int k = m - 1; k >= 0; --k)",
            "for (int k = 0; k < m; k += 2)", "for (unsigned k = 0; k < (unsigned)m; ++k)",
        ])  # fmt: skip
        first, step, last = self._draw.choice([
            ("TYPE s = 0;", f"s += {take};", "y[i] = s;"),
            ("TYPE s = 0, t = 1;", f"s += {take}; t = max(t, s * 0 + {take});", "y[i] = s - t;"),
            ("TYPE s = w[0];", f"s = min(s, {take});", "y[i] = s;"),
            ("int s = 0;", f"if ({take} > 0) s++;", "y[i] = s;"),
            ("int s = 0;", f"if ({take} > 3) {{ s = k; break; }}", "y[i] = s;"),
            ("", f"y[i] += {take};", ""),
            ("TYPE s = 0;", f"s += {take}; y[i] = s;", ""),
        ])  # fmt: skip
        body = f"{first} {header} {{ {step} }} {last}"
        arguments: Values = {
            "a": self._values(n * m, kind), "w": self._values(m, kind),
            "y": self._values(n, kind), "n": n, "m": m,
        }  # fmt: skip
        signature = "const TYPE* a, const TYPE* w, TYPE* y, int n, int m"
        return self._made(kind, signature, self._place("n").replace("BODY", body), arguments, n)

    def _stencil(self) -> Drawn:
        kind, w, h = self._kind(), self._draw.choice([5, 32, 37]), self._draw.choice([4, 9])
        left, right = self._draw.choice([
            ("(x + w - 1) % w", "(x + 1) % w"), ("max(x - 1, 0)", "min(x + 1, w - 1)"),
        ])  # fmt: skip
        body = (
            "int x = i % w, y0 = i / w;\n"
            f"    TYPE s = in[y0 * w + {left}] + in[y0 * w + {right}];\n"
            "    if (y0 > 0) s += in[(y0 - 1) * w + x];\n"
            "    if (y0 < h - 1) s += in[(y0 + 1) * w + x];\n"
            "    out[i] = s - 4 * in[i];"
        )
        arguments: Values = {
            "in": self._values(w * h, kind), "out": self._values(w * h, kind), "w": w, "h": h,
        }  # fmt: skip
        signature = "const TYPE* in, TYPE* out, int w, int h"
        place = self._place("w * h").replace("BODY", body)
        return self._made(kind, signature, place, arguments, w * h)

    def _block_sum(self) -> Drawn:
        kind, block = self._kind(), self._draw.choice([32, 64, 128, 256])
        blocks = self._draw.choice([1, 3])
        n = block * blocks - self._draw.choice([0, 0, 5])
        step = self._draw.choice([
            "if (t < s) sm[t] += sm[t + s];", "if (t < s) sm[t] = max(sm[t], sm[t + s]);",
        ])  # fmt: skip
        source = (
            "__global__ void k(const TYPE* a, TYPE* y, int n) {\n"
            f"    __shared__ TYPE sm[{block}];\n"
            "    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n"
            "    sm[t] = i < n ? a[i] : 0;\n    __syncthreads();\n"
            f"    for (int s = blockDim.x / 2; s > 0; s >>= 1) {{ {step} __syncthreads(); }}\n"
            "    if (t == 0) y[blockIdx.x] = sm[0];\n}"
        ).replace("TYPE", kind)
        arguments: Values = {"a": self._values(n, kind), "y": self._values(blocks, kind), "n": n}
        return Drawn(source, arguments, (blocks,), (block,))

    def _block_rows(self) -> Drawn:
        """A block a row, its threads striding over it; what they found goes to all of them."""
        kind, block = self._kind(), self._draw.choice([64, 96, 128, 256])
        rows, m = self._draw.choice([1, 4]), self._draw.choice([1, 50, 200])
        first, step = self._draw.choice([
            ("0", "s += a[r * m + k] * w[k];"), ("w[0]", "s = max(s, a[r * m + k]);"),
            ("0", "if (a[r * m + k] > 1) s += w[k]; else s -= 1;"),
        ])  # fmt: skip
        gather = self._draw.choice([
            ("sm[t] = s; __syncthreads();\n"
            "    TYPE all = 0;\n    for (int j = 0; j < blockDim.x; ++j) all += sm[j] * (j % 3);"),
            ("for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);\n"
            "    if (t % 32 == 0) sm[t / 32] = s;\n    __syncthreads();\n"
            "    TYPE all = 0;\n    for (int j = 0; j < blockDim.x / 32; ++j) all += sm[j];"),
            ("for (int d = 0; d < 3; ++d) {\n        sm[t] = s; __syncthreads();\n"
            "        s = s - sm[(t + d) % blockDim.x]; __syncthreads();\n    }\n    TYPE all = s;"),
            "int all = __syncthreads_count(s > 0); sm[t] = all;",
        ])  # fmt: skip
        last = self._draw.choice([
            "if (t == 0) y[r * m] = all;",
            "for (int k = t; k < m; k += blockDim.x) y[r * m + k] = all - a[r * m + k];",
            "__syncthreads();\n    if (t < m) y[r * m + t] = all;",
        ])  # fmt: skip
        source = (
            "__global__ void k(const TYPE* a, const TYPE* w, TYPE* y, int m) {\n"
            f"    __shared__ TYPE sm[{block}];\n    int t = threadIdx.x, r = blockIdx.x;\n"
            f"    TYPE s = {first};\n    for (int k = t; k < m; k += blockDim.x) {{ {step} }}\n"
            f"    {gather}\n    {last}\n}}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "a": self._values(rows * m, kind), "w": self._values(m, kind),
            "y": self._values(rows * m, kind), "m": m,
        }  # fmt: skip
        return Drawn(source, arguments, (rows,), (block,))

    def alike(self) -> Drawn:
        """Every element of a row by what all threads of the row work out for themselves."""
        kind, rows, m = self._kind(), self._draw.choice([1, 5]), self._draw.choice([9, 33, 70])
        steps = [
            ("TYPE s = 0;", "s += a[r * m + k] * w[k];"),
            ("TYPE s = a[r * m];", "s = max(s, w[k]);"),
            ("TYPE s = 1;", "if (a[r * m + k] > 1) s += w[k];"),
            ("TYPE s = w[0]; int at = 0;", "if (a[r * m + k] < s) { s = a[r * m + k]; at = k; }"),
            ("TYPE s = 0;", "for (int j = 0; j < 2; ++j) s += a[r * m + k] * (k % 3 - j);"),
        ]  # fmt: skip
        begin, step = self._draw.choice(steps)
        head = self._draw.choice(
            ["k = 0; k < m; ++k", "k = m - 1; k >= 0; k--", "k = 1; k < m; k += 2"]
        )
        more = self._draw.choice(["", "int c2 = c + 1;\n    ", "s = s - w[r % m];\n    "])
        other = "s" if more else "w[k]"
        again = f"TYPE u = 2;\n    for (int k = 0; k < m; ++k) u += a[r * m + k] - {other};"
        text = f"{begin}\n    for (int {head}) {{ {step} }}\n    {more}"
        text += self._draw.choice([f"{again}\n    y[r * m + c] = a[r * m + c] * s - u;",
                                   "y[r * m + c] = a[r * m + c] - s;"])  # fmt: skip
        text = self._draw.choice([
            f"if (r >= rows || c >= m) return;\n    {text}",
            f"if (r >= rows) return;\n    TYPE z = r;\n    if (c > m - 1) return;\n    {text}",
            f"if (c < m && r < rows) {{\n    {text}\n    }}",
        ])  # fmt: skip
        source = (
            "__global__ void k(const TYPE* a, const TYPE* w, TYPE* y, int rows, int m) {\n"
            "    int c = blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"    int r = blockIdx.y * blockDim.y + threadIdx.y;\n    {text}\n}}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "a": self._values(rows * m, kind), "w": self._values(m, kind),
            "y": self._values(rows * m, kind), "rows": rows, "m": m,
        }  # fmt: skip
        block = self._draw.choice([(32, 1), (64, 2), (16, 4), (8, 8), (16, 3), (24, 2), (96, 1)])
        return Drawn(source, arguments, (-(-m // block[0]), -(-rows // block[1])), block)

    def taken_apart(self) -> Drawn:
        """One index, which the kernel takes apart into three places of what it computes."""
        kind, n = self._kind(), self._draw.choice([1, 2, 3])
        c, h, w = (self._draw.choice(sizes) for sizes in ([1, 4, 5], [2, 3, 8], [1, 4, 7]))
        places = self._draw.choice([
            "int x = i % w, y0 = i / w % h, q = i / (w * h) % c, b = i / (w * h * c);",
            "int x = i % w; int r = i / w; int y0 = r % h; r /= h; int q = r % c; int b = r / c;",
            "int r = i / w, x = i - r * w, y0 = r % h; int q = r / h % c, b = r / h / c;",
            "int wh = w * h, r = i % wh, q = i / wh % c, y0 = r / w, x = r % w, b = i / (wh * c);",
            "int q = i % c, x = i / c % w, y0 = i / c / w % h, b = i / (c * w * h);",
        ])  # fmt: skip
        step = self._draw.choice([
            "s += u[q * 3 + k] * a[((b * 3 + k) * h + y0) * w + x];",
            "if (y0 + k < h) s += a[(b * 3 * h + y0 + k) * w + x] * u[q * 3 + k];",
            "s = max(s, a[((b * 3 + k) * h + y0) * w + (x + k) % w]); if (s > 3) s -= u[q * 3];",
            "s += u[(q + k) % c] - a[(b * 3 + k) * h * w + y0 * w + x] * k;",
        ])  # fmt: skip
        last = self._draw.choice(["y[i] = s;", "y[i] += s;", "if (s > 1) y[i] = s - q;"])
        body = (
            f"{places}\n    TYPE s = 1;\n    for (int k = 0; k < 3; ++k) {{ {step} }}\n    {last}"
        )
        arguments: Values = {
            "a": self._values(n * 3 * h * w, kind), "u": self._values(c * 3, kind),
            "y": self._values(n * c * h * w, kind), "n": n, "c": c, "h": h, "w": w,
        }  # fmt: skip
        signature = "const TYPE* a, const TYPE* u, TYPE* y, int n, int c, int h, int w"
        place = self._place("n * c * h * w").replace("BODY", body)
        return self._made(kind, signature, place, arguments, n * c * h * w)

    def _channels(self) -> Drawn:
        """Every element by what its channel gives."""
        kind, n = self._draw.choice(["float", "double"]), self._draw.choice([40, 300])
        c, m = self._draw.choice([1, 3, 8]), self._draw.choice([1, 5])
        channel = self._draw.choice(["i % c", "i / m % c", "(i + m) % c"])
        dear = self._draw.choice([
            "sqrt((TYPE)(q * q))", "sqrt(w[q] * w[q]) / (1 + 0 * w[q])", "abs(w[q]) / (m * m)",
            "pow((TYPE)(q + m), 2)", "w[q] / m * m",
        ])  # fmt: skip
        guard = self._draw.choice(["", "if (a[i] > 0) ", "for (int k = 0; k < 2; ++k) "])
        body = f"int q = {channel};\n    TYPE t = a[i];\n    {guard}t += {dear};\n    y[i] = t;"
        arguments: Values = {
            "a": self._values(n, kind), "w": self._values(8, kind), "y": self._values(n, kind),
            "n": n, "c": c, "m": m,
        }  # fmt: skip
        signature = "const TYPE* a, const TYPE* w, TYPE* y, int n, int c, int m"
        return self._made(kind, signature, self._place("n").replace("BODY", body), arguments, n)

    def _histogram(self) -> Drawn:
        n, bins = self._draw.choice([50, 400]), self._draw.choice([1, 8, 30])
        add = self._draw.choice([
            "atomicAdd(&y[a[i] % bins], 1);", "atomicAdd(&y[a[i] % bins], a[i]);",
            "if (a[i] > 2) atomicAdd(&y[a[i] % bins], 1);", "atomicMax(&y[a[i] % bins], a[i]);",
        ])  # fmt: skip
        arguments: Values = {
            "a": self._values(n, "unsigned", 40), "y": self._values(bins, "unsigned"),
            "bins": bins, "n": n,
        }  # fmt: skip
        signature = "const unsigned* a, unsigned* y, int bins, int n"
        return self._made(
            "unsigned", signature, self._place("n").replace("BODY", add), arguments, n
        )

    def _counters(self) -> Drawn:
        """Private arrays that are indexed by data."""
        n, m, bins = self._draw.choice([20, 70]), self._draw.choice([9, 40]), 8
        body = (
            f"int count[{bins}] = {{}};\n"
            f"    for (int k = 0; k < m; ++k) count[a[i * m + k] & {bins - 1}]++;\n"
            f"    int s = 0;\n    for (int k = 0; k < {bins}; ++k) s = s * 3 + count[k];\n"
            "    y[i] = s;"
        )
        arguments: Values = {
            "a": self._values(n * m, "int", 60), "y": self._values(n, "int"), "n": n, "m": m,
        }  # fmt: skip
        signature = "const int* a, int* y, int n, int m"
        return self._made("int", signature, self._place("n").replace("BODY", body), arguments, n)

    def _matrix(self) -> Drawn:
        """Two dimensions, a nested loop."""
        kind, rows, columns = self._kind(), self._draw.choice([5, 16]), self._draw.choice([7, 33])
        swapped = self._draw.random() < 0.5
        x, y = ("y", "x") if swapped else ("x", "y")
        source = (
            "__global__ void k(const TYPE* a, const TYPE* b, TYPE* c, int rows, int columns) {\n"
            f"    int column = blockIdx.{x} * blockDim.{x} + threadIdx.{x};\n"
            f"    int row = blockIdx.{y} * blockDim.{y} + threadIdx.{y};\n"
            "    if (row < rows && column < columns) {\n        TYPE s = 0;\n"
            "        for (int j = 0; j < 3; ++j)\n"
            "            for (int k = 0; k < 4; ++k)\n"
            "                s += a[row * 4 + k] * b[k * columns + column] * j;\n"
            "        c[row * columns + column] = s;\n    }\n}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "a": self._values(rows * 4, kind), "b": self._values(4 * columns, kind),
            "c": self._values(rows * columns, kind), "rows": rows, "columns": columns,
        }  # fmt: skip
        extents = {x: columns, y: rows}
        block = (self._draw.choice([8, 16, 32]), self._draw.choice([4, 8]))
        grid = (-(-extents["x"] // block[0]), -(-extents["y"] // block[1]))
        return Drawn(source, arguments, grid, block)

    def _table(self) -> Drawn:
        """All threads read the same, one after the other."""
        kind, n, m = "float", self._draw.choice([30, 130]), self._draw.choice([5, 50])
        body = (
            "TYPE px = p[i];\n    int inside = 0;\n"
            "    for (int j = 0; j < m; j++) {\n"
            "        TYPE d = q[j] - px;\n"
            "        if (d > 0 && q[(j + 1) % m] <= 2) inside = !inside;\n        px += d * 0;\n"
            "    }\n    y[i] = inside;"
        )
        arguments: Values = {
            "p": self._values(n, kind), "q": self._values(m, kind),
            "y": self._values(n, "int"), "n": n, "m": m,
        }  # fmt: skip
        signature = "const TYPE* p, const TYPE* q, int* y, int n, int m"
        return self._made(kind, signature, self._place("n").replace("BODY", body), arguments, n)

    def _neighbours(self) -> Drawn:
        """Two dimensions, with what lies around each point."""
        kind, w, h = self._kind(), self._draw.choice([3, 20, 35]), self._draw.choice([3, 10])
        radius = self._draw.choice([1, 2])
        inside = f"x >= {radius} && x < w - {radius} && y >= {radius} && y < h - {radius}"
        around = f"for (int i = -{radius}; i <= {radius}; ++i) for (int j = -1; j <= 1; j++)"
        at = "(y + i) * w + x + j"
        padded = "y + i >= 0 && y + i < h && x + j >= 0 && x + j < w"
        clamped = "min(max(y + i, 0), h - 1) * w + min(max(x + j, 0), w - 1)"
        star = f"a[y * w + x - {radius}] - a[y * w + x + {radius}] + a[(y - {radius}) * w + x]"
        own, last = "b[y * w + x] =", f"a[(y + {radius}) * w + x]"
        body = self._draw.choice([
            f"if (x < w && y < h) {{ {around} if ({padded}) s += a[{at}]; {own} s; }}",
            f"if (x >= w || y >= h) return; {around} s += a[{clamped}] * (j + 2); {own} s;",
            f"if ({inside}) {own} {star} * 2 - {last};",
            f"if ({inside}) {{ {around} s += a[{at}]; {own} s - n; }}",
        ])  # fmt: skip
        source = (
            "__global__ void k(const TYPE* a, TYPE* b, int w, int h, int n) {\n"
            "    int x = blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    int y = blockIdx.y * blockDim.y + threadIdx.y;\n"
            f"    TYPE s = 0;\n    {body}\n}}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "a": self._values(w * h, kind), "b": self._values(w * h, kind), "w": w, "h": h, "n": 3,
        }  # fmt: skip
        block = (self._draw.choice([8, 16, 32]), self._draw.choice([4, 8]))
        return Drawn(source, arguments, (-(-w // block[0]), -(-h // block[1])), block)

    def _tiles(self) -> Drawn:
        """A loop over tiles in shared memory, with barriers."""
        kind, m, block = self._kind(), self._draw.choice([5, 32, 70]), 32
        fill = self._draw.choice([
            "tile[threadIdx.x] = at < m ? q[at] : 0;",
            "if (at < m) tile[threadIdx.x] = q[at]; else tile[threadIdx.x] = 0;",
            "TYPE v = 0; if (at < m) v = q[at] * 2; tile[threadIdx.x] = v;",
            "if (at < m) tile[threadIdx.x] = q[at] + at; else tile[threadIdx.x] = q[0] * 0;",
        ])  # fmt: skip
        source = (
            "__global__ void k(const TYPE* p, const TYPE* q, TYPE* y, int m) {\n"
            f"    __shared__ TYPE tile[{block}];\n"
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    TYPE s = p[i];\n"
            f"    for (int first = 0; first < m; first += {block}) {{\n"
            f"        int at = first + threadIdx.x;\n        {fill}\n        __syncthreads();\n"
            f"        for (int j = 0; j < {block}; ++j) s += tile[j] * (j % 3);\n"
            "        __syncthreads();\n    }\n    y[i] = s;\n}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "p": self._values(3 * block, kind), "q": self._values(m, kind),
            "y": self._values(3 * block, kind), "m": m,
        }  # fmt: skip
        return Drawn(source, arguments, (3,), (block,))

    def passes(self) -> Drawn:
        """Several loops over a row, of a block, a warp or a thread."""
        kind, rows, n = self._kind(), self._draw.choice([3, 5]), self._draw.choice([1, 20, 70, 130])
        block = self._draw.choice([32, 64])
        whole = (
            "whole[threadIdx.x] = s; __syncthreads(); s = 0;\n"
            "    for (int k = 0; k < blockDim.x; ++k) s += whole[k]; __syncthreads();"
        )
        row, start, step, total = self._draw.choice([
            ("blockIdx.x", "threadIdx.x", "blockDim.x", whole),
            ("blockIdx.x", "threadIdx.x", f"{block}", "s += threadIdx.x;"),
            ("blockIdx.x * blockDim.x + threadIdx.x", "0", "1", ""),
        ])  # fmt: skip
        loop = f"for (int i = {start}; i < n; i += {step})"
        at = self._draw.choice(["a[row * n + i]", "mine[i]"])
        second = self._draw.choice([
            f"{loop} most = max(most, {at} - s);", f"{loop} if (i % 2) most -= {at};", "",
            f"{loop} {{ int k = i; most += {at} * (k % 3); }}",
        ])  # fmt: skip
        own = start != "0"
        last = self._draw.choice([
            f"y[row * n + i] = {at} - s + most;", f"if ({at} > 0) y[row * n + i] = {at} * 2 - s;",
            f"TYPE v = {at}; y[row * n + i] = v * v + s;", f"a[row * n + i] = {at} * 2 - s;",
            f"a[row * n + i] += most - {at};",
        ])  # fmt: skip
        shared = f"__shared__ TYPE whole[{block}];" if own else f"if (row >= {rows}) return;"
        source = (
            f"__global__ void k(TYPE* a, TYPE* y, int n) {{\n    const int row = {row};\n"
            f"    {shared}\n    TYPE* mine = a + row * n;\n    TYPE s = 0, most = 1;\n"
            f"    {loop} s += {at};\n    {total}\n    {second}\n    {loop} {{ {last} }}\n}}"
        ).replace("TYPE", kind)
        arguments: Values = {
            "a": self._values(rows * n, kind, 3), "y": self._values(rows * n, kind), "n": n,
        }  # fmt: skip
        return Drawn(source, arguments, (rows if own else 1,), (block,))

    def _prefixes(self) -> Drawn:
        """A scan a row."""
        kind, n, m = self._kind(), self._draw.choice([1, 6, 40]), self._draw.choice([4, 33, 70])
        at = self._draw.choice(["i * m + k", "k * n + i"])
        step = self._draw.choice([
            f"s += a[{at}]; y[{at}] = s;", f"y[{at}] = s; s += a[{at}] * 2;",
            f"TYPE v = a[{at}]; y[{at}] = v - s; s = max(s, v);",
            f"TYPE v = y[{at}]; y[{at}] = s; s += v;",
            f"int seen = a[{at}] > 0; t += seen; y[{at}] = t * 2 + seen; s += seen;",
            f"s += a[{at}]; if (s > 2) continue; y[{at}] = s;",
            f"s = s / 2 + a[{at}]; y[{at}] = s;",
        ])  # fmt: skip
        header = self._draw.choice([
            "for (int k = 0; k < m; k++)", "for (int k = m - 1; k >= 0; --k)",
            "for (unsigned k = 0; k < (unsigned)m; k += 1)",
        ])  # fmt: skip
        body = f"TYPE s = c; int t = 0; {header} {{ {step} }} z[i] = s + t;"
        arguments: Values = {
            "a": self._values(n * m, kind), "y": self._values(n * m, kind),
            "z": self._values(n, kind), "c": self._draw.randint(0, 2), "n": n, "m": m,
        }  # fmt: skip
        signature = "const TYPE* a, TYPE* y, TYPE* z, int c, int n, int m"
        return self._made(kind, signature, self._place("n").replace("BODY", body), arguments, n)

    def functions(self) -> Drawn:
        """Loops in device functions, which take values, pointers and references."""
        kind, n, m = self._kind(), self._draw.choice([3, 40, 65]), self._draw.choice([1, 7, 32, 61])
        take = self._draw.choice(["p[k] * w[k]", "p[m - 1 - k]", "abs(p[k] - w[k])"])
        header = self._draw.choice([
            "for (int k = 0; k < m; k++)", "for (int k = m - 1; k >= 0; --k)",
            "for (int k = 0; k < m; k += 2)", "for (unsigned k = 0; k < (unsigned)m; ++k)",
        ])  # fmt: skip
        early = "if (s > 3) { s -= 1; return s; } return s * 2;"
        function = self._draw.choice([
            f"TYPE s = 0; {header} s += {take}; return s;",
            f"if (m < 8) return w[0]; TYPE s = 0; {header} s += {take}; {early}",
            "TYPE s = *w; while (m > 0) { s = max(s, *p++); m--; } return s;",
        ])  # fmt: skip
        loop = f"{header} {{ s += p[k]; if (p[k] > 2) ++i; }}"
        body = self._draw.choice([
            "y[i] = f(a + i * m, w, m);",
            "TYPE s = m; s += f(&a[i * m], w, m) * 2; y[i] = s;",
            "if (f(a + i * m, w, m) > 3) y[i] = 1; else y[i] = f(w, w, m) - f(a, w, m / 2 + 1);",
            "TYPE k = 0; for (int j = 0; j < 3; ++j) k += f(a + i * m, w, m - j % m); y[i] = k;",
            "TYPE p = 1; int s = 0; g(a + i * m, m, p, s); y[i] = p + s;",
            "int t = i; y[i] = 0; g(a + i * m, m, y[i], t); y[i] -= f(a, w, t % m + 1);",
        ])  # fmt: skip
        extra = (
            f"__device__ TYPE f(const TYPE* p, const TYPE* w, int m)\n{{\n    {function}\n}}\n"
            f"__device__ void g(const TYPE* p, int m, TYPE& s, int& i)\n{{\n    {loop}\n}}\n"
        )
        arguments: Values = {
            "a": self._values(n * m, kind), "w": self._values(m, kind),
            "y": self._values(n, kind), "n": n, "m": m,
        }  # fmt: skip
        signature = "const TYPE* a, const TYPE* w, TYPE* y, int n, int m"
        place = self._place("n").replace("BODY", body)
        return self._made(kind, signature, place, arguments, n, extra=extra)

    def qualified(self) -> Drawn:
        """References and `volatile` behind aliases, macros and templates; the words of both, and
        `&`, in comments."""
        kind, n, m = self._kind(), self._draw.choice([3, 40, 65]), self._draw.choice([1, 7, 32])
        head, reference = self._draw.choice([
            ("using Ref = int&;", "Ref"), ("typedef int& Ref;", "Ref"),
            ("#define REF(T) T &", "REF(int)"), ("", "int /* a & b */"), ("", "int&"),
            ("template <typename T> struct Of { using Ref = T&; };", "Of<int>::Ref"),
            ("typedef int whole; // &", "whole"), ("#define HANDED &", "int HANDED"),
        ])  # fmt: skip
        own, quiet = self._draw.choice([
            ("typedef volatile TYPE Seen;", "Seen"), ("#define SEEN volatile", "SEEN TYPE"),
            ("using Seen = TYPE;  // not volatile", "Seen"), ("", "volatile TYPE"), ("", "TYPE"),
        ])  # fmt: skip
        moved = self._draw.choice(["x += 2;", "x = (x + 3) % 5;", "if (x > 2) x -= 2;", "++x;"])
        result = self._draw.choice(["x", "x * 0 + 1"])
        call = self._draw.choice(["bump(j);", "s += bump(j);", "if (bump(j) > 1) s += 1;"])
        loop = self._draw.choice([
            f"for (int k = 0; k < m; ++k) {{ s += a[(j + k) % m]; {call} }}",
            f"{call} for (int k = 0; k < m; ++k) s += a[i * m + (k + j) % m];",
            f"for (int k = 0; k < m; ++k) {{ {call} y[i] = y[i] + a[j % m]; s = y[i]; }}",
            f"{call} s += a[(j + 1) % m]; for (int k = 0; k < m; k++) y[i] = y[i] + a[k];",
        ])  # fmt: skip
        body = (
            f"int j = (int)i % m;  // neither volatile nor &\n    TYPE s = 0;\n    {loop}\n"
            "    y[i] = y[i] + s + a[j % m];"
        )
        extra = (
            f"{head}\n{own}\n"
            f"__device__ int bump({reference} x)\n{{\n    {moved}\n    return {result};\n}}\n"
        )
        arguments: Values = {
            "a": self._values(n * m, kind), "y": self._values(n, kind), "n": n, "m": m,
        }  # fmt: skip
        signature = f"const TYPE* a, {quiet}* y, int n, int m"
        place = self._place("n").replace("BODY", body)
        return self._made(kind, signature, place, arguments, n, extra=extra)
