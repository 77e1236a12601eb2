"""A kernel of a shared library, with Python in front: `make && python3 app.py 200 120`."""

import ctypes
import sys
from array import array

library = ctypes.CDLL("./libblur.so")
width, height = (int(word) for word in sys.argv[1:3])
count = width * height
image = array("f", (i * 37 % 101 / 101 for i in range(count)))
blurred = array("f", bytes(4 * count))
addresses = [ctypes.c_void_p(x.buffer_info()[0]) for x in (image, blurred)]
code = library.blur_image(*addresses, width, height)
sys.stdout.write(f"{code} {sum(blurred):.4f} {blurred[3 * width + 5]:.6f}\n")
