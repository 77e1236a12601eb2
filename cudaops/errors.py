"""Broken infrastructure and wrong input are exceptions; untrusted code's misbehaviour is a value.

CudaOpsError
├── Stopped               somebody asked the work to stop (executors/stopping.py)
├── InputError            what the user gave is wrong                       exit 2
│   └── PlanError         a launch directive or expression is wrong         exit 2
└── EnvironmentFailure    this machine cannot do it; carries a remedy       exit 3
    ├── PrerequisiteError a tool is missing or refuses
    ├── SandboxUnavailable the executor itself failed, not what it ran
    ├── KnowledgeUnavailable the knowledge store cannot be reached
    ├── ServiceUnavailable a service of cudaops or its database cannot be reached
    └── ModelUnavailable  a language model cannot be reached
"""

from __future__ import annotations


class CudaOpsError(Exception):
    """Base of everything cudaops raises on purpose."""


class InputError(CudaOpsError):
    """What the user gave is wrong. `str()` is one line that says what to do."""


class PlanError(InputError):
    """A `@launch`, `@scratch`, `@tune` or `@requires` directive is wrong."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.message = message
        self.line = line
        """1-based line in the rewrite's source (1 for a bare expression)."""
        self.column = column
        """1-based column, in characters."""


class EnvironmentFailure(CudaOpsError):
    """This machine cannot do what was asked."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
        """What the user can type or change."""


class PrerequisiteError(EnvironmentFailure):
    """A tool is missing or refuses: g++, nvcc, ncu."""


class SandboxUnavailable(EnvironmentFailure):
    """The executor itself failed: no space, no child process, a lost runner."""


class KnowledgeUnavailable(EnvironmentFailure):
    """PostgreSQL or its vector extension cannot be reached or started."""


class ServiceUnavailable(EnvironmentFailure):
    """A service of cudaops elsewhere, or the database of this one, cannot be reached."""


class ModelUnavailable(EnvironmentFailure):
    """A language or embedding model cannot be reached."""
