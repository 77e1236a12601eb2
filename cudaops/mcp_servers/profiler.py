"""MCP server `profiler`: metrics of the open program's kernel, and what they mean."""

from __future__ import annotations

from typing import Annotated, Any

from fastmcp import FastMCP
from pydantic import Field, TypeAdapter

from cudaops.cuda import metrics as ncu
from cudaops.cuda.derived import DERIVED
from cudaops.cuda.devices import DEVICES, Device, device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import diagnose, explain
from cudaops.domain.base import Record
from cudaops.domain.profile import Profile, Verdict
from cudaops.errors import InputError
from cudaops.mcp_servers.calls import in_thread, reads, works
from cudaops.mcp_servers.guidance import Guide
from cudaops.mcp_servers.prompts import add_explaining
from cudaops.mcp_servers.rewrites import SourceText, TunedValues, check_rewrite, read_rewrite
from cudaops.mcp_servers.sessions import SessionProvider
from cudaops.sandbox.workbench import Workbench

EveryMetric = Annotated[
    bool,
    Field(
        description="Every metric that ncu can collect, some 2,000, which takes longer; "
        "otherwise those that verdicts use."
    ),
]
Everything = Annotated[
    bool,
    Field(
        description="Every metric, and every finding's evidence. Otherwise the "
        "verdict's evidence and the launch's main figures, in under 6,000 characters."
    ),
]

_DEVICE_ROWS: TypeAdapter[list[Device]] = TypeAdapter(list[Device])


class Diagnosis(Record):
    """The verdict on one launch and the metrics that it is drawn from."""

    verdict: Verdict
    profile: Profile


def build_server(sessions: SessionProvider) -> FastMCP:
    """The server over one session; run it with `.run()` or talk to it in memory."""
    server: FastMCP = FastMCP(
        "cudaops-profiler",
        instructions="Metrics of a CUDA kernel under ncu's names, and a verdict on what limits it.",
        middleware=[Guide(sessions)],
    )

    @server.tool(annotations=works("Profile the author's kernel"))
    @in_thread
    def profile_kernel(
        everything: Everything = False, every_metric: EveryMetric = False
    ) -> Diagnosis:
        """Profile the author's kernel on its most expensive workload and say what limits it."""
        found = _diagnose(sessions.current().bench, None, {}, every_metric)
        return _shown(found, everything, every_metric)

    @server.tool(annotations=works("Profile a rewrite"))
    @in_thread
    def profile_rewrite(
        source: SourceText,
        tuned: TunedValues = {},  # noqa: B006
        everything: Everything = False,
        every_metric: EveryMetric = False,
    ) -> Diagnosis:
        """Profile a rewrite (device source with @launch directives) on the same workload."""
        found = _diagnose(sessions.current().bench, source, tuned, every_metric)
        return _shown(found, everything, every_metric)

    @server.tool(annotations=reads("Explain a metric"))
    def explain_metric(name: Annotated[str, Field(description="ncu's name of the metric")]) -> str:
        """What a metric counts, its unit, and how to read it."""
        return explain(name)

    @server.resource("cudaops://metrics", mime_type="application/json", title="Metrics")
    def metrics() -> dict[str, str]:
        """Every metric cudaops knows, with its one-line meaning."""
        return {name: f"{m.label} [{m.unit}]" for name, m in METRICS.items()}

    _add_rules(server)
    add_explaining(server)
    return server


_ALWAYS = (
    ncu.DURATION, ncu.REGISTERS, ncu.WAVES, ncu.ACHIEVED_OCCUPANCY,
    ncu.DRAM_THROUGHPUT, ncu.MEMORY_THROUGHPUT, ncu.SM_THROUGHPUT,
)  # fmt: skip
"""What a launch is known by, whatever limits it."""
_MOST_FINDINGS = 3
"""Beside the verdict itself, in a short answer."""


def _shown(diagnosis: Diagnosis, everything: bool, every_metric: bool) -> Diagnosis:
    if every_metric:
        return diagnosis
    verdict, profile = diagnosis.verdict, diagnosis.profile
    if everything:
        known = {n: m for n, m in profile.metrics.items() if n in METRICS}
        return Diagnosis(verdict=verdict, profile=profile.model_copy(update={"metrics": known}))
    findings = verdict.findings[1 : 1 + _MOST_FINDINGS]  # the first is the verdict
    evidence = (verdict.evidence, *(one.evidence for one in findings))
    said = [one.metric for some in evidence for one in some]
    rests_on = [n for name in said for n in (DERIVED[name].inputs if name in DERIVED else (name,))]
    deciding = {n: m for n in (*_ALWAYS, *rests_on) if (m := profile.metrics.get(n)) is not None}
    bare = tuple(one.model_copy(update={"evidence": ()}) for one in findings)
    return Diagnosis(
        verdict=verdict.model_copy(update={"findings": bare}),
        profile=profile.model_copy(
            update={"metrics": deciding, "texts": {}, "hot_lines": (), "nvidia_rules": ()}
        ),
    )


def _diagnose(
    bench: Workbench, source: str | None, tuned: dict[str, int], every_metric: bool
) -> Diagnosis:
    rewrite = None
    if source is not None:
        rewrite = check_rewrite(read_rewrite(bench, source, tuned=tuned), bench)
    profile = bench.profile(rewrite, every_metric=every_metric)
    if not isinstance(profile, Profile):
        raise InputError(profile.placed)
    return Diagnosis(profile=profile, verdict=diagnose(profile, device(profile.device)))


def _add_rules(server: FastMCP) -> None:
    """Register the resources on verdicts and devices."""

    @server.resource("cudaops://verdict-rules", mime_type="application/json", title="Verdict rules")
    def verdict_rules() -> dict[str, Any]:
        """Every rule that a verdict is drawn by: conditions with thresholds and their sources, in
        the order that decides; and what relieves each subtype."""
        return {
            "rules": [
                {
                    "id": rule.id,
                    "subtype": rule.subtype,
                    "priority": rule.priority,
                    "severity": rule.severity,
                    "conditions": [condition._asdict() for condition in rule.conditions],
                    "unless": [condition._asdict() for condition in rule.unless],
                    "relief": rule.relief,
                }
                for rule in sorted(RULES, key=lambda rule: rule.priority)
            ],
            "subtypes": {name: info._asdict() for name, info in SUBTYPES.items()},
        }

    @server.resource("cudaops://devices", mime_type="application/json", title="Devices")
    def devices() -> list[dict[str, Any]]:
        """Devices that times can be modelled for, with what is known of each; null: not known."""
        rows: list[dict[str, Any]] = _DEVICE_ROWS.dump_python(list(DEVICES.values()), mode="json")
        return rows
