"""What may not stand in a rewrite, each with the line it stands on; and what may."""

from __future__ import annotations

import pytest

from cudaops.program.hygiene import check_source
from cudaops.program.hygiene_ptx import authors_ptx
from tests.executors.cuda.gpu_builds import program_of

KERNEL = "__global__ void k(float* p) { p[threadIdx.x] = 1.0f; }\n"

CLEAN = """#include <cuda_runtime.h>
#include <cuda_fp16.h>
// @tune TILE = 16, 32
// @launch k<TILE> grid=(1) block=(TILE) args=(p)
#define PAD (TILE + 1)
#define SWAP(a, b) do { float t = a; a = b; b = t; } while (0)
constexpr int ROWS = 8;
static const float table[2] = {1.0f, 2.0f};
__constant__ float weights[4];
__device__ int counter = 0;
struct Pair { float a, b; };
__constant__ Pair pairs[PAD];
struct Tile { float x[4]; __device__ Tile() { for (int i = 0; i < 4; ++i) x[i] = 0.0f; } };
using index_t = long long;
__device__ float forward(float x);
template <typename T> __device__ __forceinline__ T twice(T x) { return x + x; }
__host__ __device__ inline int both(int x) { return x; }
constexpr int up(int a, int b) { return (a + b - 1) / b; }
__device__ float forward(float x) { return twice(x); }
template <int T> __global__ void __launch_bounds__(T) k(float* p) {
    extern __shared__ float s[];
    static __shared__ float fixed[PAD];
    #pragma unroll 4
    for (int i = 0; i < up(T, 4); ++i) { s[i] = forward(table[i % 2]); }
    if (T % 2 == 0) { _Pragma("unroll") for (int i = 0; i < 4; ++i) p[i] = s[i]; }
}
#if __CUDA_ARCH__ >= 800
__device__ int recent() { return 1; }
#else
__device__ int recent() { return 0; }
#endif
namespace inner { __device__ int two() { return 2; } }
"""

