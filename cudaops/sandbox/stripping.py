"""A whole program that somebody else wrote, made a rewrite of the open program's kernel.

The program is run once, confined like any candidate's, to see which kernel it launches and how.
Nothing else of the run is used: neither its times nor its outputs nor what it prints.
"""

from __future__ import annotations

import copy
import re
from typing import NamedTuple

from cudaops.domain.execution import Captured, Misbehaved
from cudaops.domain.program import Program, SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import OpaqueArgument
from cudaops.errors import InputError, PlanError
from cudaops.program.derived_plan import RecordedProgram
from cudaops.program.directives import WORDS
from cudaops.program.instances import plain_name
from cudaops.program.lexing import Edit, apply_edits, byte_text, lex, plain_text
from cudaops.program.parse import parse_files, require_runnable
from cudaops.program.plan_text import entry_name
from cudaops.program.whole_program import host_code_decides, rewrite_from_program
from cudaops.sandbox.captures import captured_of_author
from cudaops.sandbox.workbench import Workbench

MAIN = "answer.cu"
"""Name under which a program that came as a text is compiled."""
CONFINED = ("S2", "S3")
"""Levels of isolation at which a model's host code may run."""
_DIRECTIVE = re.compile(rf"@(?={'|'.join(WORDS)})")


class Stripped(NamedTuple):
    """A program's kernels with the launch that was seen."""

    rewrite: Rewrite
    """For launches of every size where what was seen can be said for all."""
    notices: tuple[str, ...]
    """What of the program was left behind and might have mattered, a line each."""
    taken: frozenset[str] = frozenset()
    """Its kernels that the rewrite launches."""
    left: frozenset[str] = frozenset()
    """Others that it launches itself."""
    as_seen: Rewrite | None = None
    """The same for the numbers that were seen alone; None where `rewrite` is."""


def program_of(text: str) -> Program:
    """A program that came as one text. It has no local headers: nothing is read from this machine.

    Raises InputError where it holds no kernel, no launch or no `main`.
    """
    raw = byte_text(text.encode("utf-8", "replace").decode("utf-8"))
    # What a comment says of launches is not how this program launches.
    edits = [
        Edit(comment.start, comment.end, _DIRECTIVE.sub("", comment.text))
        for comment in lex(raw).comments
        if _DIRECTIVE.search(comment.text)
    ]
    main = SourceFile(path=MAIN, text=plain_text(apply_edits(raw, edits)))
    program = parse_files(MAIN.removesuffix(".cu"), (main,))
    require_runnable(MAIN, program)
    return program


def strip(bench: Workbench, program: Program, *, strangers: bool = False) -> Stripped:
    """Run `program` once and take its kernels and their launch as a rewrite of the bench's kernel.

    Which launches stand for that kernel: `program.derived_plan`. `strangers`: nobody here wrote or
    read it. It runs in an empty folder, without arguments, only where the kernel refuses it files
    and sockets (S2 or better), whoever vouches for whatever else; and what it printed stays out of
    the refusal.

    Raises InputError, one line, where it does not compile, does not end in the bench's time,
    launches nothing, its parameters cannot be matched, or it was launched for other sizes than the
    bench's workloads.
    """
    if strangers and bench.executor.isolation not in CONFINED:
        raise InputError(
            f"untrusted host code runs only at isolation level {' or '.join(CONFINED)}, "
            f"here it is {bench.executor.isolation}: give device code with @launch directives"
        )
    program = program.model_copy(update={"exit_code": bench.program.exit_code})
    side = RecordedProgram(program, _recorded(bench, program, strangers))
    same_inputs = not strangers
    try:
        as_seen = _taken(bench, side, same_inputs=same_inputs)
    except InputError:
        if strangers or _finds_the_same_again(bench):
            raise
        same_inputs = False
        as_seen = _taken(bench, side, same_inputs=same_inputs)
    rewrite = as_seen
    if not host_code_decides(bench.program, program):
        rewrite = _taken(bench, side, same_inputs=same_inputs, general=True)
    taken = _launched_by(rewrite, program)
    left = frozenset({c.kernel for c in side.captured.counts} - taken)
    notices = [f"its launches of {', '.join(sorted(left))} are left out"] if left else []
    _require_applicable(bench, rewrite)
    other = as_seen if as_seen.source != rewrite.source else None
    return Stripped(rewrite, tuple(notices), taken, left, other)


def _launched_by(rewrite: Rewrite, program: Program) -> frozenset[str]:
    """The program's kernels that a rewrite made of it launches, by itself or through an entry."""
    names = {plain_name(step.kernel) for step in rewrite.plan.launches}
    return frozenset(
        k.name for k in program.kernels if names & {k.plain_name, entry_name(k.plain_name)}
    )


def _recorded(bench: Workbench, program: Program, strangers: bool) -> Captured:
    folder = bench.folder / "work" / f"strip-{program.sha256[:12]}"
    executor = bench.executor
    try:
        if strangers:
            executor = copy.copy(executor)
            executor.program_folder = folder / "empty"
            executor.program_folder.mkdir(parents=True, exist_ok=True)
        captured = executor.capture(
            program,
            None,
            () if strangers else bench.captured.judged.run.argv,
            folder / "capture",
            bench.timeout_s,
        )
    finally:
        bench.discard(folder.name)
    if isinstance(captured, Misbehaved) and captured.what == "exit_code" and strangers:
        raise InputError(re.split("[:;]", captured.message)[0])  # without what it printed
    if not isinstance(captured, Captured):
        raise InputError(captured.placed)
    if not captured.workloads:
        raise InputError(f"no launch of {captured.kernel} could be captured")
    return captured


def _taken(
    bench: Workbench, side: RecordedProgram, *, same_inputs: bool, general: bool = False
) -> Rewrite:
    author = bench.captured.judged
    ours = tuple(w for w in bench.judged if w.run == bench.captured.runs.index(author))
    return rewrite_from_program(
        RecordedProgram(bench.program, author.captured),
        bench.kernel,
        ours or bench.judged,
        side,
        allow_libraries=bench.policy.allow_libraries,
        same_inputs=same_inputs,
        general=general,
    )


def _finds_the_same_again(bench: Workbench) -> bool:
    """Whether the author's kernel is given the same bytes in another run: where he draws its inputs
    anew, or hands over memory that nobody set, contents match nobody's."""
    folder = bench.folder / "work" / "again"
    author = bench.captured.judged
    try:
        again = captured_of_author(
            bench.executor,
            bench.program,
            bench.kernel.name,
            author.run.argv,
            folder,
            bench.timeout_s,
        )
    finally:
        bench.discard(folder.name)
    return isinstance(again, Captured) and _read(again) == _read(author.captured)


def _read(captured: Captured) -> set[str]:
    """Digests of what the launches of its kernel leave as they find it, and their structures."""
    launches = [one for one in captured.recorded if one.kernel == captured.kernel]
    memory = {m.before for one in launches for m in one.memory if m.before == m.after}
    structures = {
        a.raw_hex for one in launches for a in one.arguments if isinstance(a, OpaqueArgument)
    }
    return memory | structures


def _require_applicable(bench: Workbench, rewrite: Rewrite) -> None:
    """Some workload must be one that the program's launch was made for."""
    unmet = ""
    for workload in bench.workloads:
        try:
            plan = bench.plan(workload, rewrite)
        except PlanError as error:
            raise InputError(f"its launch cannot be taken over: {error.message}") from error
        if plan.applicable:
            return
        unmet = plan.unmet or ""
    raise InputError(f"it launches its kernel for other sizes: {unmet} does not hold here")
