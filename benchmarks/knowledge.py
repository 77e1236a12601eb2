"""How much a warm search of the knowledge base costs against the first one, in one run.

    python benchmarks/knowledge.py

The first search of a fresh folder ingests the built-in notes; the ratio of the two does not depend
on how fast the machine is. What was measured stands in docs/knowledge.md.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge

WARM_SEARCHES = 50
QUERY = "how to relieve it"


def main() -> None:
    """Print first, warm and their ratio."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cudaops-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        started = time.perf_counter()
        knowledge = Knowledge.open(
            database_url=None, data_folder=folder, embedder=WordLlamaEmbedder()
        )
        opened = time.perf_counter() - started
        times = []
        for _ in range(1 + WARM_SEARCHES):
            started = time.perf_counter()
            knowledge.search(QUERY, 5, "l1_load_throughput")
            times.append(time.perf_counter() - started)
        knowledge.close()
    warm = statistics.median(times[1:])
    print(f"open (initdb and start) {opened:.2f} s")
    print(f"first search (ingests)  {times[0]:.2f} s")
    print(f"warm search, median     {1e3 * warm:.1f} ms")
    print(f"first / warm            {times[0] / warm:.0f}")


if __name__ == "__main__":
    main()
