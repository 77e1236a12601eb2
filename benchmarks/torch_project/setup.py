"""`python3 setup.py build_ext --inplace`: a PyTorch extension whose kernel is plain CUDA."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="row_softmax",
    ext_modules=[CUDAExtension("row_softmax", ["binding.cpp", "softmax.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
