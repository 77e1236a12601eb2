"""The candidate's part of a preprocessed unit, and the rules on a text without macros."""

from __future__ import annotations

import pytest

from cudaops.cuda.ptx import Trait
from cudaops.program.candidate import candidate_text
from cudaops.program.hygiene import check_preprocessed
from cudaops.program.hygiene_facts import text_facts
from cudaops.program.hygiene_preprocessed import (
    CandidateText,
    NotTheCandidate,
    candidate_part,
    with_plain_words,
)
from cudaops.program.plans import make_rewrite

SOURCE = "// @launch k grid=(1) block=(1) args=()\n__global__ void k() {}\n"
INCLUDED = "unit.inc"
HEAD = '# 1 "unit.cpp"\nint author;\n# 1 "unit.inc" 1\nnamespace cudaops_candidate {\n'
BODY = '# 1 "candidate.cu"\n\n__global__ void k() {}\n\n'
TAIL = '}\n#pragma pop_macro("T")\n# 3 "unit.cpp" 2\nint entry;\n'


def text(code: str) -> CandidateText:
    return CandidateText(code, tuple(range(1, code.count("\n") + 2)))


def test_only_the_candidates_own_lines_are_taken() -> None:
    found = candidate_part(HEAD + BODY + TAIL, INCLUDED, SOURCE)
    assert found.text.split() == ["__global__", "void", "k()", "{}"]
    assert found.lines[found.text.split("\n").index("__global__ void k() {}")] == 2


def test_headers_that_stand_above_it_are_not_taken() -> None:
    header = '# 1 "/usr/include/math.h" 1 3 4\nextern double sin(double);\n# 2 "unit.inc" 2\n'
    found = candidate_part(HEAD + header + BODY + TAIL, INCLUDED, SOURCE)
    assert "sin" not in found.text


def test_tokens_of_a_systems_macro_stay_on_their_line() -> None:
    body = '# 1 "candidate.cu"\n\nvoid* k =\n# 2 "candidate.cu" 3 4\n0\n# 2 "candidate.cu"\n;\n\n'
    found = candidate_part(HEAD + body + TAIL, INCLUDED, SOURCE)
    kept = [(line, n) for line, n in zip(found.text.split("\n"), found.lines, strict=True) if line]
    assert kept == [("void* k =", 2), ("0", 2), (";", 2)]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (HEAD + TAIL, "not in what"),
        (HEAD + BODY + '# 3 "unit.cpp" 2\n', "does not end"),
        (HEAD + BODY + "} int x; {\n" + TAIL, "does not end"),
        (
            HEAD + BODY + '# 1 "other.h" 1\nint hidden;\n# 3 "candidate.cu" 2\n' + TAIL,
            "does not end",
        ),
        (HEAD + BODY + '# 90 "candidate.cu"\nint hidden;\n' + TAIL, "does not end"),
    ],
    ids=["missing", "cut off", "code behind the end", "text of another file", "beyond its lines"],
)
def test_a_text_that_leaves_its_place_is_not_read(output: str, why: str) -> None:
    with pytest.raises(NotTheCandidate, match=why):
        candidate_part(output, INCLUDED, SOURCE)


def test_words_are_defined_as_themselves_directly_before_the_body() -> None:
    rewrite = make_rewrite(SOURCE, proposer="test", title="t", why="w")
    shown = with_plain_words(candidate_text(rewrite))
    at = shown.index("namespace cudaops_candidate {")
    assert "#define __shared__ __shared__" in shown[:at]
    assert shown[at:] == candidate_text(rewrite)[candidate_text(rewrite).index("namespace") :]


REFUSED = {
    "assembly": ('__device__ void f() { asm("exit;"); }\n', "line 1: `asm`"),
    "host variable": ("int counter = 0;\n", "line 1: `counter`: a host variable"),
    "ours": ("__device__ void f() { cudaops::trace(); }\n", "reserved"),
    "pragma": ("\n#pragma weak f\n", "line 2: `#pragma weak`"),
    "left over": ("#include <thread>\n", "left after preprocessing"),
    "escape": ("}\nint x;\nnamespace y {\n", "closes nothing"),
    "pasted call": ('__device__ void f() { system("true"); }\n', "`system` is a host function"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_after_preprocessing(case: str) -> None:
    code, expected = REFUSED[case]
    found = check_preprocessed(text(code))
    assert any(expected in line for line in found.refused), found


def test_what_a_preprocessor_leaves_of_honest_code_is_clean() -> None:
    code = """
typedef float cudaops_row_s[32]; constexpr float top = (__builtin_inff ());
static const float most = (__builtin_inff ());
__global__ void __launch_bounds__(256) k(float* p) { extern __shared__ float s[];
#pragma GCC unroll 127
for (int i = 0; i < 4; ++i) s[i] = p[i];
    (static_cast<bool> (p) ? void (0)
     : __assert_fail ("p", "f", 1, __extension__ __PRETTY_FUNCTION__));
}
"""
    assert check_preprocessed(text(code)) == ((), ())


@pytest.mark.parametrize(
    "call", ["clock64()", "clock()", "__nanosleep(9)", "__nvvm_read_ptx_sreg_smid()"]
)
def test_asking_for_the_time_or_the_place_is_suspicious(call: str) -> None:
    code = f"__device__ int f() {{ {call}; return 1; }}\n"
    assert call.partition("(")[0] in check_preprocessed(text(code)).suspicious[0]
    author = frozenset({call.partition("(")[0]})
    assert check_preprocessed(text(code), author) == ((), ()), "the author does so too"


def test_a_variable_named_like_a_clock_is_none() -> None:
    code = (
        "struct S { int clock; };\n__device__ int f(S s, int clock) { return s.clock + clock; }\n"
    )
    assert check_preprocessed(text(code)) == ((), ())


FACTS = {
    "__device__ int count;": Trait("state", "count"),
    "__device__ void f() { static int seen; ++seen; }": Trait("state", "seen"),
    "__device__ void f(__half* p) { }": Trait("rounding", "fp16"),
    "__device__ void f(const half* p) { }": Trait("rounding", "fp16"),
    "__device__ void f() { half x; }": Trait("rounding", "fp16"),
    "__device__ __half f(__half a) { return __hadd(a, a); }": Trait("arithmetic", "fp16"),
    "__device__ float f(float x) { return __float2bfloat16(x); }": Trait("rounding", "bf16"),
    "__device__ void f() { wmma::fragment<wmma::precision::tf32> a; }": Trait("matrix", "tf32"),
    "__device__ long f() { return clock64(); }": Trait("clock", "clock64"),
    "__device__ void* f() { return malloc(4); }": Trait("heap", "malloc"),
    "__device__ float f(float x) { return __sinf(x); }": Trait("approximation", "__sinf"),
}


@pytest.mark.parametrize("code", FACTS)
def test_words_that_tell_what_code_does(code: str) -> None:
    assert FACTS[code] in text_facts([code])


@pytest.mark.parametrize(
    "code",
    [
        "__constant__ float weights[4]; static constexpr int n = 4;",
        "__device__ const float table[2] = {1, 2};",
        "__device__ void f(int i) { static const int t[2] = {1, 2}; static __shared__ int s[4]; }",
        "__global__ void f(float* half, int N) { (blockIdx.y ? half : half)[N * half[0]] = 1; }",
        "__device__ int f(int malloc) { return malloc; }",
    ],
)
def test_words_that_only_look_like_it(code: str) -> None:
    kinds = {t.kind for t in text_facts([code])}
    assert kinds <= {"arithmetic", "holds"}
    assert not any(t.what in ("fp16", "bf16", "tf32") for t in text_facts([code]))
