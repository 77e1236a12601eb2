"""Inline PTX is read in full or refused; what is read stands in C++ on the same lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.program.hygiene import check_source
from cudaops.program.lexing import apply_edits, byte_text, lex, plain_text
from cudaops.program.ptx_asm import AsmStatement, asm_edits, asm_statements
from cudaops.program.ptx_instructions import instructions, operation
from cudaops.program.ptx_text import AsmError
from tests.lanes import examples
from tests.program.conftest import CheckCpp

AROUND = """// @launch k grid=(1) block=(1) args=()
{above}
__device__ void f(float* x, int n, unsigned u, double d, unsigned long long l) {{
    float y = 0.0f, z = 0.0f;
    {body}
    x[0] = y + z;
}}
__global__ void k() {{ }}
"""
READ = [
    'asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x[n >> 1]));',
    'asm volatile("fma.rn.ftz.f32 %0, %1, %2, %0;" : "+f"(y) : "f"(z), "f"(-x[1]));',
    """asm("{\\n\\t.reg .pred p;\\n\\tsetp.ne.s32 p, %1, 0;\\n\\tmov.f32 %0, 0f3F800000;\\n\\t"
            "@!p ex2.approx.f32 %0, %0;\\n\\t}" : "=f"(y) : "r"(n));""",
    'asm("lop3.b32 %0, %1, %1, %1, 0x96;" : "=r"(u) : "r"(n));',
    'asm("lop3.b32 %0, %1, %1, %1, %2;" : "=r"(u) : "r"(n), "n"(0xE8));',
    'asm("mov.b64 {%0, %1}, %2;" : "=r"(u), "=r"(n) : "l"(l));',
    'asm("mov.b64 %0, {%1, %2};" : "=l"(l) : "r"(u), "r"(n));',
    """asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%0, %1}, [%2+8];"
            : "=f"(y), "=f"(z) : "l"(x) : "memory");""",
    'asm volatile("st.global.cs.v4.f32 [%0+-16], {%1, %1, %1, %1};" :: "l"(x), "f"(y) : "memory");',
    'asm("mul.f64 %0, %0, 1.5;" : "+d"(d));',
    'asm("shf.l.wrap.b32 %0, %1, %2, -1;" : "=&r"(u) : "r"(n), "r"(u));',
    'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(u), "l"(x));',
    'asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group %0;" :: "n"(1));',
    """asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
            : "=r"(u), "=r"(n) : "r"(n));""",
    """asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5},"
            " {%6}, {%0, %1, %2, %3};" : "+f"(y), "+f"(z), "+f"(x[0]), "+f"(x[1])
            : "r"(u), "r"(n), "r"(u));""",
    'asm("cvta.to.shared.u64 %0, %0;" : "+l"(l)); asm("redux.sync.add.s32 %0, %0, -1;" : "+r"(n));',
    'asm("{ .reg .pred p; shfl.sync.bfly.b32 %0, %0, 16, 31, -1; }" : "+r"(u));',
    'asm("fma.rn.f16x2 %0, %0, %0, %0;" : "+r"(u));',
    'if (n > 2) { asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(n) : "r"(n), "r"(u)); }',
]
REFUSED = {
    'asm("exit;");': "`exit` is not among",
    'asm volatile("bar.sync 0;");': "`bar.sync` is not among",
    'asm volatile("ld.global.f32 %0, [%1-4];" : "=f"(y) : "l"(x));': "where `]` must be",
    'asm volatile("ld.global.cs.L1::no_allocate.f32 %0, [%1];" : "=f"(y) : "l"(x));':
        "is not among",
    'asm volatile("membar.gl;");': "`membar.gl` is not among",
    'asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(u) : "l"(x));': "is not among",
    'asm volatile("st.shared.f32 [%0], %1;" :: "r"(u), "f"(y) : "memory");': "is not among",
    'asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(y) : "l"(x));': "is not among",
    'asm volatile("ld.global.v4.f64 {%0,%0,%0,%0}, [%1];" : "=d"(d) : "l"(x));': "is not among",
    'asm("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(u), "l"(x));': "is not volatile",
    'asm("cp.async.wait_all;");': "is not volatile",
    'asm volatile("cp.async.bulk.commit_group;");': "is not among",
    'asm volatile("nanosleep.u32 %0;" :: "r"(u));': "is not among",
    'asm("mov.u32 %0, %%clock;" : "=r"(u));': "a register of the machine",
    'asm("mov.u32 %0, %tid.x;" : "=r"(u));': "not read",
    'asm("{ L: bra L; }");': "not read",
    'asm("{ bra L; }");': "is not among",
    'asm("call (%0), f, (%1);" : "=f"(y) : "f"(z));': "is not among",
    'asm("add.f32 %0, %0, %1" : "+f"(y) : "f"(z));': "ends within an instruction",
    'asm("add.f32 %0, %0, %1; // %0\\n" : "+f"(y) : "f"(z));': "not read",
    'asm("add.f32 %0, %0, /* */ %1;" : "+f"(y) : "f"(z));': "not read",
    'asm("\\x61dd.f32 %0, %0, %1;" : "+f"(y) : "f"(z));': "the escape",
    'asm(R"(add.f32 %0, %0, %1;)" : "+f"(y) : "f"(z));': "with a prefix",
    'asm(TEXT : "+f"(y) : "f"(z));': "plain string literals",
    'asm("add.f32 %0, %0, %1;" TEXT : "+f"(y) : "f"(z));': "plain string literals",
    'asm("add.f32 %0, %0, %1;" : "+f"(y) : "f"(z), "f"(y));'.replace('"f"(y)', '"m"(y)'): '"m"',
    'asm("add.f32 %0, %0, %1;" : [a] "+f"(y) : "f"(z));': "plain string literals",
    'asm("add.f32 %0, %0, %2;" : "+f"(y) : "f"(z));': "no operand %2",
    'asm("add.f32 %1, %0, %0;" : "+f"(y) : "f"(z));': "writes its input",
    'asm("add.f32 %0, %0, %1;" : "=f"(y) : "f"(z));': "before it is set",
    'asm("{ .reg .f32 t; add.f32 %0, %0, t; }" : "+f"(y));': "before it is set",
    'asm("{ .reg .pred p; setp.eq.s32 p, %1, 0; @p mov.f32 %0, %2; }" : "=f"(y) : "r"(n), "f"(z));':
        "leaves operand %0 unset",
    'asm("add.f64 %0, %0, %1;" : "+f"(y) : "f"(z));': "32 bits where 64",
    'asm("add.f32 %0, %0, 1;" : "+f"(y));': "where a register or number of type .f32",
    'asm("shl.b32 %0, %0, 010;" : "+r"(u));': "an octal number",
    'asm("add.f32 %0, %0, %1;" : "+f"(y) : "f"(z) : "cc");': 'only "memory" can be',
    'asm("ld.global.f32 %0, [%1];" : "=f"(y) : "l"(x));': "is not volatile",
    'asm volatile("st.global.f32 [%0], %1;" :: "l"(x), "f"(y));': 'does not clobber "memory"',
    'asm("{ add.f32 %0, %0, %1;" : "+f"(y) : "f"(z));': "never closed",
    'asm(".reg .f32 t; mov.f32 %0, %1;" : "=f"(y) : "f"(z));': "outside of `{ }`",
    'asm("");': "no instruction",
    'asm goto("add.f32 %0, %0, %0;" : "+f"(y));': "only `asm(..)`",
    'if (n) asm("add.f32 %0, %0, %1;" : "+f"(y) : "f"(z));': "a statement of its own",
    'float g(float) asm("exit");': "a statement of its own",
    '__asm__("add.f32 %0, %0, %1;" : "+f"(y) : "f"(z));': "inline assembly",
    'asm("add.f32 %0, %0, %1;" : "+f"(TWO) : "f"(z));': "`TWO` in an operand",
    'asm("add.f32 %0, %0, %1;"\n#if 1\n : "+f"(y) : "f"(z)\n#endif\n);': "a preprocessor line",
}  # fmt: skip
ABOVE = '#define TEXT " exit;"\n#define TWO y), "+f"(z'


def text_of(body: str, above: str = "") -> str:
    return AROUND.format(above=above, body=body)


@pytest.mark.parametrize("body", READ)
def test_what_computes_is_read_and_runs(body: str, check_cpp: CheckCpp) -> None:
    text = text_of(body)
    assert check_source(text, allow_ptx=True) == ()
    assert "inline assembly" in check_source(text)[0]
    lexed = lex(byte_text(text))
    made = plain_text(apply_edits(lexed.text, asm_edits(lexed)))
    assert made.count("\n") == text.count("\n")
    assert "asm" not in made
    assert check_cpp({"k.cu": made}, "k.cu") == ""


@pytest.mark.parametrize("body", REFUSED)
def test_the_rest_is_refused_with_its_reason(body: str) -> None:
    found = check_source(text_of(body, ABOVE), allow_ptx=True)
    assert found
    assert REFUSED[body] in " ".join(found), found


@pytest.mark.parametrize(
    "above",
    ['asm("add.f32 %0, %0, %0;");', '#define A asm("exit;");', '__device__ float g() asm("exit");'],
)
def test_outside_of_a_body_there_is_none(above: str) -> None:
    assert check_source(text_of("", above), allow_ptx=True)


def test_what_stands_for_it_is_no_word_of_a_candidates() -> None:
    text = text_of("::cudaops_ptx::store<unsigned, 1>(l, {{u}});")
    assert "reserved" in check_source(text, allow_ptx=True)[0]


_WORDS = st.sampled_from(
    [*instructions(), "exit", "bra", "ld.global.f32", "%0", "%1", "%9", "%%clock", "{", "}", ";",
     ",", "[", "]", "@", "!", ".reg", ".pred", ".f32", "p", "t", "0f3F800000", "1", "-", "//", "/*",
     "\\n", "\\x3b", '"', "%0;", "%1;"]
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_WORDS, max_size=12))
def test_whatever_is_read_holds_allowed_instructions_alone(words: list[str]) -> None:
    body = f'asm volatile("{" ".join(words)}" : "+f"(y) : "f"(z));'
    for found in asm_statements(lex(byte_text(text_of(body)))):
        assert isinstance(found, AsmError | AsmStatement)
        if isinstance(found, AsmStatement):
            assert not {"exit", "bra", "%%clock", "//", "/*", "\\x3b"} & {*words}
            assert any(operation(word) for word in words)
