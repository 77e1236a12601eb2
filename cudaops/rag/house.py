"""What cudaops itself knows, as notes: made of its tables and pages when the knowledge base is
filled, so that the two cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files

from cudaops.cuda.architectures import ARCHITECTURES, Architecture
from cudaops.cuda.devices import DEVICES, Device
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.rule import Condition
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES, Subtype
from cudaops.rag.notes import BUILTIN, Note

DEVICE_TABLE = "cudaops' table of devices; each row's own source ends its passage"


def house_notes() -> list[Note]:
    """Devices, limits of their SMs, verdict rules, transformations before and after, their measured
    gains, launch plans.

    A section each, since of a note few passages are cited.
    """
    return [
        _note("devices", "Devices", DEVICE_TABLE, map(_device, DEVICES.values()))._replace(
            source="notes"  # no other note says it
        ),
        _note(
            "architectures", "Limits of an SM by architecture", "cudaops/cuda/architectures.py",
            map(_architecture, ARCHITECTURES.values()),
        ),
        _note("rules", "Verdict rules", "cudaops/cuda/rules.py", map(_rules, SUBTYPES)),
        _note(
            "transformations", "Transformations", "docs/transformations.md",
            [_TITLED.sub(r"## Transformation \1: \2, code before and after", _page(_PAGE))],
        ),
        _note("gains", "Measured gains", "benchmarks/results of the repository", _gains()),
        _note("launch-plans", "Launch plans", "docs/launch-plans.md", [_page("launch-plans")]),
    ]  # fmt: skip


_PAGE = "transformations"

_TITLED = re.compile(r"^## (\w+)$(?=\n\n([^.\n]+)\.)", re.MULTILINE)
"""A transformation's heading, and what it does in a few words."""


def _page(name: str) -> str:
    return files("cudaops.rag").joinpath("pages", f"{name}.md").read_text("utf-8")


GAINS = 12
"""Rewrites named for a transformation, the best first: as many as a passage holds."""


def _gains() -> Iterator[str]:
    """What each transformation gained in the accepted rewrites that were measured on a GPU."""
    table = files("cudaops.rag").joinpath("corpus", "gains.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
    rows.sort(key=lambda row: -float(row[2]))
    for name in sorted({each for by, *_ in rows for each in by.split(", ")}):
        using = [row for row in rows if name in row[0].split(", ")]
        said = "\n".join(
            f"- {program}: {speedup}x, {gpu}, {folder[:10]}, by {by}"
            for by, program, speedup, gpu, folder in using[:GAINS]
        )
        yield (
            f"## Measured gains of {name}: speedup, on what, on which GPU\n"
            f"{len(using)} accepted rewrites used it, most of them with others. Speedup over the "
            f"author's kernel by measured times:\n{said}\n"
        )


def _note(name: str, title: str, source: str, sections: Iterable[str]) -> Note:
    body = "\n".join(sections)
    return Note(name, BUILTIN, "reference", title, (), (), (source,), body, "house")


def _device(device: Device) -> str:
    """The limits of its SMs are its architecture's."""
    return (
        f"## {device.name}: number of multiprocessors (SMs), clock, bandwidth\n"
        f"{device.full_name}, compute capability {device.capability}: "
        f"{device.sm_count} SMs at {device.sm_clock_mhz:.0f} MHz ({device.sm_clock_kind}), "
        f"{device.memory_gb:g} GB at {device.dram_bandwidth_gb_s:.0f} GB/s, "
        f"L2 of {device.l2_bytes >> 20} MiB, at most {device.peak_fp32_gflops / 1000:.1f} TFLOP/s "
        f"in single and {device.peak_fp64_gflops / 1000:.2f} in double precision.\n"
        f"Source: {device.source}\n"
    )


def _architecture(sm: Architecture) -> str:
    rates = {"FP32": sm.fp32_lanes_per_sm, "INT32": sm.int32_lanes_per_sm,
             "FP64": sm.fp64_lanes_per_sm, "special functions": sm.sfu_lanes_per_sm}  # fmt: skip
    lanes = ", ".join(f"{name} {rate}" for name, rate in rates.items() if rate is not None)
    return (
        f"## {sm.sm_arch}, compute capability {sm.capability}: limits of an SM\n"
        f"An SM holds {sm.max_warps_per_sm} warps, {sm.max_threads_per_sm} threads, "
        f"{sm.max_blocks_per_sm} blocks and {sm.registers_per_sm} registers of 32 bits. Shared "
        f"memory per SM: {sm.shared_bytes_per_sm >> 10} KB of {sm.l1_shared_bytes_per_sm >> 10} KB "
        f"that L1 has with it; a block gets {sm.shared_bytes_per_block >> 10} KB, opted in "
        f"{sm.shared_bytes_per_block_optin >> 10} KB, and each takes "
        f"{sm.shared_reserved_per_block} bytes more. {sm.schedulers_per_sm} schedulers. Results a "
        f"cycle and SM: {lanes}.\nSource: {sm.arch_source}\n"
    )


def _rules(subtype: Subtype) -> str:
    info = SUBTYPES[subtype]
    said = [
        f"- {rule.severity}: {' and '.join(map(_condition, rule.conditions))}"
        + "".join(f", unless {_condition(each)}" for each in rule.unless)
        for rule in RULES
        if rule.subtype == subtype
    ]
    return (
        f"## {subtype}: thresholds of its verdict rules\n"
        f'A verdict says "limited by {info.title}" where one of these holds:\n'
        + "\n".join(said or ["- no other rule fires"])
        + "\n"
    )


def _condition(each: Condition) -> str:
    metric = METRICS.get(each.fact)
    name = f"{metric.label} (`{each.fact}`)" if metric else f"`{each.fact}`"
    return f"{name} {each.comparison} {each.threshold:g} ({each.source})"
