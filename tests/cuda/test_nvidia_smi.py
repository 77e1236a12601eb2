"""nvidia-smi's output: read whole or in part, refused or classified, never misread.

The rows are built after --help-query-gpu (names, units) and after rows that users have published;
none was recorded on a machine of ours.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.cuda.driver_texts import (
    APPS_QUERY,
    GPU_QUERY,
    ComputeApp,
    DriverAnswer,
    Gpu,
    NvidiaSmiFailure,
    apps_command,
    clock_reasons,
    failure_in,
    gpu_command,
    parse_apps,
    parse_gpus,
    without_invalid_field,
)

A = (
    "0, NVIDIA A10, GPU-aaaaaaaa-0000-0000-0000-000000000000, 535.129.03, 885,"
    " 1695, 41, 3, Disabled, Default, [N/A], 0, No, No, 0x0000000000000000, 00000000:06:00.0\n"
)
B = (
    "1, NVIDIA GeForce GTX 1080, GPU-bbbbbbbb-0000-0000-0000-000000000000, 535.129.03,"
    " 1607, 1911, 83, 100, Enabled, Exclusive_Process, [N/A], [N/A], [N/A], [N/A],"
    " 0x0000000000000068, 00000000:0B:00.0\n"
)


def test_every_field_of_two_gpus() -> None:
    a, b = parse_gpus(A + B).gpus
    assert (a.index, a.name, a.driver_version) == (0, "NVIDIA A10", "535.129.03")
    assert (a.sm_clock_mhz, a.max_sm_clock_mhz, a.temperature_c) == (885, 1695, 41)
    assert (a.utilization_pct, a.persistence, a.compute_mode) == (3, False, "Default")
    assert (a.mig, a.uncorrected_errors, a.remap_pending, a.clock_reasons) == (None, 0, False, 0)
    assert a.bus_id == "00000000:06:00.0"
    assert (b.persistence, b.uncorrected_errors, b.remap_failed) == (True, None, None)
    assert clock_reasons(b.clock_reasons or 0) == (
        "hardware slowdown",
        "thermal slowdown by software",
        "thermal slowdown",
    )
    assert clock_reasons(0x401) == ("idle", "0x400")


@pytest.mark.parametrize("text", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!"])
def test_absent_is_absent(text: str) -> None:
    (gpu,) = parse_gpus(A.replace(" 885,", f" {text},")).gpus
    assert gpu.sm_clock_mhz is None
    assert gpu.max_sm_clock_mhz == 1695


def test_a_gpu_that_must_be_reset() -> None:
    answer = parse_gpus(A.replace(" 41, 3,", " [GPU requires reset], [GPU requires reset],"))
    assert answer.gpus[0].temperature_c is None
    assert answer.failure is not None
    assert answer.failure.kind == "reset_required"


def test_one_gpu_does_not_answer() -> None:
    said = "Unable to determine the device handle for GPU1: 0000:0B:00.0: Unknown Error\n"
    for answer in (parse_gpus(said + A), parse_gpus(A, stderr=said)):
        assert [gpu.name for gpu in answer.gpus] == ["NVIDIA A10"]
        assert answer.failure is not None
        assert answer.failure.kind == "gpu_lost"
        assert "GPU1: 0000:0B:00.0" in answer.failure.problem


def test_lines_of_another_kind_are_kept_apart() -> None:
    answer = parse_gpus("WARNING: infoROM is corrupted at gpu 0000:06:00.0\n" + A)
    assert len(answer.gpus) == 1
    assert answer.failure is None


def test_a_repeated_row_counts_once() -> None:
    assert len(parse_gpus(A + A + B).gpus) == 2


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("", 9, "driver_not_loaded"),
        ("", 15, "gpu_lost"),
        ("", 16, "reset_required"),
        ("", 17, "blocked"),
        ("", 18, "version_mismatch"),
        ("No devices were found\n", 0, "no_devices"),
        ("", 0, "unreadable"),
        ("\x00\ufffd", 255, "unreadable"),
        (A.rstrip("\n"), 0, "unreadable"),
    ],
)
def test_no_row_is_an_error_with_a_remedy(text: str, code: int, kind: str) -> None:
    with pytest.raises(NvidiaSmiFailure) as caught:
        parse_gpus(text, exit_code=code)
    assert caught.value.kind == kind
    assert caught.value.remedy


def test_words_go_before_the_exit_code() -> None:
    found = failure_in("Failed to initialize NVML: Unknown Error", 9)
    assert found is not None
    assert found.kind == "access_lost"
    assert failure_in("all is well") is None


def test_fields_that_a_driver_does_not_know() -> None:
    refusal = 'Field "clocks_event_reasons.active" is not a valid field to query.\n'
    fewer = without_invalid_field(refusal, GPU_QUERY)
    assert fewer is not None
    assert fewer[-2:] == ("clocks_throttle_reasons.active", "pci.bus_id")
    (gpu,) = parse_gpus(A, fewer).gpus
    assert gpu.clock_reasons == 0
    again = without_invalid_field(refusal.replace("event", "throttle"), fewer)
    assert again is not None
    assert len(again) == len(GPU_QUERY) - 1
    assert without_invalid_field(A, GPU_QUERY) is None
    assert without_invalid_field('Field "x" is not a valid field to query.', GPU_QUERY) is None


def test_command_lines() -> None:
    assert gpu_command("nvidia-smi")[1].startswith("--query-gpu=index,name,uuid,")
    assert gpu_command("nvidia-smi")[2] == "--format=csv,noheader,nounits"
    assert apps_command("nvidia-smi")[1] == f"--query-compute-apps={','.join(APPS_QUERY)}"


def test_apps() -> None:
    text = (
        "GPU-aaaaaaaa-0000-0000-0000-000000000000, 4711, 812, python, train.py --lr 1,2\n"
        "GPU-aaaaaaaa-0000-0000-0000-000000000000, 12, [N/A], [Not Found]\n"
        "no running processes\n"
        "GPU-aaaaaaaa-0000-0000-0000-000000000000, x, 1, y\n"
        "GPU-aaaaaaaa-0000-0000-0000-000000000000, 5, 1, cut"
    )
    uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    assert parse_apps(text) == (
        ComputeApp(uuid, 4711, 812, "python, train.py --lr 1,2"),
        ComputeApp(uuid, 12, None, "[Not Found]"),
    )
    assert parse_apps("") == ()


NUMBERS = [f.name for f in dataclasses.fields(Gpu) if f.name != "name"]


def read_right(answer: DriverAnswer) -> None:
    """Whatever was read is what the whole text says of that GPU, or missing."""
    whole = {gpu.index: gpu for gpu in parse_gpus(A + B).gpus}
    for gpu in answer.gpus:
        for name in NUMBERS:
            value = getattr(gpu, name)
            assert value is None or value == getattr(whole[gpu.index], name), name


def parsed(text: str, code: int = 0) -> DriverAnswer | None:
    """The answer; None for a failure that names its remedy. Nothing else may be raised."""
    try:
        return parse_gpus(text, exit_code=code)
    except NvidiaSmiFailure as failure:
        return None if failure.problem and failure.remedy else DriverAnswer(())


@given(st.integers(0, len(A + B)), st.integers(0, 255))
def test_output_that_was_cut_short(length: int, code: int) -> None:
    answer = parsed((A + B)[:length], code)
    if answer is not None:
        read_right(answer)


@given(st.integers(0, len(A + B)), st.text(min_size=1, max_size=30).filter(lambda s: "," not in s))
def test_noise_between_lines(at: int, noise: str) -> None:
    """What another process or the driver prints in between, as lines of its own."""
    lines = [A, B]
    lines.insert(at % 3, f"{noise}\n")
    answer = parsed("".join(lines))
    assert answer is not None
    assert len(answer.gpus) == 2
    read_right(answer)


JUNK = st.one_of(
    st.sampled_from(
        ["", "[N/A]", "ERR!", "-1", "1.55", "1e3", "0x", "٣", "½", "NaN", "inf", "1 2"]
    ),
    st.text(alphabet=st.characters(exclude_characters=",\n\r0123456789"), max_size=8),
)


@given(st.integers(0, len(GPU_QUERY) - 1), JUNK)
def test_a_cell_that_is_no_number(column: int, junk: str) -> None:
    cells = A.rstrip("\n").split(", ")
    cells[column] = junk
    answer = parsed(", ".join(cells) + "\n" + B)
    assert answer is not None
    if GPU_QUERY[column] not in ("name", "compute_mode", "driver_version"):
        read_right(answer)


@given(st.sets(st.integers(0, len(GPU_QUERY) - 1), min_size=1), st.booleans())
def test_cells_that_are_gone(columns: set[int], moved: bool) -> None:
    """A row with fewer cells is refused, also where others were put at its end."""
    cells = [c for i, c in enumerate(A.rstrip("\n").split(", ")) if i not in columns]
    if moved:
        cells += ["0"] * len(columns)
    answer = parsed(", ".join(cells) + "\n" + B)
    assert answer is not None
    assert [gpu.index for gpu in answer.gpus] == [1]


@given(st.text(max_size=200), st.integers(0, 255))
def test_any_text_at_all(text: str, code: int) -> None:
    answer = parsed(text, code)
    assert answer is None
    assert isinstance(parse_apps(text), tuple)


@given(st.binary(max_size=40), st.integers(0, len(A)))
def test_bytes_that_are_no_text(data: bytes, at: int) -> None:
    """A child's output is decoded with replacement; what was hit is refused or missing."""
    hit = A[:at] + data.decode("utf-8", "replace").translate({ord(c): "" for c in "0123456789"})
    answer = parsed(hit + A[at:] + B)
    if answer is not None:
        for gpu in answer.gpus:
            if gpu.index == 1:
                read_right(DriverAnswer((gpu,)))
