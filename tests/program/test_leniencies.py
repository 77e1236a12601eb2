"""What nvcc takes and g++ does not, as g++ is given it."""

from __future__ import annotations

import pytest

from cudaops.program.dialect import lenient_edits
from cudaops.program.lexing import apply_edits, byte_text
from cudaops.program.outline import outline


def fixed(text: str) -> str:
    facts = outline(byte_text(text))
    return apply_edits(facts.lexed.text, list(lenient_edits(facts)))


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("int main() { if (1) { return; } }", "int main() { if (1) { return 0; } }"),
        ("int main() { for (;;) return; }", "int main() { for (;;) return 0; }"),
        ("int main() { try { return; } catch (int) { return; } }",
         "int main() { try { return 0; } catch (int) { return 0; } }"),
        ("int f() {\n g(\\ // more\n1); }", "int f() {\n g(  // more\n1); }"),
        ("int f() { g(\\ /* a */ \n1); }", "int f() { g(  /* a */ \n1); }"),
        ("__global__ void k() { p = new T({ 1 }); }", "__global__ void k() { p = new T{{ 1 }}; }"),
        ("__device__ T *f() { return new a::T({g(1, 2)}); }",
         "__device__ T *f() { return new a::T{{g(1, 2)}}; }"),
    ],
)  # fmt: skip
def test_it_is_mended(written: str, given: str) -> None:
    assert fixed(written) == given


@pytest.mark.parametrize(
    "text",
    [
        "int main() { auto f = [](int) { return; }; f(1); }",
        "int main() { auto f = [&] { return; }; f(); }",
        "int main() { auto f = [](int) -> void { if (1) { return; } }; f(1); }",
        "int main() { struct S { void f() { return; } } s; s.f(); }",
        "void main() { return; }",
        "void f() { return; }",
        "namespace a { int main() { return; } }",
        "int f() { g(1, \\\n 2); }",
        "__global__ void k() { p = new T({1, 2}); }",
        "__global__ void k() { p = new T({1}, 2); }",
        "__global__ void k() { p = new T(1); q = new int[2]; r = new (p) T({1}); }",
        "T *f() { return new T({1}); }",
        "int f() { g(a \\ b); }",
        "#define X 1 \\\n + 2\nint f() { return X; }",
        'const char *s = "\\ // text";',
    ],
)
def test_it_stays(text: str) -> None:
    assert fixed(text) == text
