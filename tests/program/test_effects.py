"""What a kernel's statements may change, and which functions only give a value."""

from __future__ import annotations

from cudaops.domain.program import SourceFile
from cudaops.program import syntax as s
from cudaops.program.analysis.effects import (
    changed_variables,
    has_early_exit,
    may_write,
    pure_functions,
    written_names,
)
from cudaops.program.front_end import kernel_form
from cudaops.program.parse import parse_files

HEAD = """
using Ref = int&;
struct C {
    int at;
    __device__ int& place() { return at; }
    __device__ int look() const { return at; }
    __device__ void move() { ++at; }
};
__device__ void bump(Ref x) { x += 1; }
__device__ void fill(float* p) { p[0] = 1.0f; }
__device__ float sum(const float& x, float* q) { return x + q[0]; }
"""


def form_of(body: str) -> s.KernelForm:
    text = f"{HEAD}__global__ void k(const float* a, float* y, int n)\n{{\n{body}\n}}\n"
    program = parse_files("main", (SourceFile(path="main.cu", text=text + "int main() {}\n"),))
    return kernel_form(program, program.kernels[0])


def changed(body: str) -> set[str]:
    form = form_of(f"int i = 0, j = 1; float own[4]; C c;\n{body}")
    return changed_variables(form.kernel.body, form, arrays=True)


def test_what_changes_a_variable() -> None:
    assert changed("j = 2;") == {"j"}
    assert changed("bump(j);") == {"j"}
    assert changed("bump(i > 0 ? i : j);") == {"i", "j"}
    assert changed("c.move();") == {"c"}
    assert changed("c.place() = 4;") == {"c"}
    assert changed("i = c.look();") == {"i"}
    assert changed("fill(own);") == {"own"}
    assert changed("own[0] = sum(a[i], own);") == {"own"}
    assert changed("y[i] = 1.0f; atomicAdd(y + i, 1.0f); *y = min(i, j);") == set()
    assert changed('asm("mov.u32 %0, %1;" : "=r"(j) : "r"(i));') == {"j"}


def test_names_that_memory_is_written_through() -> None:
    form = form_of("y[n] = a[0]; bump(n);")
    assert written_names(form.kernel.body, form) == {"y", "n"}
    assert may_write(form.kernel.body, {"n"}, form)
    assert not may_write(form.kernel.body, {"a"}, form)


def test_functions_that_only_give_a_value() -> None:
    form = form_of("C c; int j = c.look(); bump(j); c.move(); fill(y); y[0] = sum(a[0], y);")
    assert pure_functions(form) == {"C::look", "sum"}


def test_what_leads_out_of_statements() -> None:
    form = form_of("for (int i = 0; i < n; ++i) { if (i > 2) continue; if (i > 3) break; }")
    (loop,) = form.kernel.body
    assert isinstance(loop, s.For)
    assert not has_early_exit((loop,))
    assert has_early_exit(loop.body, "continue")
    assert not has_early_exit(loop.body, "break continue")
