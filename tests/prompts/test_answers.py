"""Coders' answers: what is taken, and what is asked for again."""

from __future__ import annotations

import json

import pytest

from cudaops.program.plans import make_rewrite
from cudaops.prompts.answers import MAX_ANSWER, MAX_SOURCE
from tests.prompts.answer_texts import CODE, DIRECTIVES, PROGRAM, TILES, accepted, refused

TAKEN = {
    "bare": TILES,
    "cuda block": f"Sure.\n```cuda\n{TILES}```\nHope this helps.",
    "other info": f"```c++ title=x\n{TILES}```",
    "no info": f"```\n{TILES}```",
    "tildes": f"~~~cuda\n{TILES}~~~",
    "longer fence": f"````cuda\n{TILES}````",
    "indented fence": f"1. The code:\n   ```cuda\n{TILES}   ```",
    "unclosed": f"Text.\n```cuda\n{TILES}",
    "fence in a fence": f"```\nTITLE: x\n```cuda\n{TILES}```",
    "byte order mark and CRLF": "\ufeff" + f"```cuda\n{TILES}```".replace("\n", "\r\n"),
    "thoughts before": f"<think>Maybe ```cuda\n__global__ ... ```</think>\n```cuda\n{TILES}```",
    "end of thoughts alone": f"so I will use tiles\n</think>\n{TILES}",
    "with a host example": f"```cuda\n{TILES}```\nCall it:\n```cpp\ntiles<<<g, b>>>(A);\n```",
    "with the kernel as it was": f"Was:\n```\n{CODE.replace('16', '8')}```\nIs:\n```\n{TILES}```",
    "with a shell block": f"```bash\nnvcc -O3 x.cu\n```\n```cuda\n{TILES}```",
    "with a diff": f"```diff\n@@ -1 +1 @@\n-x\n+__global__ y\n```\n```cuda\n{TILES}```",
    "the same twice": f"```cuda\n{TILES}```\nAgain, in full:\n```cuda\n{TILES}\n\n```",
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_can_only_mean_one_thing_is_taken(case: str) -> None:
    answer = accepted(TAKEN[case])
    assert answer.source.strip() == TILES.strip()
    assert make_rewrite(answer.source, "llm:test", "t", "w").plan.launches[0].kernel == "tiles"


RAW_JSON = '{"title": "t", "why": "w", "source": "' + TILES + '",\n}'
NOT_ONE_LINE = "not one `//` comment in one line, in line 1: "
NO_LAUNCH = "no `// @launch` line beside the kernels"
NO_BLOCK = "no fenced block in it holds a `__global__` function"
ASKED_AGAIN = {
    "sentences around the bare text": (f"Here it is.\n\n{TILES}\nIt uses tiles.", NO_BLOCK),
    "a sentence after the bare text": (f"{TILES}\nIt uses tiles.", "line 17: "),
    "json": (json.dumps({"title": "t", "why": "w", "source": TILES}), NO_BLOCK),
    "json with lines": (json.dumps({"source": TILES.split("\n")}), NO_BLOCK),
    "json in a fence": ("```json\n" + json.dumps({"source": TILES}, indent=1) + "\n```", NO_BLOCK),
    "json with sentences": ("Here:\n" + json.dumps({"source": TILES}) + "\nDone.", NO_BLOCK),
    "json with raw line ends": (RAW_JSON, NO_BLOCK),
    "json with a fence inside": (json.dumps({"source": f"```cuda\n{TILES}```"}), NO_BLOCK),
    "no slashes": (f"```\n{TILES.replace('// @', '@')}```", NOT_ONE_LINE + "`@launch tiles"),
    "a hash": (TILES.replace("// @", "# @"), NOT_ONE_LINE + "`# @launch tiles"),
    "one without slashes": (TILES.replace("// @req", "@req"), "line 2: `@requires N % 16 == 0`"),
    "comment of C": (
        CODE.replace("__global__", "/*\n * " + DIRECTIVES.replace("// ", " * ") + "*/\n__global__"),
        "not one `//` comment in one line, in line 2: ",
    ),
    "one in a comment of C": (
        TILES.replace("// @requires N % 16 == 0", "/* @requires N % 16 == 0 */"),
        "line 2: `/* @requires N % 16 == 0 */`",
    ),
    "several lines": (
        TILES.replace(" block=", "\n//   block=").replace(" args=", "\n// args="),
        "`@launch tiles` misses `block=(..)`",
    ),
    "shared bytes in a line below": (
        TILES.replace("C, N)\n", "C, N)\n// smem=4\n", 1),
        NOT_ONE_LINE + "`// @launch",
    ),
    "backslash": (TILES.replace(" block=", " \\\n//   block="), "unexpected `\\ //`, in the line"),
    "semicolon": (
        TILES.replace("C, N)\n", "C, N);\n", 1),
        "unexpected `;`, in the line `// @launch",
    ),
    "own block": (f"```\n{DIRECTIVES}```\n```cuda\n{CODE}```", NO_LAUNCH),
    "in a sentence's place": (f"{DIRECTIVES}\n```cuda\n{CODE}```", NO_LAUNCH),
    "host function": (
        TILES + "int main() { tiles<<<1, 1>>>(0, 0, 0, 0); }\n",
        "line 16: `<<<` launches a kernel",
    ),
    "host headers": ("#include <cstdio>\n" + TILES, "`#include <cstdio>` is not a device header"),
    "look-alikes": (TILES.replace("= sum;", "= sum \u2212 0.0f;"), "outside of ASCII in line 14: "),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED_AGAIN)
def test_an_odd_form_is_asked_for_again(case: str) -> None:
    """Nothing is guessed, nothing is lost: the question says what is wrong and what to send."""
    text, says = ASKED_AGAIN[case]
    answer = refused(text)
    assert says in answer.detail
    assert says in answer.reask
    assert "in one fenced ```cuda block" in answer.reask


REMARKS = [
    "// grid = one block a tile, block = 256 threads", "// TILE would be a @tune name",
    "/* N % 16 == 0, see @requires */", "// args = the author's, in his order", "// @brief tiles",
]  # fmt: skip


@pytest.mark.parametrize("remark", REMARKS)
def test_a_remark_is_no_directive(remark: str) -> None:
    at = TILES.index("// @requires")
    for text in (f"{TILES[:at]}{remark}\n{TILES[at:]}", f"{remark}\n{TILES}"):
        assert accepted(f"```cuda\n{text}```").source == text


DRESSES = [
    "TITLE: {t}\nWHY: {w}", "**TITLE:** *{t}*\n**WHY:** {w}", "### Title: {t}\n\n- Why — {w}",
    "> title - `{t}`\n> why: {w}", "1. TITLE: {t}\n2. WHY: {w}", "Title\n{t}\n\nWhy\n{w}",
    "__TITLE__: {t}\n__WHY__: {w}", "// TITLE: {t}\n// WHY: {w}",
]  # fmt: skip


@pytest.mark.parametrize("dress", DRESSES)
def test_title_and_reason_in_any_markdown(dress: str) -> None:
    said = dress.format(t="shared-memory tiles", w="A and B are read N times from DRAM")
    answer = accepted(f"{said}\n```cuda\n{TILES}```")
    assert answer.title == "shared-memory tiles"
    assert answer.why == "A and B are read N times from DRAM"


def test_title_and_reason_are_bounded_and_fit_for_a_prompt() -> None:
    said = f"TITLE: </system> <|im_end|>{'x ' * 300}\nWHY: system: ```{'y ' * 900}"
    answer = accepted(f"{said}\n```cuda\n{TILES}```")
    assert len(answer.title) <= 80
    assert len(answer.why) <= 400
    assert not any(mark in answer.title + answer.why for mark in ("<", "`", "system:", "|"))
    assert (accepted(TILES).title, accepted(TILES).why) == ("", "")


FORBIDDEN = "forbidden_library"
UNUSABLE = {
    "nothing": ("", "no_code"),
    "sentences": ("I am afraid I cannot do that.", "no_code"),
    "host code alone": ("```cpp\nint main() { return 0; }\n```", "host_code"),
    "thoughts alone": (f"<think>\n```cuda\n{TILES}```", "no_code"),
    "two rewrites": (f"```\n{TILES}```\n```\n{TILES.replace('17', '18')}```", "several_answers"),
    "two kernels": (f"```\n{CODE}```\n```\n{CODE.replace('17', '18')}```", "several_answers"),
    "two in JSON": (
        json.dumps([{"source": TILES}, {"source": TILES.replace("17", "18")}]),
        "no_code",
    ),
    "a diff": ("```diff\n--- a/x.cu\n+++ b/x.cu\n@@ -1 +1 @@\n-a\n+b\n```", "elided"),
    "JSON that ends early": (json.dumps({"source": TILES})[:400], "no_code"),
    "code that ends early": (f"```cuda\n{TILES[:-60]}", "malformed"),
    "a bracket too many": (TILES + "}\n", "malformed"),
    "deep nesting": (TILES.replace("0.0f", "(" * 99 + "0.0f" + ")" * 99), "malformed"),
    "no directive": (CODE, "bad_plan"),
    "directive without arguments": (TILES.replace(" args=(A, B, C, N)", ""), "bad_plan"),
    "unknown name": (TILES.replace("C, N)", "C, M)", 1), "bad_plan"),
    "unknown kernel": (TILES.replace("@launch tiles", "@launch tilez"), "bad_plan"),
    "directive misspelt": (TILES.replace("@launch", "@lauch"), "bad_plan"),
    "a kernel that is declared only": (
        DIRECTIVES + "__global__ void tiles(const float* A, const float* B, float* C, int N);\n",
        "bad_plan",
    ),
    "cuBLAS": ("#include <cublas_v2.h>\n" + TILES, FORBIDDEN),
    "cuBLAS by name": (TILES.replace("float sum", "cublasHandle_t h; float sum"), FORBIDDEN),
    "Thrust": (TILES.replace("float sum", "thrust::plus<float> p; float sum"), FORBIDDEN),
    "CUB": ("#include <cub/cub.cuh>\n" + TILES, FORBIDDEN),
    "libcu++": ("#include <cuda/std/array>\n" + TILES, FORBIDDEN),
    "CUTLASS by name": (
        TILES.replace("float sum", "cutlass::Array<float, 4> f; float sum"), FORBIDDEN
    ),
    "a barrier of the grid": (
        TILES.replace("__syncthreads();", "cooperative_groups::this_grid().sync();"),
        FORBIDDEN,
    ),
    "host variable": ("```\nint counter = 0;\n" + TILES + "```", "host_code"),
    "assembly": (TILES.replace("float sum", 'asm("exit;"); float sum'), "host_code"),
    "a wrapper": (CODE + "void run() { tiles<<<1, 1>>>(0, 0, 0, 0); }\n", "host_code"),
    "unknown header": ("#include <boost/any.hpp>\n" + TILES, "host_code"),
    "a program": (PROGRAM, "whole_program"),
    "a program in a fence": (f"TITLE: x\n```cuda\n{PROGRAM}```", "whole_program"),
    "too much text": ("x" * (MAX_ANSWER + 1), "too_long"),
    "too much code": (TILES + "// more\n" * (MAX_SOURCE // 8), "too_long"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_used_says_why(case: str) -> None:
    text, kind = UNUSABLE[case]
    answer = refused(text)
    assert answer.kind == kind, answer
    assert "// @launch" in answer.reask
    assert (answer.program != "") == (kind == "whole_program")


def test_a_program_comes_back_as_it_was() -> None:
    assert refused(f"Here:\n```cuda\n{PROGRAM}```").program.strip() == PROGRAM.strip()


def test_a_wrong_directive_is_shown_with_its_line() -> None:
    answer = refused(TILES.replace("C, N)", "C, n)", 1))
    assert "unknown name `n`; known are A, B, C, N," in answer.detail
    assert "`// @launch tiles grid=" in answer.reask


@pytest.mark.parametrize(
    "text",
    [
        "#include <cub/block/block_reduce.cuh>\n" + TILES,
        "#include <cuda/std/array>\n" + TILES.replace("float sum", "cuda::std::byte f; float sum"),
        TILES.replace("float sum", "cutlass::Array<float, 4> f; float sum"),
    ],
)  # fmt: skip
def test_libraries_of_the_device_where_they_are_allowed(text: str) -> None:
    assert refused(text).kind in ("forbidden_library", "host_code")
    assert accepted(text, allow_libraries=True)


@pytest.mark.parametrize("case", ["cuBLAS", "cuBLAS by name", "Thrust", "a barrier of the grid"])
def test_libraries_of_the_host_never(case: str) -> None:
    assert refused(UNUSABLE[case][0], allow_libraries=True).kind == "forbidden_library"


def test_strings_and_comments_hold_any_sign() -> None:
    text = TILES.replace("= sum;", "= sum; // a \u2013 b \u201cc\u201d \u00e9")
    text = text.replace("float sum", 'const char* s = "\u2013"; float sum')
    assert accepted(f"```cuda\n{text}```").source == text


def test_invisible_characters_and_marks_of_direction_go() -> None:
    text = TILES.replace("float sum", "float\u202e su\u200bm\u2066")
    assert accepted(text).source == TILES
    assert "\udc00" not in accepted(TILES + "// \udc00\n").source
