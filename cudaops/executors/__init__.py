"""Where kernels compile and run, behind `base.Executor`: `cpu/` and `cuda/`.

`isolation/` confines what they start; `capture/` makes Workloads of what a recorded program left.
"""
