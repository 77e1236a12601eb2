"""Many certified rewrites judged again, as one table: what holds, and what has drifted since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cudaops.domain.certificate import Certificate, Confirmation
from cudaops.domain.judgement import Judgement
from cudaops.reports.quantities import Clock, one_line, times_faster


class ConfirmationRow(NamedTuple):
    """One run of the folder. Either judged again, or refused with `problem`."""

    run: str
    """Its folder, below the one that was named."""
    certificate: Certificate | None = None
    confirmation: Confirmation | None = None
    problem: str | None = None

    @property
    def result(self) -> str:
        """`holds`, `drifted`, `fails`; `refused` where it could not be judged here."""
        return "refused" if self.confirmation is None else self.confirmation.result


def table(rows: Sequence[ConfirmationRow]) -> RenderableType:
    """A row a run: speedup then and now, by how much they differ, which tools have changed, why."""
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("run", "result", "certified", "now", "drift", "tools changed", "why"):
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(one_line(cell, 400)) for cell in cells(row)))
    return shown


def cells(row: ConfirmationRow) -> tuple[str, ...]:
    """The columns of `table`."""
    if row.certificate is None or row.confirmation is None:
        return (row.run, row.result, "", "", "", "", row.problem or "")
    then, now = row.certificate, row.confirmation
    drift = drift_pct(row)
    return (
        row.run,
        row.result,
        _speedup(then.judgement, then),
        _speedup(now.judgement, now),
        "" if drift is None else f"{drift:+.1f} %",
        ", ".join(changed_tools(row)),
        "" if now.result == "holds" else now.reason,
    )


def drift_pct(row: ConfirmationRow) -> float | None:
    """By how much today's speedup differs from the certificate's; None where they are of other
    devices or clocks, or there is none."""
    then, now = row.certificate, row.confirmation
    if then is None or now is None:
        return None
    before, after = then.judgement.speedup, now.judgement.speedup
    same = (then.device, then.time_source) == (now.device, now.time_source)
    return 100 * (after / before - 1) if same and before and after else None


def changed_tools(row: ConfirmationRow) -> list[str]:
    """`nvcc 12.8 to 13.0`; those of one side alone too."""
    if row.certificate is None or row.confirmation is None:
        return []
    then, now = row.certificate.tools, row.confirmation.tools
    return [
        f"{name} {then.get(name, 'none')} to {now.get(name, 'none')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]


def counted(rows: Sequence[ConfirmationRow]) -> str:
    """`4 certificates: 2 holds, 1 drifted, 1 refused`."""
    parts = [f"{number} {word}" for word, number in Counter(row.result for row in rows).items()]
    return f"{len(rows)} certificate{'' if len(rows) == 1 else 's'}: {', '.join(parts)}"


def to_record(row: ConfirmationRow) -> dict[str, Any]:
    """For `--json`."""
    return {
        "run": row.run,
        "result": row.result,
        "problem": row.problem,
        "certified_speedup": row.certificate and row.certificate.judgement.speedup,
        "drift_pct": drift_pct(row),
        "tools_changed": changed_tools(row),
        "confirmation": row.confirmation and row.confirmation.model_dump(mode="json"),
    }


def _speedup(judgement: Judgement, of: Certificate | Confirmation) -> str:
    if judgement.speedup is None:
        return ""
    return times_faster(judgement.speedup, Clock(of.time_source, of.device))
