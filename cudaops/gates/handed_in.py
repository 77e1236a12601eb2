"""A whole program that somebody handed in: what of it is not in the rewrite that is judged.

A rewrite is device code and its launches. What its author ran is more: host code, and
other kernels that he may have changed. Nobody shall take a verdict for one on the whole file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cudaops.domain.evaluation import Evaluation
from cudaops.domain.judgement import Gate, Policy
from cudaops.domain.program import Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Progress, Say, line_of
from cudaops.errors import InputError
from cudaops.gates.evaluate import evaluate, right
from cudaops.program.whole_program import host_code_differs, replaced_kernels
from cudaops.sandbox.stripping import Stripped, strip
from cudaops.sandbox.whole_program import prints_the_same
from cudaops.sandbox.workbench import Workbench, open_workbench


class HandedIn(NamedTuple):
    """A program and what of it became the rewrite."""

    name: str
    """Of its file."""
    program: Program
    stripped: Stripped


class Looked(NamedTuple):
    """What was found out about the rest of it."""

    gate: Gate
    right: tuple[str, ...]
    """Kernels of the author, and instances of the rewritten one, whose other text leaves what
    theirs leaves."""
    unjudged: dict[str, str]
    """Such that it launches otherwise or not at all, and why nobody knows."""
    left: frozenset[str]
    """Its kernels that stand for none."""


def evaluated(
    bench: Workbench,
    rewrite: Rewrite,
    given: HandedIn | None,
    policy: Policy,
    say: Say,
) -> tuple[Evaluation, list[str]]:
    """A rewrite through every gate, with `with_the_rest` where it is of a program.

    Where it is wrong on launches of other sizes alone, whose grid nobody but its own host code
    knows, it is judged for those that were seen.
    """
    evaluation = evaluate(bench, rewrite, policy.min_speedup, say)
    if given is None:
        return evaluation, []
    as_seen = given.stripped.as_seen
    if as_seen is not None and _are_wrong_elsewhere(evaluation.gates):
        say("wrong for other launch sizes: judged for the captured ones only")
        evaluation = evaluate(bench, as_seen, policy.min_speedup, say)
    return with_the_rest(bench, given, evaluation, policy, say)


def _are_wrong_elsewhere(gates: Sequence[Gate]) -> bool:
    """Whether drawn inputs alone refuse it, and none of a launch that was seen."""
    failed = [gate for gate in gates if not gate.passed]
    return bool(failed) and all(
        gate.name == "correctness_domain"
        and gate.numbers.get("inputs_refused_as_launched") == 0
        and gate.numbers.get("inputs_refused_for_contents") == 0
        for gate in failed
    )


def with_the_rest(
    bench: Workbench, given: HandedIn, evaluation: Evaluation, policy: Policy, say: Say
) -> tuple[Evaluation, list[str]]:
    """An evaluation of the rewrite with the gate `handed_in` behind it where it is not rejected,
    and the lines of `notices_of`."""
    looked = None
    if evaluation.judged(policy, released=True).outcome != "rejected":
        looked = look_at(bench, given, say)
        say(looked.gate)
        gates = (*evaluation.gates, looked.gate)
        evaluation = evaluation.model_copy(update={"gates": gates})
    return evaluation, notices_of(bench, given, looked)


def look_at(bench: Workbench, given: HandedIn, say: Say) -> Looked:
    """Run it as it is, and every other kernel that it changed through the gates of results.

    Refused where it prints something else, or another kernel is not the author's. Quarantined where
    it launches kernels in the place of others of which that cannot be found out.
    """
    started = time.monotonic()
    say(f"running {given.name} as submitted")
    gate = prints_the_same(bench, given.name, given.program)
    left = given.stripped.left - unchanged(bench.program, given.program)
    found = Looked(gate, (), {}, left)
    if gate.passed:
        found = _others(bench, given, found, say)
    return found._replace(
        gate=found.gate.model_copy(update={"seconds": time.monotonic() - started})
    )


def unchanged(author: Program, other: Program) -> frozenset[str]:
    """Kernels that both programs launch with the same words."""
    return frozenset(k.name for k in author.kernels) - replaced_kernels(author, other)


def _others(bench: Workbench, given: HandedIn, found: Looked, say: Say) -> Looked:
    """The author's other kernels that were launched when his program was captured, and the other
    instances of the rewritten one."""
    launched = [c.kernel for c in bench.captured.judged.captured.counts]
    changed = replaced_kernels(bench.program, given.program) - {bench.kernel.name}
    instances = _other_instances(bench, given)
    for kernel in (*instances, *sorted(changed & set(launched))):
        say(f"{kernel} of {given.name} also differs: its results")
        try:
            stripped, gates = _judged(bench, given, kernel, kernel in instances, say)
        except InputError as problem:
            found.unjudged[kernel] = str(problem)
            continue
        found = found._replace(left=found.left - stripped.taken)
        failed = next((g for g in gates if not g.passed), None)
        if failed is not None:
            text = f"instead of `{kernel}`: {failed.name}: {failed.summary}"
            held = failed.quarantined
            return found._replace(gate=_refused(found.gate, text, quarantined=held))
        found = found._replace(right=(*found.right, kernel))
    if found.unjudged and found.left:
        text = f"whether {_listed(found.left)} computes what {_listed(found.unjudged)} does is open"
        return found._replace(gate=_refused(found.gate, text, quarantined=True))
    return found


def _other_instances(bench: Workbench, given: HandedIn) -> list[str]:
    """Instances of the kernel that were captured and that the rewrite does not serve, where the
    program changes the kernel or how it is launched."""
    if bench.kernel.name not in replaced_kernels(bench.program, given.program):
        return []
    served = {w.callee for w in bench.workloads_of(given.stripped.rewrite)}
    return sorted({w.callee for w in bench.captured.workloads if w.is_judged} - served)


def _judged(
    bench: Workbench, given: HandedIn, kernel: str, is_instance: bool, say: Say
) -> tuple[Stripped, Sequence[Gate]]:
    """Raises InputError where no launch of the program can be taken for this kernel's, or for those
    of this instance of the rewritten one."""
    name = re.sub(r"\W+", "_", kernel)[:80]
    folder = bench.folder / "work" / f"beside-{name}"
    try:
        if is_instance:
            folder.mkdir(parents=True, exist_ok=True)
            other = Workbench(
                bench.program,
                bench.captured.of_instance(kernel),
                bench.executor,
                bench.policy,
                folder,
                sm_arch=bench.sm_arch,
                timeout_s=bench.timeout_s,
            )
        else:
            other = open_workbench(
                bench.program,
                kernel,
                tuple(one.run for one in bench.captured.runs if one.is_judged),
                bench.executor,
                bench.policy,
                folder,
                sm_arch=bench.sm_arch,
                timeout_s=bench.timeout_s,
            )
        stripped = strip(other, given.program)

        def tell(progress: Progress) -> None:
            say(f"{kernel}: {line_of(progress)}")

        gates = right(other, stripped.rewrite, tell)
        if stripped.as_seen is not None and _are_wrong_elsewhere(gates):
            gates = right(other, stripped.as_seen, tell)
        return stripped, gates
    finally:
        bench.discard(folder.name)


def _refused(gate: Gate, text: str, *, quarantined: bool) -> Gate:
    return gate.model_copy(
        update={"passed": False, "quarantined": quarantined, "summary": f"{text} ({gate.summary})"}
    )


def notices_of(bench: Workbench, given: HandedIn, looked: Looked | None) -> list[str]:
    """What was judged of it and what was not, and what the verdict is for, a line each.

    `looked`: None where the rewrite was refused before.
    """
    program, stripped = given.program, given.stripped
    taken = ", ".join(sorted(stripped.taken))
    instances = _other_instances(bench, given)
    judged = [f"{taken} for {bench.callee if instances else bench.kernel.name}"]
    changed = replaced_kernels(bench.program, program) - {bench.kernel.name} | set(instances)
    left = stripped.left - unchanged(bench.program, program)
    unjudged: dict[str, str] = dict.fromkeys(changed, "")
    if looked is not None:
        judged += [f"{name} for its results only" for name in looked.right]
        left = looked.left
        unjudged = {n: looked.unjudged.get(n, "") for n in changed - set(looked.right)}
    defined = {*instances, *(k.name for k in program.kernels)}
    words = [
        f"{name} ({'changed' if name in defined else 'gone'}{f': {why}' if why else ''})"
        for name, why in sorted(unjudged.items())
    ]
    words += [f"{name} (new)" for name in sorted(left - changed)]
    words += ["host code (changed)"] if host_code_differs(bench.program, program) else []
    line = f"judged: {', '.join(judged)}"
    line += f"; not judged: {', '.join(words)}" if words else ""
    what = f"the verdict is for best.cu, the author's program with {taken} in it"
    return [line, f"{what}, not for {given.name} as submitted"]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
