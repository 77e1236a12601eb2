"""Health of a container: `healthy.py service` or `healthy.py worker`; exit code 0 where it is well.

service: /readyz on this container's port. worker: the database has heard from a worker of this host
within 30 s (cudaops/service/operation.py has the same bound).
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.request

SEEN_S = 30


def service_is_ready() -> bool:
    """Raises URLError where nothing listens, HTTPError for 503."""
    port = os.environ.get("CUDAOPS_HEALTH_PORT", "8080")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=8) as answer:
        return bool(answer.status == 200)


def worker_was_seen() -> bool:
    """Raises psycopg.Error where the database cannot be reached."""
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=8) as connection:
        found = connection.execute(
            "SELECT 1 FROM cudaops_service.workers WHERE starts_with(name, %s)"
            " AND seen_at > now() - make_interval(secs => %s) LIMIT 1",
            [f"{socket.gethostname()}-", SEEN_S],
        ).fetchone()
    return found is not None


if __name__ == "__main__":
    sys.exit(not {"service": service_is_ready, "worker": worker_was_seen}[sys.argv[1]]())
