"""What a kernel does, from clang's trees: accesses, loops, barriers, and what values can be.

`kernel.analyse` follows the body (`expressions`, `values`); `facts` is what it finds, in
`polynomials` over named unknowns and their `intervals`.
"""
