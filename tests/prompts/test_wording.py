"""Records in lines: what is unknown is absent, what is modelled says so."""

from __future__ import annotations

from cudaops.domain.profile import Profile
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
