"""`python3 loaded.py N`: a matrix transpose whose CUDA stands beside it (`load`), a template."""

import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

here = Path(__file__).parent
module = load(name="swapped", sources=[str(here / "loaded.cpp"), str(here / "loaded.cu")])

n = int(sys.argv[1])
x = torch.randn(n, n, generator=torch.Generator().manual_seed(7)).cuda()
for _ in range(3):
    y = module.transpose(x)
torch.cuda.synchronize()
weights = torch.arange(n, device="cuda", dtype=torch.float64)
print(f"{n}: {(y.double() * weights).abs().sum().item():.9g}, {torch.equal(y, x.t())}")