REFUSED = {
    "main": ("int main() { return 0; }\n", "line 1: `main`"),
    "host function": ("\nvoid helper(float* p) { }\n", "line 2: host function `helper`"),
    "template host": ("template <class T> T f(T x) { return x; }\n", "host function `f`"),
    "lambda global": ("auto f = [](int x) { return x; };\n", "host variable"),
    "host variable": ("int counter = 0;\n", "host variable"),
    "thread local": ("thread_local int x;\n", "host variable"),
    "const with a call": ("const int x = run();\n", "initialiser calls"),
    "device with a call": ("__device__ int x = run();\n", "initialiser calls"),
    "device with a lambda": ("__device__ int x = [] { return 1; }();\n", "initialiser calls"),
    "constructed device object": ("struct E { E() { } };\n__device__ E e;\n", "line 2: `e`"),
    "default member": ("struct E { int x = run(); };\n__device__ E e;\n", "line 2: `e`"),
    "object with its type": ("struct E { int x; } e;\n", "together with its type"),
    "aliased object": ("struct E { E() { } };\nusing Q = E;\n__device__ Q q;\n", "line 3: `q`"),
    "member object": ("struct E { E(); };\nstruct F { E e; };\n__device__ F f;\n", "line 3: `f`"),
    "heir": ("struct E { E(); };\nstruct F : E { };\n__device__ F f;\n", "line 3: `f`"),
    "call in a macro": ("#define A run()\n#define B A\n__device__ int x = B;\n", "line 3: `x`"),
    "global in a macro": ("#define A int x = run();\nA ", "`A` declares something at file scope"),
    "constructor in a macro": ("#define A E() { }\nstruct E { A };\n__device__ E e;\n", "`e`"),
    "constructor": ("__attribute__((constructor)) __device__ void f() { }\n", "global constructor"),
    "gnu constructor": ("[[gnu::constructor]] __device__ void f() { }\n", "global constructor"),
    "clusters of a block size": (
        "__global__ void __block_size__((64, 1, 1), (2, 1, 1)) k(float* p) { }\n",
        "line 1: `__block_size__`: say the block in `@launch`",
    ),
    "clusters as the compiler's attribute": (
        "__global__ void __attribute__((cluster_dims(2, 1, 1))) k(float* p) { }\n",
        "attribute `cluster_dims` is not allowed",
    ),
    "asm": ('__device__ void f() { asm("exit;"); }\n', "inline assembly"),
    "include": ("#include <thread>\n", "`#include <thread>`"),
    "quoted include": ('#include "/etc/passwd"\n', "is not a device header"),
    "computed include": ("#include HEADER\n", "is not a device header"),
    "define cuda": ("#define cudaMemcpy(...) 0\n", "changes what a CUDA name means"),
    "define cu": ("#define cuLaunchKernel 0\n", "changes what a CUDA name means"),
    "undef": ("#undef __syncthreads\n", "changes what a CUDA name means"),
    "define a keyword": ("#define double float\n", "changes what a CUDA name means"),
    "pasting": ("#define GLUE(a, b) a##b\n", "pastes tokens"),
    "pasting in digraphs": ("#define GLUE(a, b) a%:%:b\n", "write the plain token"),
    "brace macro": ("#define END }\n", "opens or closes a brace"),
    "launch": ("__global__ void j() { k<<<1, 1>>>(0); }\n", "`<<<` launches"),
    "shim": ("__device__ void f() { cudaops::trace(); }\n", "reserved"),
    "shim macro": ("__device__ void f() { CUDAOPS_DYNAMIC_SHARED(int, x); }\n", "reserved"),
    "namespace escape": ("}\nint x;\nnamespace y {\n", "line 1: `}` closes nothing"),
    "open brace": ("namespace y {\n", "never closed"),
    "other namespace": ("namespace cg = cooperative_groups::detail;\n", "a host variable at file"),
    "std": ("namespace std { struct x; }\n", "must not be extended"),
    "block linkage": ('extern "C" { __device__ void f() {} }\n', 'extern "C"'),
    "system": ('__device__ void f() { system("true"); }\n', "`system` is a host function"),
    "global system": ('__device__ void f() { ::system("true"); }\n', "`system` is a host function"),
    "spliced word": ("[[gnu::con\\\nstructor]] __device__ void f() { }\n", "inside of a word"),
    "universal name": ("__device__ void f() { \\u0061sm(0); }\n", "backslash"),
    "open comment": ("/* no end\n", "does not end"),
    "trailing splice": ("// end \\", "line continuation"),
    "pragma": ('#pragma push_macro("x")\n', "only unroll is"),
    "pragma operator": ('_Pragma("weak x")\n', "only unroll is"),
    "line": ('#line 1 "main.cu"\n', "`#line`"),
    "open if": ("#if 1\n", "without `#endif`"),
    "two heads": ("#ifdef A\n__device__ void f() {\n#else\nint f() {\n#endif\n}\n", "branches"),
    "host declaration": ("int puts(const char*);\n", "host code at file scope"),
    "macro call": ("RUN(x);\n", "host code at file scope"),
    "instantiation": ("template void f<int>(int);\n", "instantiation of a host function"),
    "line marker": ('# 1 "main.cu"\n', "a line marker"),
    "embedded": ('#embed "answers.bin"\n', "`#embed`"),
    "asks for files": ('#if __has_include("answers.bin")\n#endif\n', "asks which files exist"),
    "asks for the checker": ("#ifdef __SANITIZE_THREAD__\n#endif\n", "whether it is being checked"),
    "asks for the time": ("__device__ const char* t() { return __TIME__; }\n", "when it is built"),
    "section": ('__attribute__((section(".init"))) __device__ void f() { }\n', "`section`"),
    "other options": ('__attribute__((optimize("Ofast"))) __device__ void f() { }\n', "`optimize`"),
    "weak": ("[[gnu::weak]] __device__ void f() { }\n", "attribute `weak`"),
    "stack": ("__device__ void* f() { return __builtin_return_address(0); }\n", "host compiler's"),
    "time stamp counter": ("__device__ int f() { return __builtin_ia32_rdtsc(); }\n", "compiler's"),
    "c library": ('__device__ void f() { std::remove("x"); }\n', "host's C library"),
    "global c library": ('__device__ void f() { ::puts("x"); }\n', "host's C library"),
}  # fmt: skip

