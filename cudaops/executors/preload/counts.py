"""What a preloaded library counted, as it wrote it into a file."""

from __future__ import annotations

import json
from pathlib import Path

from cudaops.domain.execution import Replaced
from cudaops.executors.untrusted_files import UntrustedFileError, open_untrusted

COUNTS_VARIABLE = "CUDAOPS_PRELOAD_COUNTS"
"""Names the file; one line a process that had the driver."""
PAUSE_VARIABLE = "CUDAOPS_PRELOAD_PAUSE_SECONDS"
"""For so long a program may launch nothing before it is ended, as a recorder ends it."""
_MOST_BYTES = 1 << 20


def read_counts(path: Path) -> Replaced | None:
    """The sums over all lines; None where there is none that can be read."""
    try:
        with open_untrusted(path.parent, path.name) as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
        rows = [row for line in lines for row in json.loads(line)]
        reasons = [str(row["reason"]) for row in rows if row["reason"] is not None]
        return (
            Replaced(
                by_rewrite=sum(int(row["rewrite"]) for row in rows),
                by_author=sum(int(row["author"]) for row in rows),
                reason=reasons[0][:300] if reasons else "",
            )
            if rows
            else None
        )
    except (UntrustedFileError, ValueError, KeyError, TypeError):
        return None
