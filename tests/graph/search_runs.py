"""Runs of the graph with a strategy and a developer of the test's choosing, in one folder each.

As a program (`python -m tests.graph.search_runs FOLDER`) it is the process that a test kills.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from cudaops.agents.developer import Developer, Plan, RunView, Written
from cudaops.domain.hypothesis import Family, Hypothesis
from cudaops.domain.judgement import Policy
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import Event, RunOptions
from cudaops.domain.search import SearchOptions
from cudaops.errors import ModelUnavailable
from cudaops.graph.branches import Explored, explored_of
from cudaops.graph.build import build_graph
from cudaops.graph.context import Context
from cudaops.graph.events import EventLog, read_events
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.services import make_executor, open_bench
from cudaops.graph.state import State
from cudaops.graph.toolbox import build_toolbox
from cudaops.program.plans import make_rewrite
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import load_settings

EXPLOITS = Path(__file__).parents[1] / "exploits"
MM = EXPLOITS / "mm.cu"

PERIODIC = """// Trusts that a row of A repeats every 13 elements, as the program's own inputs do.
// @launch fast grid=(ceil_div(N, 16), ceil_div(N, 16)) block=(16, 16) args=(A, B, C, N)
__global__ void fast(const float* A, const float* B, float* C, int N) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= N || col >= N) return;
    float a[13];
    for (int i = 0; i < 13; ++i) a[i] = A[row * N + i];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 52; k += 13) {
#pragma unroll
        for (int i = 0; i < 13; ++i) sum += a[i] * B[(k + i) * N + col];
    }
