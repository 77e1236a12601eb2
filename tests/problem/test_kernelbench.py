"""`model_new.py`: what KernelBench would load, compiled against stand-ins of torch's headers and
run against a stand-in of torch that notes what it is asked."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.problem.host_program import problem_program
from cudaops.problem.kernelbench import model_new
from tests.problem.problems import drawn, written

SCRIPT = '''
"""A Model, and what draws for it."""
from __future__ import annotations
import numpy as np

class Model:
    """The Model."""

    def __init__(self, width, eps):
        self.weight = np.random.rand(width).astype(np.float16)
        self.eps = eps
        assert type(self) is Model or isinstance(self, Model)

    def forward(self, x, by):
        return x * self.weight * by + self.eps, x.sum(axis=1)

def get_inputs():
    return [np.random.rand(4, 8).astype(np.float16), 3]

def get_init_inputs():
    return [8, 0.5]
'''
SOURCE = """\
#include "parts.cuh"
// @launch scaled grid=(x_size0) block=(width) args=(x, weight, out0, by, eps)
// @launch sums grid=(1) block=(x_size0) args=(x, out1, x_size1)
__global__ void scaled(const __half* x, const __half* weight, __half* out, int by, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = twice(x[i] * weight[threadIdx.x]) * __float2half(0.5f * by) + __float2half(eps);
}
__global__ void sums(__half* x, __half* out, int n) {
    __half sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[threadIdx.x * n + i];
    out[threadIdx.x] = sum;
}
"""
HEADER = """\
#pragma once
#include <cuda_fp16.h>
__device__ inline __half twice(__half x) { return x + x; }
"""
TORCH = '''
"""Notes what an extension is made of and called with."""
import json, sys, types
import numpy

float16 = numpy.float16

class Tensor:
    def __init__(self, array):
        self.array, self.shape, self.device = array, array.shape, "gpu7"
    def detach(self):
        return self
    def to(self, device, dtype):
        return Tensor(self.array.astype(dtype))
    def contiguous(self):
        return self

def is_tensor(value):
    return isinstance(value, Tensor)

def as_tensor(value):
    return value if is_tensor(value) else Tensor(numpy.asarray(value))

def empty(shape, dtype, device):
    assert device == "gpu7"
    return Tensor(numpy.zeros(shape, dtype))

def device(name):
    return name

class Extension:
    def cudaops_forward(self, *given):
        told = [list(x.shape) if is_tensor(x) else x for x in given]
        with open("called.json", "w") as file:
            json.dump(told, file)
        given[2].array[:] = 7

def load_inline(**given):
    with open("built.json", "w") as file:
        json.dump(given, file)
    return Extension()

utils = types.ModuleType("torch.utils")
utils.cpp_extension = types.ModuleType("torch.utils.cpp_extension")
utils.cpp_extension.load_inline = load_inline
sys.modules["torch.utils"] = utils
sys.modules["torch.utils.cpp_extension"] = utils.cpp_extension
'''
USES = """
import numpy, torch
context = {}
exec(open("problem.py").read(), context)
Model, inputs = context["Model"], context["get_inputs"]()
exec(open("model_new.py").read(), context)
new = context["ModelNew"](*context["get_init_inputs"]())
assert Model is not context["ModelReference"] and isinstance(new, context["ModelReference"])
result = new.forward(torch.Tensor(inputs[0].astype(numpy.float32)), inputs[1])
assert type(result) is tuple and [r.shape for r in result] == [(4, 8), (4,)]
assert result[0].array.dtype == numpy.float16 and (result[0].array == 7).all()
try:
    new.forward(torch.Tensor(inputs[0][:2]), 3)
except ValueError as error:
    print(error)
"""
EXTENSION_H = """
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cuda_runtime.h>
namespace torch {
struct Device {};
struct Tensor {
    void* data_ptr() const { return nullptr; }
    Device device() const { return {}; }
};
}
#define TORCH_CHECK(holds, ...) do { if (!(holds)) std::abort(); } while (0)
"""
GUARD_H = """
#pragma once
namespace c10 { namespace cuda { struct CUDAGuard { explicit CUDAGuard(torch::Device) {} }; } }
"""
STREAM_H = """
#pragma once
namespace c10 { namespace cuda {
struct CUDAStream { operator cudaStream_t() const { return nullptr; } };
inline CUDAStream getCurrentCUDAStream() { return {}; }
} }
"""


@pytest.fixture(scope="module", params=["", '// """ ends a literal of Python\n'])
def text(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    folder = tmp_path_factory.mktemp("model")
    (draw,) = drawn(folder, SCRIPT)
    _, source = written(folder / "problem", SCRIPT, SOURCE)
    (source.parent / "parts.cuh").write_text(HEADER + request.param, "utf-8")
    return model_new(problem_program(source, draw.problem))


def cuda_of(text: str) -> str:
    """The source that it hands to the compiler."""
    nodes = [n for n in ast.parse(text).body if isinstance(n, ast.Assign)]
    (value,) = (ast.literal_eval(n.value) for n in nodes if ast.unparse(n.targets[0]) == "_CUDA")
    return str(value)


def test_it_stands_beside_the_problem_in_one_namespace(text: str, tmp_path: Path) -> None:
    files = {"problem.py": SCRIPT, "model_new.py": text, "torch.py": TORCH, "uses.py": USES}
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    command = [sys.executable, "uses.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "the kernels are for shape (4, 8), not (2, 8)\n"
    called = json.loads((tmp_path / "called.json").read_text("utf-8"))
    assert called == [[4, 8], [8], [4, 8], [4], 3, 8, 0.5]
    built = json.loads((tmp_path / "built.json").read_text("utf-8"))
    assert built["functions"] == ["cudaops_forward"]
    assert built["cpp_sources"].rstrip(";") in built["cuda_sources"]
    assert "-U__CUDA_NO_HALF_OPERATORS__" in built["extra_cuda_cflags"]


def test_it_keeps_the_authors_words(text: str) -> None:
    assert '"""A Model, and what draws for it."""' in text
    assert "assert type(self) is ModelReference or isinstance(self, ModelReference)" in text
    assert "def get_inputs" not in text
    assert '"parts.cuh"' not in cuda_of(text)


@pytest.mark.nvcc
def test_nvcc_takes_it(text: str, tmp_path: Path) -> None:
    """With the flags by which torch takes the operators of `__half` away."""
    headers = {
        "torch/extension.h": EXTENSION_H,
        "c10/cuda/CUDAGuard.h": GUARD_H,
        "c10/cuda/CUDAStream.h": STREAM_H,
        "model.cu": cuda_of(text),
    }
    for name, content in headers.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, "utf-8")
    flags = [
        "-D__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-Werror",
        "all-warnings",
    ]
    command = [str(find_nvcc()), "-arch=sm_90", "-I.", *flags, "-c", "model.cu", "-o", "model.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
