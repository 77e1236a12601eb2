"""What a kernel asks of an SM: the input of the time model, free of any device.
 A block's life is a list of phases, each ended by a barrier or by the kernel's end. A phase is a
list of stretches of code that a warp runs so many times; a stretch is a list of steps. A step sends
its loads, waits for their data, then issues what depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

MemorySpace = Literal["global", "shared", "local", "constant"]


class Mix(NamedTuple):
    """Warp instructions by what they occupy."""

    issued: float = 0.0
    """All of them: each takes one issue slot."""
    fp32: float = 0.0
    fp64: float = 0.0
    alu: float = 0.0
    """Integer, logic, compare, select."""
    sfu: float = 0.0
    """Reciprocal, square root, exponential, logarithm, sine."""
    convert: float = 0.0
    branch: float = 0.0

    def __add__(self, other: object) -> Mix:
        if not isinstance(other, Mix):
            return NotImplemented
        return Mix(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Mix:
        """Each count `factor` times."""
        return Mix(*(factor * a for a in self))


NOTHING = Mix()


class Use(NamedTuple):
    """Warp-level memory instructions of one site within one step."""

    site: int
    """Index into `KernelWork.sites`."""
    instructions: float


@dataclass(frozen=True)
class WorkStep:
    """Loads that go out together, and work that waits for them or for earlier ones."""

    loads: tuple[Use, ...] = ()
    mix: Mix = NOTHING
    """Everything but memory instructions, which issue a slot each on top."""
    stores: tuple[Use, ...] = ()
    chain: float = 0.0
    """Longest run of arithmetic instructions of which each needs the one before."""
    registers: float = 0.0
    """Registers per thread that hold the loaded data."""
    follows: bool = False
    """Whether an address of its loads comes out of an earlier step's data."""
    behind: bool = False
    """Whether its loads from shared memory may read what an earlier step of the stretch stores
    there, and so wait for it."""
    joins: bool = False
    """Whether later steps begin when its arithmetic is done: a branch depends on that."""
    needs: tuple[int, ...] = ()
    """Loads of the same stretch that its work is the first to read: twice the step's position, plus
    one where they come from global memory."""


@dataclass(frozen=True)
class Stretch:
    """Straight code that a warp runs over and over."""

    steps: tuple[WorkStep, ...]
    repeats: float
    """Times a participating warp runs it in one phase."""
    warps: float = 1.0
    """Share of the block's warps that run it at all, 0-1."""
    settles: bool = False
    """Whether it begins with data that another stretch has loaded."""
    blocks: float = 1.0
    """Share of the blocks, 0-1, that run it at all, where that is known: `warps` is so much larger
    in these."""
    turns_back: bool = False
    """Whether a branch leads from its end back to its beginning."""


@dataclass(frozen=True)
class Phase:
    """What a block does between two barriers."""

    stretches: tuple[Stretch, ...]
    times: float
    """How often a block goes through it."""
    barrier: bool
    """False: it ends with the kernel."""


@dataclass(frozen=True)
class MemorySite:
    """One place in the source that touches memory, averaged over the sampled blocks."""

    space: MemorySpace
    write: bool
    atomic: bool
    file: str
    """Last part of its path; for local memory the array's name."""
    line: int
    """0 for local memory."""
    bytes_per_thread: int
    instructions_per_block: float
    """Warp-level instructions after neighbouring accesses were joined."""
    requests_per_block: float
    """Warp-level accesses as written."""
    accesses_per_block: float
    """By single threads."""
    wavefronts: float
    """Cycles of the L1/shared data path an instruction takes; of constant memory the words of 4
    bytes that its lanes ask for."""
    ideal_wavefronts: float
    """The same without bank conflicts; equal to `wavefronts` for global memory."""
    sectors: float = 0.0
    """32-byte sectors an instruction touches; 0 for shared memory."""
    l1_hit: float = 0.0
    """Share of its sectors found in L1, 0-1; of local memory also of those written, which stay
    there."""
    useful_bytes: float = 0.0
    """Distinct bytes of an instruction that some thread asks for; 0 for shared memory."""
    same_address: float = 1.0
    """Atomics: lanes of an instruction that meet on its fullest address."""

    @property
    def missed_bytes_per_block(self) -> float:
        """What global loads ask of L2; 0 for everything else."""
        if self.space != "global" or self.write:
            return 0.0
        return self.instructions_per_block * self.sectors * 32.0 * (1.0 - self.l1_hit)

    @property
    def lanes(self) -> float:
        """Active threads an access as written."""
        return self.accesses_per_block / max(self.requests_per_block, 1e-9)


