"""What a person is shown before they say yes or no: the patch, then the evidence."""

from __future__ import annotations

from cudaops.domain.run import ReviewRequest


def review_text(request: ReviewRequest) -> str:
    """Plain text, patch first, the question's facts last, where a terminal shows them."""
    lines = [request.patch.rstrip("\n"), "", f"{request.title}, proposed by {request.proposer}"]
    if request.why:
        lines.append(f"  why: {request.why}")
    lines += [f"  {line}" for line in request.gates]
    if request.quarantined:
        lines += ["", "a yes releases what is quarantined:"]
        lines += [f"  {line}" for line in request.quarantined]
    lines += ["", f"on a yes it is {request.outcome}: {request.reason}"]
    return "\n".join(lines)