#pragma unroll
    for (int i = 0; i < 12; ++i) sum += a[i] * B[(52 + i) * N + col];
    C[row * N + col] = sum;
}
"""


def text_of(name: str) -> str:
    """A rewrite of mm.cu: a file among the exploits, or `periodic`."""
    return PERIODIC if name == "periodic" else (EXPLOITS / f"{name}.cu").read_text("utf-8")


class Idea(NamedTuple):
    """A hypothesis whose title names the text it leads to."""

    family: Family
    name: str


class Shelf:
    """A developer who knows his rewrites by heart: plans them in order and gives their texts.

    `later`: what he proposes to improve a rewrite, by that one's title. `gone_after`: calls of
    `write` after which he is out of reach, for plans too. Every call is noted in `log`, one a line.
    """

    def __init__(
        self,
        first: Sequence[Idea],
        later: Mapping[str, Sequence[Idea]] | None = None,
        *,
        log: Path | None = None,
        gone_after: int | None = None,
    ) -> None:
        self._first = list(first)
        self._later = {title: list(ideas) for title, ideas in (later or {}).items()}
        self._log = log
        self._gone_after = gone_after
        self.calls: list[str] = []
        self.views: dict[str, list[RunView]] = defaultdict(list)
        self.at_work = self.most_at_work = 0

    async def plan(self, view: RunView, wanted: int, scope: str) -> Plan:
        """The next of the first ideas, or what is known to improve the incumbent."""
        self._note(f"plan {scope} {wanted}")
        self.views[f"plan {scope}"].append(view)
        if self._gone_after is not None and self._writes() >= self._gone_after:
            raise ModelUnavailable("nobody answers", "ask again later")
        title = view.incumbent.title if view.incumbent and "/" in scope else None
        ideas = self._first if title is None else self._later.get(title, [])
        given, ideas[:] = ideas[:wanted], ideas[wanted:]
        return Plan(
            tuple(
                Hypothesis(family=idea.family, title=idea.name, why="known by heart")
                for idea in given
            )
        )

    async def write(
        self,
        view: RunView,
        hypothesis: Hypothesis,
        scope: str,
        parents: tuple[Rewrite, ...] = (),
    ) -> Written:
        """The text that the title names; nothing for what joins two."""
        self._note(f"write {scope} {hypothesis.title} {' + '.join(p.title for p in parents)}")
        self.views[f"write {scope}"].append(view)
        if self._gone_after is not None and self._writes() > self._gone_after:
            raise ModelUnavailable("nobody answers", "ask again later")
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await asyncio.sleep(0.05)
        self.at_work -= 1
        if len(parents) == 2:
            return Written(None, hypothesis.family, "these two cannot be joined")
        rewrite = make_rewrite(
            text_of(hypothesis.title), proposer="llm:shelf", title=hypothesis.title, why="by heart"
        )
        return Written(rewrite, hypothesis.family)

    def _writes(self) -> int:
        return sum(call.startswith("write") for call in self.calls)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as stream:
                stream.write(call + "\n")


class Ran(NamedTuple):
    """A finished run."""

    state: State
    events: list[Event]
    explored: tuple[Explored, ...]

    @property
    def judged(self) -> list[tuple[str, str]]:
        """Title and outcome of every candidate that was judged, in order."""
        return [(a["title"], a["judgement"]["outcome"]) for a in self.state["attempts"]]

    @property
    def best(self) -> float:
        """Speedup of the incumbent, 1 where there is none."""
        incumbent = self.state.get("incumbent")
        return float(incumbent["judgement"]["speedup"]) if incumbent else 1.0


def options_of(
    source: Path, folder: Path, search: SearchOptions, *, max_iterations: int = 1, bar: float = 1e-3
) -> RunOptions:
    """Of a run on the processor, with secret inputs that are always the same."""
    return run_options(
        source,
        folder,
        target("A10", None),
        search=search,
        use_memory=False,
        max_iterations=max_iterations,
        policy=Policy(min_speedup=bar, seed=11),
    )


def run(options: RunOptions, developer: Developer | None = None) -> Ran:
    """Start the run, or go on with it where its folder holds one."""
    settings, folder = load_settings(), Path(options.out)
    executor = make_executor(options, settings)
    if (folder / "state").exists():
        bench = Workbench.load(
            folder,
            executor,
            options.policy,
            sm_arch=options.sm_arch,
            timeout_s=options.timeout_seconds,
        )
    else:
        bench = open_bench(options, executor)
    return asyncio.run(_run(options, bench, developer))


async def _run(options: RunOptions, bench: Workbench, developer: Developer | None) -> Ran:
    folder = Path(options.out)
    # With a developer it is his texts that are looked at; recipes only keep him company.
    options = options.model_copy(update={"max_trials": 1 if developer else 6})
    events = EventLog(folder / "events.jsonl", lambda _: None)
    config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 100}
    async with (
        build_toolbox(bench, load_settings()) as toolbox,
        AsyncSqliteSaver.from_conn_string(str(folder / "state" / "checkpoints.sqlite")) as saver,
    ):
        context = Context(
            options=options,
            bench=bench,
            toolbox=toolbox,
            events=events,
            developer=developer,
        )
        graph = build_graph(options.max_iterations, saver, strategy=options.search.strategy)
        begun = await saver.aget_tuple(config) is not None
        given: State | None = None if begun else {"attempts": [], "notices": []}
        await graph.ainvoke(given, config, context=context, durability="sync")
        state = cast(State, (await graph.aget_state(config)).values)
    return Ran(state, read_events(folder / "events.jsonl"), explored_of(state))


FIRST = (
    Idea("tiling", "honest/shared_tiles"),
    Idea("unrolling", "samples_the_sum"),
    Idea("reduction", "honest/pairwise_sum"),
    Idea("algorithm", "does_not_compile"),
)
"""Slower than the author's kernel; faster and wrong; faster; not a kernel at all."""


def killed_run(folder: Path) -> tuple[RunOptions, Shelf]:
    """What the killed process and the one that goes on both run."""
    options = options_of(MM, folder, SearchOptions(strategy="branch", width=5))
    return options, Shelf(FIRST, log=folder.parent / "calls.txt")


def kept_branches(folder: Path) -> int:
    """Branches whose results are in the checkpoints of a run folder."""
    path = folder / "state" / "checkpoints.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute("SELECT count(*) FROM writes WHERE channel = 'explored'")
        except sqlite3.OperationalError:
            return 0
        return int(rows.fetchone()[0])


def announced(folder: Path) -> Counter[int]:
    """How often each branch was announced."""
    events = read_events(folder / "events.jsonl")
    return Counter(e.data["branch"] for e in events if e.stage == "explore" and "branch" in e.data)


if __name__ == "__main__":
    run(*killed_run(Path(sys.argv[1])))
