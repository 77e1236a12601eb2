"""What a stranger may say in a call, and that files become references and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Unit
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import BufferValue, RawValue, ResolvedLaunch, ResolvedPlan
from cudaops.domain.workload import Allocation, GlobalState, Workload
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.wire import Capture, Place, Run, RunProgram
from cudaops.sandbox.wire_checks import check_argument, check_call, check_program, check_unit
from cudaops.sandbox.wire_files import contents_of, swap_inputs, swap_workload

HASH = "a" * 64


def program(*paths: str, root: str = "k") -> Program:
    files = tuple(SourceFile(path=path, text="") for path in paths)
    return Program(root_name=root, main_path=paths[0], files=files)


def call(**changes: object) -> Run:
    workload = Workload(
        id="w0",
        kernel="k",
        callee="k",
        site=0,
        grid=Dim3(),
        block=Dim3(),
        arguments=(),
        allocations=(
            Allocation(index=0, size_bytes=4, element="f32", role="in", before=HASH, after=HASH),
        ),
        globals=(GlobalState(name="ops::calls", size_bytes=4, before=HASH, after=HASH),),
        folder="",
    )
    launch = ResolvedLaunch(
        step=0, grid=Dim3(), block=Dim3(), dynamic_smem_bytes=0, values=(RawValue(raw_hex="00"),)
    )
    made = Run(
        unit=HASH,
        workload=workload,
        plan=ResolvedPlan(launches=(launch,), scratch_bytes={"room": 4}),
        timeout_s=1.0,
        inputs=InputSet(contents={0: HASH}),
    )
    return made.model_copy(update=changes)


def with_value(value: BufferValue | RawValue) -> dict[str, object]:
    plan = call().plan
    launch = plan.launches[0].model_copy(update={"values": (value,)})
    return {"plan": plan.model_copy(update={"launches": (launch,)})}


def test_an_honest_call_passes() -> None:
    check_call(call())
    assert set(contents_of(call())) == {HASH}
    check_program(program("k.cu", "sub/helper.cuh"))
    check_unit(Unit(program=program("k.cu"), kernel="k", callee="ops::k<64, 64>"))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../k.cu",
        "a/../../k.cu",
        "",
        ".hidden",
        "a//../b",
        "k\n.cu",
        "a\x00b",
        "~/k.cu",
    ],
)
def test_a_path_that_leaves_the_folder(path: str) -> None:
    with pytest.raises(ValueError, match="cannot be a file"):
        check_program(program(path))


def test_two_files_of_one_name_and_a_root_that_is_a_path() -> None:
    for wrong in (program("k.cu", "k.cu"), program("k.cu", root="../k")):
        with pytest.raises(ValueError, match="name"):
            check_program(wrong)


INJECTED = "x file /etc/shadow\nalloc 1 4"


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": ResolvedPlan(launches=(), scratch_bytes={INJECTED: 4})},
        {"workload": call().workload.model_copy(update={"id": "../w0"})},
        {
            "workload": call().workload.model_copy(
                update={
                    "globals": (GlobalState(name=INJECTED, size_bytes=4, before=HASH, after=HASH),)
                }
            )
        },
        with_value(RawValue(raw_hex="00\nlaunch")),
        with_value(BufferValue(scratch=INJECTED)),
    ],
)
def test_a_name_that_would_be_a_line_of_the_runners_instructions(
    changes: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        check_call(call(**changes))


def test_a_path_where_a_reference_must_stand() -> None:
    stolen = call(inputs=InputSet(contents={0: "/etc/shadow"}))
    with pytest.raises(ValueError, match="SHA-256"):
        tuple(contents_of(stolen))
    workload = call().workload
    moved = swap_workload(workload, lambda name: "/etc/shadow")
    with pytest.raises(ValueError, match="SHA-256"):
        tuple(contents_of(call(workload=moved)))


def test_contents_of_poisoned_buffers_go_nowhere() -> None:
    """They are not looked at, so nothing of them may arrive either."""
    inputs = InputSet(contents={0: "/etc/shadow"}, poison={0: 1})
    assert set(contents_of(call(inputs=inputs))) == {HASH}
    assert swap_inputs(inputs, str).contents == {}


@pytest.mark.parametrize(
    "word", ["/etc/shadow", "--in=/etc/shadow", "../x", "a/../../x", "../x=y", "a=/etc/x=y"]
)
def test_an_argument_that_names_a_file_elsewhere(word: str) -> None:
    with pytest.raises(ValueError, match="names a file"):
        check_argument(word)
    for made in (
        Capture(program=HASH, argv=(word,), timeout_s=1),
        RunProgram(program=HASH, argv=(word,), timeout_s=1),
    ):
        with pytest.raises(ValueError, match="names a file"):
            check_call(made)


def test_arguments_that_name_none() -> None:
    for word in ("1024", "-n", "--size=64", "a.bin", "", "-5.5e3", "x=y"):
        check_argument(word)


def test_what_records_refuse_by_themselves() -> None:
    with pytest.raises(ValidationError):
        call().model_validate({**call().model_dump(), "timeout_s": 601})
    with pytest.raises(ValidationError):
        Capture(program=HASH, kernel="k; rm", timeout_s=1)
    with pytest.raises(ValidationError):
        Place(executor="cuda", device="H200", sm_arch="-o /tmp/x")


def test_a_workload_comes_back_in_another_folder(tmp_path: Path) -> None:
    moved = swap_workload(call().workload, lambda name: f"{name[:4]}.bin", str(tmp_path))
    assert moved.folder == str(tmp_path)
    assert {moved.allocations[0].before, moved.globals[0].after} == {"aaaa.bin"}
