"""What a candidate must pass, gate by gate, in the order in which it is judged.

| gate | file |
|---|---|
| `hygiene` | `cudaops/gates/hygiene.py`, by the rules of `cudaops/program/hygiene.py` |
| `plugin` | `cudaops/gates/plugged.py`, where a package with a gate is installed |
| `preprocessed` | `cudaops/gates/preprocessed.py` |
| `compile` | `cudaops/gates/compile.py` |
| `object` | `cudaops/gates/object.py` |
| `checker` | `cudaops/gates/correctness.py` |
| `correctness_captured` | `cudaops/gates/correctness.py` |
| `correctness_exact` | `cudaops/gates/correctness.py` |
| `correctness_perturbed` | `cudaops/gates/correctness.py` |
| `repeat` | `cudaops/gates/repeat.py` |
| `unchanged_inputs` | `cudaops/gates/correctness.py` |
| `correctness_domain` | `cudaops/gates/domain.py` |
| `timed_outputs` | `cudaops/gates/timed_outputs.py` |
| `clocks` | `cudaops/gates/clocks.py` |
| `physical_floor` | `cudaops/gates/physical_floor.py` |
| `whole_program` | `cudaops/sandbox/whole_program.py` |
| `nvcc_compile` | `cudaops/sandbox/whole_program.py` |
| `reference` | `cudaops/gates/reference.py` |
| `isolation` | `cudaops/gates/isolation.py` |
| `handed_in` | `cudaops/sandbox/whole_program.py`, for `cudaops/gates/handed_in.py` |
| `speedup` | `cudaops/domain/judge.py` |
| `remeasured` | `cudaops/domain/judge.py` |
| `review` | `cudaops/graph/nodes.py` |

`evaluate.py` takes a candidate through them. `accuracy.py` says what is exact enough. Whether the
comparison can tell wrong from right on a program, before any candidate: `qualification.py`, with
the wrong results of `negative_controls.py` and `operands.py`.
"""
