"""A local server that speaks NIM's protocol, errors included: the real clients run against it.

    with Nim(Reply("hello"), Reply(status=429, retry_after="1"), Reply(fault="cut")) as nim:
        ChatNVIDIA(model=nim.model, base_url=nim.url, api_key=nim.key)

By hand, with a script as docs/language-models.md describes it:
`python -m tests.nim --script examples/scripts/naive_matmul.json --port 8000`.
"""

from tests.nim.replies import Asked, Fault, Reply, Usage
from tests.nim.server import Nim, nim

__all__ = ["Asked", "Fault", "Nim", "Reply", "Usage", "nim"]
