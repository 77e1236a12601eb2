"""What `--allow-libraries` lets a rewrite include, and what stays refused with it."""

from __future__ import annotations

import pytest

from cudaops.program.hygiene import check_source
from cudaops.program.hygiene_directives import is_library_header, library_headers
from cudaops.program.lexing import byte_text, lex

KERNEL = "__global__ void k(float* p) { p[threadIdx.x] = 1.0f; }\n"
LIBRARIES = [
    "cub/cub.cuh", "cub/block/block_reduce.cuh", "cub/warp/warp_scan.cuh", "cub/util_type.cuh",
    "cuda/std/array", "cuda/std/cmath", "cuda/barrier", "cuda/pipeline", "cuda/ptx",
    "cutlass/numeric_types.h", "cutlass/gemm/warp/mma_tensor_op.h", "cute/tensor.hpp",
]  # fmt: skip
NEVER = [
    "cublas_v2.h", "cudnn.h", "cufft.h", "curand_kernel.h", "cusparse.h", "nvrtc.h",
    "thrust/reduce.h", "cub/device/device_reduce.cuh", "cub/../../etc/passwd",
    "cuda/std/../../thread", "/usr/include/cuda/std/array", "cuda/std/", "iostream", "thread",
    "cuda.h", "cudaops/cuda.h", "cutlass/../thread.h", "cute/tensor.h",
]  # fmt: skip


@pytest.mark.parametrize("header", LIBRARIES)
def test_a_device_side_library_is_refused_unless_it_is_allowed(header: str) -> None:
    text = f"#include <{header}>\n{KERNEL}"
    assert "is not a device header" in check_source(text)[0]
    assert check_source(text, allow_libraries=True) == ()
    assert library_headers(lex(byte_text(text))) == (header,)


@pytest.mark.parametrize("header", NEVER)
def test_others_are_refused_all_the_same(header: str) -> None:
    assert not is_library_header(header)
    for text in (f"#include <{header}>\n{KERNEL}", f'#include "{header}"\n{KERNEL}'):
        for allowed in (False, True):
            assert "is not a device header" in check_source(text, allow_libraries=allowed)[0]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("namespace cuda { int x; }\n", "must not be extended"),
        ("#define CUDA_X asm\n__device__ void f() { asm(\"exit;\"); }\n", "inline assembly"),
        ("int main() { return 0; }\n", "`main`"),
        ("static cub::Mutex m;\n", "host variable"),
        ("#define cudaMalloc 0\n", "changes what a CUDA name means"),
        ("__global__ void j() { k<<<1, 1>>>(0); }\n", "`<<<` launches"),
    ],
)  # fmt: skip
def test_the_other_rules_hold_with_libraries(code: str, says: str) -> None:
    found = check_source("#include <cub/cub.cuh>\n" + code + KERNEL, allow_libraries=True)
    assert any(says in line for line in found), found
