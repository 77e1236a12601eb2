"""The reference pages on metrics and verdicts, written from the tables.

`python -m cudaops.cuda.document metrics > docs/metrics.md`, the same with `verdicts`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from cudaops.cuda.derived import DERIVED, SPECIAL, label_and_unit
from cudaops.cuda.metrics import COUNTER_ROWS, DETAILS_ROWS, MetricDef
from cudaops.cuda.rule import Condition, Rule
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import NVIDIA_MEANINGS

_METRICS_INTRO = (
    "Written by `python -m cudaops.cuda.document metrics` from `cudaops/cuda/metrics.py`; a test "
    "holds this page to the table. Keys everywhere are ncu's raw names. A metric that was not "
    "collected is missing, never 0."
)
_VERDICTS_INTRO = (
    "Written by `python -m cudaops.cuda.document verdicts` from `cudaops/cuda/subtypes.py` and "
    "the rule tables; a test holds this page to them. A rule fires where every condition holds "
    "and every metric in it was collected. The verdict is the fired rule with the lowest "
    "priority number, but those from 15 to 50 (idle SMs, busy units and causes behind them) are "
    "one tier, ranked by what removing the cause saves at most: what the busiest of the other "
    "units leaves of the time, and no more than its own unit is busy (`cudaops/cuda/gains.py`). "
    "Among equals it is the one whose first value is largest; all fired rules are the verdict's "
    "findings. Every rule is tried by `tests/cuda/test_rules.py` (it fires on what "
    "it describes, is silent just beyond each threshold and without any one of its metrics), every "
    "subtype by a launch in `tests/cuda/test_verdict.py`. The last column names the rules of "
    "Nsight Compute that may say the same; which of their texts do stands in "
    "`cudaops/cuda/verdict.py`."
)


def metrics_page() -> str:
    """docs/metrics.md: every metric with its meaning, section by section."""
    parts = [
        "# Metrics",
        _METRICS_INTRO,
        "## On ncu's details page (`--set full`)",
        *_sections(DETAILS_ROWS),
        "## On the raw page only",
        *_sections(COUNTER_ROWS),
        "## Derived by cudaops",
        "Known only where everything they are derived from was collected.",
        table(
            ("name", "label", "unit", "meaning", "from"),
            [
                (f"`{row.name}`", row.label, row.unit, row.meaning,
                 ", ".join(f"`{name}`" for name in row.inputs))
                for row in DERIVED.values()
            ]
            + [
                (f"`{name}`", label, unit, meaning, "")
                for name, (label, unit, meaning) in SPECIAL.items()
            ],
        ),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def verdicts_page() -> str:
    """docs/verdicts.md: every subtype with its relief, and every rule with its thresholds."""
    subtypes = [
        (
            f"`{key}`",
            info.bottleneck_class,
            f"{info.one_line} {info.relief}",
            ", ".join(f"`{rule.id}`" for rule in RULES if rule.subtype == key),
            ", ".join(dict.fromkeys(m.rule for m in NVIDIA_MEANINGS if key in m.subtypes)),
        )
        for key, info in SUBTYPES.items()
    ]
    parts = [
        "# Verdicts",
        _VERDICTS_INTRO,
        "## Subtypes",
        table(
            ("subtype", "class", "what happens, and what relieves it", "our rules", "NVIDIA's"),
            subtypes,
        ),
        "## Rules",
        *(_rule(rule) for rule in sorted(RULES, key=lambda rule: rule.priority)),
    ]
    return "\n\n".join(parts) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {"metrics": metrics_page, "verdicts": verdicts_page}


def _sections(rows: Iterable[MetricDef]) -> list[str]:
    by_section: dict[str, list[MetricDef]] = {}
    for row in rows:
        by_section.setdefault(row.section, []).append(row)
    parts: list[str] = []
    for section, members in by_section.items():
        parts.append(f"### {section}")
        body = [(f"`{m.name}`", m.label, m.unit or "count", _meaning(m)) for m in members]
        parts.append(table(("raw name", "label", "unit", "meaning"), body))
    return parts


def _meaning(row: MetricDef) -> str:
    shown = "".join(f" Also shown as {label} ({section})." for section, label in row.also_shown)
    older = "".join(f" Other versions: `{alias}`." for alias in row.aliases)
    return row.meaning + shown + older + (f" Not on: {row.not_on}." if row.not_on else "")


def _rule(rule: Rule) -> str:
    lines = [f"### `{rule.id}`", ""]
    lines.append(f"`{rule.subtype}`, priority {rule.priority}, {rule.severity}.")
    lines.append("")
    lines += [f"- {_condition(condition)}" for condition in rule.conditions]
    lines += [f"- silent where {_condition(condition)}" for condition in rule.unless]
    return "\n".join(lines)


def _condition(condition: Condition) -> str:
    label, unit = label_and_unit(condition.fact)
    amount = f"{condition.threshold:g} {unit}".strip()
    return f"{label} {condition.comparison} {amount} (`{condition.fact}`): {condition.source}"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    """Write one page to standard output; 2 where none is named."""
    page = PAGES.get(arguments[0]) if len(arguments) == 1 else None
    if page is None:
        sys.stderr.write(f"name one page: {', '.join(PAGES)}\n")
        return 2
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
