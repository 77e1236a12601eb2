"""The graphs of `langgraph.json`, loaded as LangGraph's own tools load them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from cudaops.domain.run import ReviewRequest, RunRecord
from tests.processes import runners
from tests.standin.platform import STANDIN

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "data" / "programs" / "gemm_header.cu"
NAMED: dict[str, str] = json.loads((ROOT / "langgraph.json").read_text("utf-8"))["graphs"]

Served = CompiledStateGraph[Any, Any, Any, Any]


def load(name: str) -> Served:
    """`langgraph dev` imports the file by its path and takes the attribute after the colon."""
    path, _, attribute = NAMED[name].partition(":")
    spec = importlib.util.spec_from_file_location(f"served_{name}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph = getattr(module, attribute)
    assert isinstance(graph, CompiledStateGraph)
    return graph


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("optimize", {"optimizer", "verify", "report"}, {"review", "explore"}),
        ("reviewed", {"optimizer", "review"}, {"explore"}),
        ("branch", {"seed", "explore", "gather"}, {"optimizer", "review"}),
        ("beam", {"seed", "explore", "gather"}, {"optimizer", "review"}),
    ],
)
def test_the_agents_are_shown(name: str, has: set[str], has_not: set[str]) -> None:
    nodes = set(load(name).get_graph(xray=True).nodes)
    inner = {node.partition(":")[2] for node in nodes if node.startswith("optimize:")}
    assert {"supervisor", "profiler", "research", "sandbox", "accepted"} | has <= inner
    assert not inner & has_not
    assert "intake" in nodes


def test_the_input_is_plain() -> None:
    graph = load("optimize")
    asked = graph.get_input_jsonschema()
    assert asked["required"] == ["source"]
    assert {"argv", "kernel", "max_iterations", "min_speedup"} <= set(asked["properties"])
    assert set(graph.get_output_jsonschema()["properties"]) == {"folder", "record", "report"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"source": "nowhere.cu"}, "nowhere.cu: no such file"),
        ({"source": str(PROGRAM), "device": "A11"}, "unknown device 'A11'"),
        ({"source": str(PROGRAM), "max_iterations": 99}, "less than or equal to 50"),
    ],
)
def test_wrong_input_is_said(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        asyncio.run(load("optimize").ainvoke(given))


@pytest.mark.nvcc
def test_between_its_nodes_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in of a GPU: the next node may run elsewhere, or never."""
    monkeypatch.setenv("CUDAOPS_GPU_DRIVER", STANDIN)
    monkeypatch.setenv("CUDAOPS_RUNS", str(tmp_path / "runs"))
    graph = load("optimize").copy(update={"checkpointer": InMemorySaver()})
    others = runners()

    async def intake_alone() -> dict[str, Any]:
        given = {"source": str(PROGRAM), "executor": "cuda"}
        config: RunnableConfig = {"configurable": {"thread_id": "one"}}
        return dict(await graph.ainvoke(given, config, interrupt_before=["optimize"]))

    assert Path(asyncio.run(intake_alone())["folder"], "state", "intake.json").is_file()
    assert runners() == others


@pytest.mark.timeout(900)
def test_a_run_stops_before_acceptance_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = load("reviewed")
    graph.checkpointer = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "one"}}
    seen: list[tuple[int, str]] = []

    async def stream(given: Any) -> None:
        updates = graph.astream(given, thread, subgraphs=True, stream_mode="updates")
        async for namespace, update in updates:
            seen.extend((len(namespace), str(node)) for node in update)

    async def main() -> dict[str, Any]:
        await stream(
            {"source": str(PROGRAM), "argv": ["256", "256", "256"], "optimizer": "recipes",
             "max_iterations": 2}
        )  # fmt: skip
        waiting = await graph.aget_state(thread, subgraphs=True)
        request = ReviewRequest.model_validate(waiting.interrupts[0].value)
        assert request.patch.startswith("--- ")
        inner = waiting.tasks[0].state
        assert inner.next == ("review",)  # type: ignore[union-attr]
        before = len(seen)
        while waiting.interrupts:
            await stream(Command(resume={"accept": True, "by": "a test"}))
            waiting = await graph.aget_state(thread)
        again = [node for depth, node in seen[before:] if depth]
        assert "profiler" not in again[: again.index("verify")]  # nothing finished ran twice
        return dict(waiting.values)

    values = asyncio.run(main())
    record = RunRecord.model_validate(values["record"])
    assert record.outcome == "provisional"
    folder = Path(values["folder"])
    assert folder.is_relative_to(tmp_path / "runs")
    assert RunRecord.model_validate_json((folder / "run.json").read_text("utf-8")) == record
    assert (folder / "report.md").read_text("utf-8") == values["report"]
    assert (folder / "certificate.json").exists()
    stages = [node for depth, node in seen if depth]
    assert stages[:3] == ["supervisor", "profiler", "research"]
    assert next(node for depth, node in seen if not depth) == "intake"
