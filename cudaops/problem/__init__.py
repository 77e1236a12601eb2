"""Problems whose right answer a reference in Python says (docs/problems.md): drawing them in the
user's interpreter, the host program around the author's kernels, and KernelBench's `ModelNew`."""
