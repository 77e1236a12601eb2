"""cudaops: profile, diagnose, rewrite and prove CUDA kernels. Importing it loads nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudaops.api import (
        Report,
        optimize,
        optimize_async,
        profile,
        resume,
        resume_async,
        show,
        verify,
    )
    from cudaops.domain.run import (
        AwaitsReview,
        Event,
        ProfileSummary,
        ReviewAnswer,
        ReviewRequest,
        RunRecord,
    )
    from cudaops.errors import CudaOpsError, EnvironmentFailure, InputError

__version__ = "0.1.0"

__all__ = [
    "AwaitsReview",
    "CudaOpsError",
    "EnvironmentFailure",
    "Event",
    "InputError",
    "ProfileSummary",
    "Report",
    "ReviewAnswer",
    "ReviewRequest",
    "RunRecord",
    "optimize",
    "optimize_async",
    "profile",
    "resume",
    "resume_async",
    "show",
    "verify",
]


def __getattr__(name: str) -> Any:
    """What `__all__` names, loaded when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cudaops import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
