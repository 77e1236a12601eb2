"""Turns a kernel's steps into what each warp of a block does on one device, with costs in
cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.cuda.microarch import PREFETCH_REGISTERS, Microarchitecture
from cudaops.cuda.sm_simulation import Action, Load
from cudaops.cuda.work import KernelWork, Mix, Phase, Site, Step, Stretch, Use


class Stage(NamedTuple):
    """Phases that follow each other round a loop, or one phase by itself."""

    first: int
    """Index of its first phase in `KernelWork.phases`."""
    phases: tuple[Phase, ...]
    times: float


def stages_of(work: KernelWork) -> list[Stage]:
    """Neighbouring phases that a block goes through equally often belong to one loop."""
    stages: list[Stage] = []
    for index, phase in enumerate(work.phases):
        last = stages[-1] if stages else None
        if last and phase.times > 1.5 and abs(phase.times - last.times) <= 0.1 * last.times:
            stages[-1] = Stage(last.first, (*last.phases, phase), last.times)
        else:
            stages.append(Stage(index, (phase,), phase.times))
    return stages


@dataclass(frozen=True)
class Costs:
    """What one memory instruction of each site costs on a device."""

    sites: tuple[Site, ...]
    lsu_cycles: float
    """Cycles the load/store units need for one warp instruction."""
    l2_cycles_per_byte: float
    dram_cycles_per_byte: float
    store_cycles_per_byte: float
    dram_read_share: float
    """Of what misses L1, 0-1."""
    dram_write_share: float
    times: Microarchitecture

    @staticmethod
    def of(work: KernelWork, device: Device, times: Microarchitecture) -> Costs:
        """Costs where all SMs that have work share L2 and DRAM evenly."""
        active = min(device.sm_count, work.grid_blocks)
        if device.l2_read_bytes_per_clk is None:
            fabric = times.l2_fabric_bytes_per_clk * device.sm_count / active
        else:
            clock = (device.l2_clock_mhz or device.sm_clock_mhz) / device.sm_clock_mhz
            fabric = device.l2_read_bytes_per_clk * clock / active
        dram = (
            1e3 * device.dram_bandwidth_gb_s * times.dram_efficiency / device.sm_clock_mhz / active
        )
        missed = sum(_read_bytes(s) for s in work.sites) * work.grid_blocks
        written = sum(_written_bytes(s) for s in work.sites) * work.grid_blocks
        cold = 0.0 if work.traffic.resident else 1.0
        return Costs(
            sites=work.sites,
            lsu_cycles=32.0 / device.lanes("lsu"),
            l2_cycles_per_byte=1.0 / min(times.l2_bytes_per_clk, fabric),
            dram_cycles_per_byte=1.0 / dram,
            store_cycles_per_byte=1.0 / min(times.store_bytes_per_clk, fabric),
            dram_read_share=cold * min(work.traffic.dram_read_bytes / missed, 1.0)
            if missed
            else 0.0,
            dram_write_share=cold * min(work.traffic.dram_write_bytes / written, 1.0)
            if written
            else 0.0,
            times=times,
        )

    def load(self, uses: Sequence[Use]) -> Load:
        """The loads of one step, one warp."""
        issue = path = l2 = dram = 0.0
        latency = 0.0
        all_hit_l1 = all_hit_l2 = 1.0
        for use in uses:
            site = self.sites[use.site]
            issue += use.instructions
            path += use.instructions * self.wavefronts(site)
            if site.space != "global":
                latency = max(latency, self.times.shared_latency)
                continue
            missed = use.instructions * site.sectors * 32.0 * (1.0 - site.l1_hit)
            l2 += missed * self.l2_cycles_per_byte
            dram += missed * self.dram_read_share * self.dram_cycles_per_byte
            all_hit_l1 *= site.l1_hit ** max(use.instructions, 1.0)
            all_hit_l2 *= (1.0 - self.dram_read_share * (1.0 - site.l1_hit)) ** max(
                use.instructions, 1.0
            )
            latency = max(latency, self.times.l1_latency)
        if latency > self.times.shared_latency or l2:
            beyond = self.times.l2_latency * self.times.under_load
            latency += (1.0 - all_hit_l1) * (beyond - self.times.l1_latency)
            further = (self.times.dram_latency - self.times.l2_latency) * self.times.under_load
            latency += (1.0 - all_hit_l2) * further
        shared = all(self.sites[u.site].space == "shared" for u in uses)
        return Load(issue, path, l2, dram, latency, shared)

    def store(self, uses: Sequence[Use]) -> tuple[float, float, float, float]:
        """Issue slots, data path, L2 and DRAM cycles of a step's stores, one warp."""
        issue = path = l2 = dram = 0.0
        for use in uses:
            site = self.sites[use.site]
            issue += use.instructions
            path += use.instructions * self.wavefronts(site)
            if site.space == "global":
                sent = use.instructions * site.sectors * 32.0
                l2 += sent * self.store_cycles_per_byte
                dram += sent * self.dram_write_share * self.dram_cycles_per_byte
        return issue, path, l2, dram

    def wavefronts(self, site: Site) -> float:
        """Cycles of the data path one instruction holds: its wavefronts, or the time its addresses
        take to get through the load/store units."""
        serial = site.same_address if site.atomic and site.space == "shared" else 1.0
        return max(site.wavefronts * serial, self.lsu_cycles)

    def demand(self, work: KernelWork) -> dict[str, float]:
        """Cycles a block holds each part of its SM, were the part never idle."""
        mix, path, lsu, l2, dram = Mix(), 0.0, 0.0, 0.0, 0.0
        for phase in work.phases:
            for stretch in phase.stretches:
                times = phase.times * stretch.repeats * stretch.warps * work.warps_per_block
                for step in stretch.steps:
                    load, store = self.load(step.loads), self.store(step.stores)
                    mix += step.mix.times(times)
                    mix += Mix(issued=times * (load.issue + store[0]))
                    lsu += times * (load.issue + store[0]) * self.lsu_cycles
                    path += times * (load.data_path + store[1])
                    l2 += times * (load.l2 + store[2])
                    dram += times * (load.dram + store[3])
        return {
            "issue": mix.issued, "fp32": mix.fp32, "fp64": mix.fp64, "alu": mix.alu, "sfu": mix.sfu,
            "convert": mix.convert, "branch": mix.branch, "data_path": path, "lsu": lsu, "l2": l2,
            "dram": dram,
        }  # fmt: skip


