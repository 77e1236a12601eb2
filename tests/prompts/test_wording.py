"""Records in lines: what is unknown is absent, what is modelled says so."""

from __future__ import annotations

from cudaops.domain.profile import Profile
from cudaops.domain.run import AccessSummary
from cudaops.domain.workload import (
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    PointerField,
    ScalarArgument,
)
from cudaops.prompts import wording
from tests.prompts import samples


def test_metrics_that_were_not_collected_are_left_out() -> None:
    profile = Profile(kernel="k", device="A10", source="modelled", duration_us=3.0, metrics={})
    assert wording.profile_lines(profile, None) == ("Duration: 3 us",)
    assert wording.provenance(profile) == "modelled for A10"
    assert wording.roofline_line(None, 3.0) == "unknown: operations or bytes were not counted"


def test_evidence_says_where_its_value_comes_from() -> None:
    profile, verdict = samples.captured()
    modelled = verdict.model_copy(update={"source": "modelled"})
    assert wording.evidence_line(verdict.evidence[0], verdict, profile) == (
        "L1/TEX Cache Throughput: 96.5 % >= 80 % (ncu)"
    )
    assert wording.evidence_line(verdict.evidence[0], modelled, None).endswith("(modelled)")


def test_workloads_show_every_kind_of_argument() -> None:
    base = samples.workload()
    shared = base.model_copy(
        update={
            "arguments": (
                PointerArgument(name="A", element="f32", allocation=0),
                PointerArgument(name="A2", element="f32", allocation=0, offset_bytes=64),
                NullArgument(name="bias"),
                OpaqueArgument(name="shape", raw_hex="00" * 12),
                OpaqueArgument(
                    name="view",
                    raw_hex="00" * 16,
                    pointers=(
                        PointerField(
                            path="view.data", at_bytes=0, is_const=True, element="f32", allocation=1
                        ),
                    ),
                ),
                ScalarArgument(name="alpha", element="f32", value=0.5),
            )
        }
    )
    assert wording.workload_lines(shared)[1:] == (
        "  A: 1,048,576 x f32, in, in allocation 0",
        "  A2: 1,048,560 x f32, in, from byte 64 on, in allocation 0",
        "  bias = nullptr",
        "  shape: a structure of 12 bytes",
        "  view: a structure of 16 bytes\n    view.data: 1,048,576 x f32, in",
        "  alpha = 0.5 (f32)",
    )
    assert wording.workload_lines(base)[3] == "  C: 1,048,576 x f32, out"
    bodies = (PointerArgument(name="bodies", element="opaque", allocation=0),)
    assert wording.workload_lines(base.model_copy(update={"arguments": bodies}))[1:] == (
        "  bodies: 4,194,304 bytes of structures, in",
    )


def test_numbers() -> None:
    assert [wording.number(v) for v in (0.42011, 96.501, 4814.0, 0.0)] == [
        "0.42", "96.5", "4,814", "0",
    ]  # fmt: skip


def test_places_that_differ_in_line_and_index_alone_are_one_line() -> None:
    reads = [
        AccessSummary(kind="read", array="x", space="global", element="float", step="adjacent",
                      index=f"at.x + {i}", line=20 + i)
        for i in range(4)
    ]  # fmt: skip
    written = reads[0].model_copy(update={"kind": "write", "array": "y", "line": 30})
    read, write = wording.access_lines([*reads, written])
    assert read.startswith("line 20: read x float [at.x + 0], next thread adjacent; 3 more at ")
    assert read.endswith(" other indices, lines 21, 22, 23")
    assert write == "line 30: write y float [at.x + 0], next thread adjacent"


def test_a_role_that_the_accesses_rule_out_is_not_shown() -> None:
    base = samples.workload()
    allocations = tuple(a.model_copy(update={"role": "inout"}) for a in base.allocations)
    loose = base.model_copy(update={"allocations": allocations})
    known = samples.first().accesses
    roles = [wording.role_of(loose, a, known) for a in loose.allocations]
    assert roles == ["in", "in", "out"]
    assert "A: 1,048,576 x f32, in" in wording.workload_lines(loose, accesses=known)[1]
    somewhere = known[0].model_copy(update={"kind": "write", "array": "?"})
    for unknown in ((), (*known, somewhere)):
        assert wording.role_of(loose, loose.allocations[0], unknown) == "inout"


def test_the_bar_in_time_is_the_bar_as_a_speedup() -> None:
    """Three launches at 14.8 us and one at 9.58: at a mean of 2.65 us a rewrite is 5.09x."""
    times = [("w0", 14.8, 44.4 / 53.98), ("w1", 9.58, 9.58 / 53.98)]
    line = wording.bar_line(times, 5.0)
    assert line.startswith("5.00x the author's speed or more: at most 2.699 us where the author's")
    assert "kernel takes 13.49 us" in line
    assert "means of a launch over the 2 timed workloads" in line
    assert "means of" not in wording.bar_line([("w0", 10.0, 1.0)], 2.0)
