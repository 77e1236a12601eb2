"""`smooth` of kernel.cu on an image by CuPy: cupy_app.py ROWS COLUMNS."""

import os
import sys
import tempfile

os.environ.setdefault("CUPY_CACHE_DIR", tempfile.mkdtemp())
import cupy

rows, columns = map(int, sys.argv[1:])
smooth = cupy.RawKernel(open("kernel.cu").read(), "smooth")
image = (cupy.arange(rows * columns) * 7919 % 1000 / 1000).astype(cupy.float32)
out = cupy.zeros_like(image)
for _ in range(3):
    smooth(
        ((columns + 31) // 32, (rows + 7) // 8),
        (32, 8),
        (image, out, cupy.int32(rows), cupy.int32(columns)),
    )
print(f"sum {float(out.sum()):.6g}, first {float(out[0]):.6g}, last {float(out[-1]):.6g}")
