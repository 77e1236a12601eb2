"""What the counts of the longest lanes say of a launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import DEVICES
from cudaops.timemodel.divergence import divergence
from cudaops.timemodel.gimple import parse, type_names
from cudaops.timemodel.phases import by_warps
from cudaops.timemodel.timing import estimate
from cudaops.timemodel.work import Mix, Stretch, WorkStep
from tests.timemodel.test_timing import kernel, loop

DUMP = """
;; Function kernel (_Z6kernel, funcdef_no=1, decl_uid=2, cgraph_uid=3, symbol_order=4)
void kernel (real * restrict a)
{
  ull j;
  <bb 2> [count: 64]:
  [k.cu:3:1] j_1 = j_2 + 1;
  <bb 3> [count: COUNT]:
  [k.cu:4:1] j_3 = j_1 + 2;
  return;
}
"""


def test_turns_are_found_by_lines() -> None:
    threads, lanes, longest = [parse(DUMP.replace("COUNT", n)) for n in ("640", "160", "100")]
    found = divergence(threads, lanes, longest, [(90.0, 60.0), (30.0, 20.0)])
    assert list(found.turns["k.cu", 4]) == [640.0, 160.0, 100.0]
    assert found.heaviest_block == pytest.approx(1.5)
    assert found.longest_warp == pytest.approx(1.5)
    assert not divergence(threads, (), (), ()).turns


def test_types_by_another_name() -> None:
    names = type_names(["using ull = unsigned long long;\ntypedef float real; typedef uint word;"])
    function = parse(DUMP, names)[0]
    assert function.type_of("j_1") == "long long unsigned int"
    assert function.resolved("word *") == "unsigned int *"
    assert names["size_t"] == "long unsigned int"
    assert "real" in names


@pytest.mark.parametrize("unevenness", [1.0, 2.0, 5.0, 8.0])
def test_the_longest_warp_takes_no_work_away(unevenness: float) -> None:
    whole = Stretch((WorkStep(mix=Mix(4.0, alu=4.0)),), 100.0)
    parts = by_warps(whole, 8, unevenness)
    assert sum(p.warps * p.repeats for p in parts) == pytest.approx(100.0, rel=0.02)
    assert sum(p.repeats for p in parts) == pytest.approx(100.0 * unevenness, rel=0.02)


def test_what_every_warp_does_once_is_no_more_in_the_heaviest_block() -> None:
    once = loop(WorkStep(mix=Mix(100.0, fp32=100.0), chain=100.0), 1.0)
    turns = loop(WorkStep(mix=Mix(2.0, fp32=2.0), chain=2.0), 50.0)
    work = replace(kernel([once, turns], [], blocks=64), heaviest_block=8.0, longest_warp=8.0)
    first, second = (phase.stretches[0] for phase in work.heavier().phases)
    assert (first.repeats, second.repeats) == (1.0, 400.0)


def test_a_branch_back_takes_its_time() -> None:
    step = WorkStep(mix=Mix(1.0, alu=1.0), chain=1.0)
    plain = kernel([loop(step, 100.0)], [], blocks=1, threads=32)
    stretch = replace(plain.phases[0].stretches[0], turns_back=True)
    closed = replace(plain, phases=(replace(plain.phases[0], stretches=(stretch,)),))
    device = DEVICES["H200"]
    longer = estimate(closed, device).cycles - estimate(plain, device).cycles
    latency = microarchitecture(device.compute_capability).branch_latency
    assert longer == pytest.approx(100 * latency, rel=0.02)
