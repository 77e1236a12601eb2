"""Samples of instructions added up to source lines."""

from __future__ import annotations

import pytest

from cudaops.cuda.hot_spots import SassInstruction, hot_instructions, hot_lines, kind_of
from cudaops.domain.base import SourceLocation

TEXTS = {
    "k.cu": ["", "float s = tile[i];", "acc += a[i] * s;", "__syncthreads();", "out[i] = acc;"]
}


def text_of(place: SourceLocation) -> str:
    return TEXTS["k.cu"][place.line - 1]


def at(
    offset: int, sass: str, samples: int, reason: str = "wait", *, global_sectors: int = 0,
    shared_wavefronts: int = 0,
) -> SassInstruction:  # fmt: skip
    return SassInstruction(
        offset=offset, sass=sass, executed=100, samples=samples,
        stalls={reason: samples} if samples else {}, global_sectors=global_sectors,
        shared_wavefronts=shared_wavefronts,
    )  # fmt: skip


CODE = [
    at(0x00, "LDS R1, [R2]", 30, "short_scoreboard", shared_wavefronts=200),
    at(0x10, "LDG.E R3, desc[UR6][R4.64]", 100, "lg_throttle", global_sectors=400),
    at(0x20, "FFMA R5, R3, R1, R5", 50, "long_scoreboard"),
    at(0x30, "BAR.SYNC.DEFER_BLOCKING 0x0", 16, "barrier"),
    at(0x40, "STG.E desc[UR6][R4.64], R5", 3, "selected", global_sectors=3200),
    at(0x50, "MOV R1, R2", 1),
]
LINES = {0x00: ("/b/k.cu", 2), 0x10: ("/b/k.cu", 3), 0x20: ("/b/k.cu", 3), 0x30: ("/b/k.cu", 4),
         0x40: ("/b/k.cu", 5)}  # fmt: skip


def test_the_dearest_lines_with_what_they_do_and_what_they_wait_for() -> None:
    first, second, third = hot_lines(CODE, LINES, text_of)
    assert (str(first.location), first.text) == ("k.cu:3", "acc += a[i] * s;")
    assert first.share_pct == pytest.approx(75.0)
    assert first.note == "global load, 4.0 sectors/request, 67 % of its stalls lg throttle"
    assert second.note == (
        "shared load, 2.0 wavefronts/instruction, 100 % of its stalls short scoreboard"
    )
    assert (third.text, third.note) == (
        "__syncthreads();", "barrier, 100 % of its stalls barrier",
    )  # fmt: skip


def test_shares_are_of_all_samples_and_small_ones_are_left_out() -> None:
    (only,) = hot_lines(CODE, {0x00: ("k.cu", 2), 0x50: ("k.cu", 1)}, text_of)
    assert only.share_pct == pytest.approx(15.0)


def test_nothing_to_tell() -> None:
    assert hot_lines(CODE, {}, text_of) == ()
    assert hot_lines([], LINES, text_of) == ()
    assert hot_instructions("k", [at(0, "NOP", 0)]) == ()


def test_names_of_the_line_table_become_the_programs() -> None:
    first = hot_lines(CODE, LINES, lambda _: "", lambda file: "src/" + file.rsplit("/", 1)[-1])[0]
    assert first.location.file == "src/k.cu"


def test_a_warp_that_could_go_on_does_not_wait() -> None:
    store = hot_instructions("k", [CODE[4]])[0]
    assert store.note == "global store, 32.0 sectors/request"


def test_instructions_where_no_line_is_known() -> None:
    hot = hot_instructions("k", list(reversed(CODE)))
    assert [str(line.location) for line in hot] == ["k.sass:2", "k.sass:3", "k.sass:1"]
    assert hot[0].text.startswith("LDG.E")


@pytest.mark.parametrize(
    ("sass", "kind"),
    [
        ("@!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "global load"),
        ("LD.E R1, [R2]", "global load"),
        ("STG.E [R2], R3", "global store"),
        ("LDS.128 R4, [R0]", "shared load"),
        ("STS [R0], R1", "shared store"),
        ("ATOMS.ADD RZ, [R0], R1", "shared atomic"),
        ("RED.E.ADD.STRONG.GPU [R2], R3", "global atomic"),
        ("ATOMG.E.ADD R0, [R2], R3", "global atomic"),
        ("LDGSTS.E.128 [R1], [R2.64]", "asynchronous copy to shared memory"),
        ("LDL R1, [R1]", "local memory: spills or indexed local arrays"),
        ("LDC R1, c[0x0][0x28]", "constant load"),
        ("HMMA.16816.F32 R4, R8, R12, R4", "matrix instruction"),
        ("HFMA2.MMA R1, R2, R3, R4", "floating-point arithmetic"),
        ("FFMA R0, R1, R2, R0", "floating-point arithmetic"),
        ("MUFU.RCP R0, R1", "special function"),
        ("I2F.U32 R0, R1", "conversion"),
        ("BRA 0x10", "branch"),
        ("MEMBAR.SC.GPU", "memory fence"),
        ("SHFL.BFLY PT, R0, R1, 0x1, 0x1f", "warp exchange"),
        ("IMAD.WIDE R2, R0, R1, R2", "integer arithmetic and moves"),
        ("", "integer arithmetic and moves"),
    ],
)  # fmt: skip
def test_what_an_instruction_does(sass: str, kind: str) -> None:
    assert kind_of(sass) == kind