class ThreadCounts(NamedTuple):
    """Operations by single threads, a block."""

    ffma: float = 0.0
    fadd: float = 0.0
    fmul: float = 0.0
    dfma: float = 0.0
    dadd: float = 0.0
    dmul: float = 0.0
    integer: float = 0.0
    convert: float = 0.0
    special: float = 0.0
    branches: float = 0.0

    def __add__(self, other: object) -> ThreadCounts:
        if not isinstance(other, ThreadCounts):
            return NotImplemented
        return ThreadCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> ThreadCounts:
        """Each count `factor` times."""
        return ThreadCounts(*(factor * a for a in self))


@dataclass(frozen=True)
class Traffic:
    """Bytes beyond L1 for the whole launch."""

    footprint_bytes: float
    """Distinct bytes the launch touches."""
    dram_read_bytes: float
    dram_write_bytes: float
    """Of one launch in a row of many."""
    resident: bool
    """Whether all of it stays in L2 from one launch of a timing loop to the next."""
    l2_room_bytes: float = 0.0
    """What L2 keeps: of the last so many bytes of a single launch, those written are still there
    when it ends."""
    waiting_share: float = 0.0
    """Of what misses L1, 0-1, what waits for DRAM where nothing of it was in L2: blocks that run at
    once ask for the same data at the same time, and all of them wait for the one fetch."""

    @property
    def first_write_bytes(self) -> float:
        """What a single launch writes to DRAM before it ends."""
        kept = min(self.l2_room_bytes / max(self.footprint_bytes, 1.0), 1.0)
        return self.dram_write_bytes * (1.0 - kept)


@dataclass(frozen=True)
class KernelWork:
    """One launch of one kernel."""

    grid_blocks: int
    """Those that do anything."""
    block_threads: int
    registers_per_thread: int
    static_smem_bytes: int
    dynamic_smem_bytes: int
    phases: tuple[Phase, ...]
    sites: tuple[MemorySite, ...]
    counts: ThreadCounts
    traffic: Traffic
    launched_blocks: int = 0
    """All of the grid; less than `grid_blocks` where nobody counted."""
    barriers_per_block: float = 0.0
    hottest_atomic: float = 0.0
    """Atomic operations on the most used address of the line of global memory that takes most of
    them, all blocks' over the number of blocks."""
    same_line: float = 0.0
    """Further ones that this line takes, which wait for each other too; likewise."""
    integer_atomics: bool = False
    """Whether they are 32-bit integer operations, which L2 does at twice the rate."""
    heaviest_block: float = 1.0
    """Work of the block that does most over the mean of the sampled blocks."""
    longest_warp: float = 1.0
    """Work of the warp that does most over the mean of the sampled blocks' longest."""

    def heavier(self) -> KernelWork:
        """The heaviest block alone: its longest warp makes as many more turns as it does; for the
        rest of its work more warps take part, then in more turns. What every warp of every block
        does once stays as it is."""
        factor = max(self.heaviest_block, self.longest_warp)

        def stretch(s: Stretch, times: float) -> Stretch:
            if s.warps == 0.0 or times == s.repeats == s.warps == 1.0:
                return s
            turns = self.longest_warp * s.blocks
            warps = min(s.warps * factor / turns, 1.0)
            return replace(s, warps=warps, repeats=s.repeats * factor * s.warps / warps)

        phases = tuple(
            replace(p, stretches=tuple(stretch(s, p.times) for s in p.stretches))
            for p in self.phases
        )
        return replace(self, grid_blocks=1, phases=phases)

    @property
    def warps_per_block(self) -> int:
        """Warps a block, the last one perhaps partial."""
        return -(-self.block_threads // 32)