def _read_bytes(site: Site) -> float:
    if site.space != "global" or site.write:
        return 0.0
    return site.requests_per_block * site.sectors * 32.0 * (1.0 - site.l1_hit)


def _written_bytes(site: Site) -> float:
    if site.space != "global" or not site.write:
        return 0.0
    return site.requests_per_block * site.sectors * 32.0


def program_of(
    work: KernelWork, costs: Costs, stages: Sequence[Stage], turns: Mapping[int, int], share: float
) -> list[list[Action]]:
    """The actions of each warp of a block.

    `turns` says how often to go round a stage, by its first phase; missing: as often as the kernel.
    `share` (0-1] shortens every inner loop.
    """
    programs: list[list[Action]] = [[] for _ in range(work.warps_per_block)]
    number = 0
    for stage in stages:
        for _ in range(turns.get(stage.first, max(round(stage.times), 1))):
            for phase in stage.phases:
                for stretch in phase.stretches:
                    number = _append(programs, stretch, costs, share, number)
                if phase.barrier:
                    for program in programs:
                        program.append(Action("barrier"))
    return programs


def _append(
    programs: list[list[Action]], stretch: Stretch, costs: Costs, share: float, number: int
) -> int:
    taking_part = round(stretch.warps * len(programs))
    if taking_part == 0 and stretch.warps * len(programs) > 0.2:
        taking_part = 1
    if not taking_part:
        return number
    body: list[Action] = [Action("settle")] if stretch.settles else []
    for _ in range(max(round(stretch.repeats * share), 1)):
        body += _flatten(stretch.steps, costs, number)
        number += 2 * len(stretch.steps)
    for program in programs[:taking_part]:
        program += body
    return number


def _flatten(steps: Sequence[Step], costs: Costs, number: int) -> list[Action]:
    """Loads ahead of work: those of shared memory as far as registers for their data reach."""
    order: list[tuple[int, bool]] = []
    sent = 0
    for at in range(len(steps)):
        while sent < len(steps) and sent <= at + _ahead(steps, sent, costs):
            if steps[sent].loads:
                order.append((sent, True))
            sent += 1
        order.append((at, False))
    actions: list[Action] = []
    for index, is_load in order:
        step = steps[index]
        if is_load:
            if step.follows:
                actions.append(Action("work", tuple(range(number, number + 2 * index))))
                actions.append(Action("join"))
            for place, uses in enumerate(_by_space(step, costs)):
                if uses:
                    actions.append(Action("load", (number + 2 * index + place,), costs.load(uses)))
            continue
        issue, path, l2, dram = costs.store(step.stores)
        waits = tuple(number + needed for needed in step.needs)
        actions.append(Action("work", waits, None, step.mix, step.chain, path, issue, l2, dram))
    if any(step.chain for step in steps):
        actions.append(Action("join"))
    return actions


def _by_space(step: Step, costs: Costs) -> tuple[list[Use], list[Use]]:
    """Loads from shared memory and from global memory: each is waited for on its own."""
    shared = [u for u in step.loads if costs.sites[u.site].space == "shared"]
    return shared, [u for u in step.loads if costs.sites[u.site].space != "shared"]


def _ahead(steps: Sequence[Step], index: int, costs: Costs) -> int:
    step = steps[index]
    if step.follows or any(costs.sites[u.site].space == "global" for u in step.loads):
        return 0
    return int(PREFETCH_REGISTERS // max(step.registers, 1.0))


def demand_of_block(work: KernelWork, costs: Costs, stages: Sequence[Stage], share: float) -> float:
    """Repeats of all inner loops one turn of the stages goes through: how much of it is done."""
    done = 0.0
    for stage in stages:
        for phase in stage.phases:
            for stretch in phase.stretches:
                done += max(round(stretch.repeats * share), 1) * len(stretch.steps)
    return done