NEAR_MISSES = {
    "empty directive": "#\n",
    "known attributes": "__attribute__((aligned(16), unused)) __device__ int a[4];\n",
    "standard attribute": "__device__ int f([[maybe_unused]] int x) { return 1; }\n",
    "index of an index": "__device__ int f(int* a, int* b) { return a[b[0]]; }\n",
    "own function": "__device__ void remove(int) { }\n__device__ void g() { remove(1); }\n",
    "member": "struct S { __device__ void puts(int) { } };\n__device__ void g(S s) { s.puts(1);}\n",
    "scoped": "namespace n { __device__ void puts(int) { } }\n__device__ void g() { n::puts(1);}\n",
    "maths of std": "__device__ float f(float x) { return std::sqrt(x); }\n",
    "builtin without a stack": "__device__ int f(int x) { return __builtin_expect(x, 1); }\n",
    "constants like calls": "__device__ const float x = __int_as_float(0x7f800000);\n",
    "short for groups": "namespace cg = cooperative_groups;\n",
    "hidden for ever": "#if 0\nasm(1) __has_include\n#endif\n",
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_what_only_looks_like_it_is_clean(case: str) -> None:
    assert check_source(NEAR_MISSES[case] + KERNEL) == ()


def test_device_code_is_clean() -> None:
    assert check_source(CLEAN) == ()


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, expected = REFUSED[case]
    problems = (
        check_source(text + KERNEL) if not text.endswith("\\") else check_source(KERNEL + text)
    )
    assert any(expected in p for p in problems), problems
    assert all(p.startswith("line ") and "\n" not in p for p in problems)


def test_words_in_strings_and_comments_are_no_code() -> None:
    text = '// int main() { asm("x"); }\n__device__ const char* text() { return "<<<asm>>>"; }\n'
    assert check_source(text + KERNEL) == ()


def test_ptx_is_the_authors_where_it_stands_in_device_code() -> None:
    asm = 'asm volatile("prefetch.global.L2 [%0];" :: "l"(p));'
    device = f"__device__ void ahead(const float* p) {{ {asm} }}\n"
    authors = authors_ptx(program_of(device + KERNEL))
    assert authors.spellings
    for other in (KERNEL, f"// {device}" + KERNEL, 'void host() { asm("nop"); }\n' + KERNEL):
        assert not authors_ptx(program_of(other)).spellings


ATOM = (
    'asm volatile("atom.global.add.u32 "\n'
    '  "%0, [%1], %2;" : "=&r"(old) : "l"(at), "r"(by) : "memory");'
)
"""A rewrite's own words for it are `atomicAdd`."""
HELD = "__device__ void add(unsigned old, unsigned* at, unsigned by) {{ {} }}\n"
ELSEWHERE = {
    "in another function": HELD.replace("add", "more").format(ATOM.replace("(by)", "(2 * by)")),
    "in a macro": f"#define ADD(old, at, by) {ATOM}\n".replace("\n  ", "\\\n  "),
    "on one line": HELD.format(ATOM.replace('"\n  "', "").replace("\n", "")),
}
CHANGED = {
    "another instruction": HELD.format(ATOM.replace("add", "max")),
    "another operand": HELD.format(ATOM.replace("[%1]", "[%1+4]")),
    "another constraint": HELD.format(ATOM.replace('"=&r"', '"+r"')),
    "a register that may be one it reads": HELD.format(ATOM.replace("=&r", "=r")),
    "not volatile": HELD.format(ATOM.replace(" volatile", "")),
    "another clobber": HELD.format(ATOM.replace(' : "memory"', "")),
    "more in its text": HELD.format(ATOM.replace('%2;"', '%2; exit;"')),
    "of a function of the host": HELD.format(ATOM).replace("__device__ ", ""),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_the_authors_statements_may_stand_where_they_are_wanted(case: str) -> None:
    authors = authors_ptx(program_of(HELD.format(ATOM) + KERNEL))
    assert check_source(ELSEWHERE[case] + KERNEL, allow_ptx=True, authors=authors) == ()
    assert check_source(ELSEWHERE[case] + KERNEL, allow_ptx=True)


@pytest.mark.parametrize("case", CHANGED)
def test_the_authors_statements_stand_as_they_are_spelled(case: str) -> None:
    authors = authors_ptx(program_of(HELD.format(ATOM) + KERNEL))
    assert check_source(CHANGED[case] + KERNEL, allow_ptx=True, authors=authors)
