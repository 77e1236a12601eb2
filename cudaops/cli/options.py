"""Options and arguments that several commands share: what they are called and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cudaops.domain.judgement import Precision
from cudaops.domain.run import ClockControl, ExecutorChoice
from cudaops.domain.search import Strategy
from cudaops.graph.placing import OptimizerChoice

SourceArgument = Annotated[
    Path, typer.Argument(metavar="FILE.cu", help="The program, as its author wrote it.")
]
ArgvArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- PROGRAM ARGS", help="Arguments for the program itself."),
]
KernelOption = Annotated[
    str | None, typer.Option(help="Kernel to work on [default: the one with most time].")
]
ExecutorOption = Annotated[
    ExecutorChoice | None,
    typer.Option(help="Where kernels run [default: the GPU where there is one]."),
]
ClockOption = Annotated[
    ClockControl,
    typer.Option("--clock-control", help="ncu only: leave the clocks alone, or lock them."),
]
OptimizerOption = Annotated[
    OptimizerChoice,
    typer.Option(help="Who proposes rewrites: `auto` is the model where one can be reached."),
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="Who that is: nvidia/..., openai:..., scripted:FILE, and more."),
]
StrategyOption = Annotated[
    Strategy, typer.Option(help="How candidates are looked for before one is judged.")
]
WidthOption = Annotated[
    int, typer.Option("--beam-width", min=1, max=16, help="Candidates at once (branch, beam).")
]
RoundsOption = Annotated[
    int, typer.Option("--beam-rounds", min=1, max=20, help="Most rounds of a beam.")
]
CostOption = Annotated[
    float | None, typer.Option(min=0.0, help="US dollars after which the model is not asked.")
]
TokensOption = Annotated[
    int | None, typer.Option(min=1, help="Tokens after which the model is not asked.")
]
TrialsOption = Annotated[
    int, typer.Option(min=1, help="Settings of one rewrite that the tuner measures at most.")
]
MinutesOption = Annotated[
    float | None, typer.Option(min=0.0, help="Minutes after which nothing further is tried.")
]
LibrariesOption = Annotated[
    bool,
    typer.Option("--allow-libraries", help="Candidates may include CUB, libcu++, CUTLASS."),
]
NoMemoryOption = Annotated[
    bool, typer.Option("--no-memory", help="Neither read nor add to what earlier runs learnt.")
]
IterationsOption = Annotated[int, typer.Option(min=1, max=50, help="Candidates to try.")]
SpeedupOption = Annotated[float, typer.Option(min=1.0, help="Baseline time over candidate time.")]
ArchOption = Annotated[str | None, typer.Option(help="nvcc target [default: the device's].")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Device whose time is modelled [default: A10].")
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Fix the secret inputs, to repeat a run [default: drawn].")
]
TimeoutOption = Annotated[
    float, typer.Option(min=1.0, help="Seconds for one run of the program or a candidate.")
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--allow-precision", help="Arithmetic less exact than the author's that is fine by you."
    ),
]
ReviewOption = Annotated[
    bool, typer.Option("--review", help="Show patch and evidence, and ask before accepting.")
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust-source", help="Needed with CUDAOPS_ISOLATION=off: you vouch for it."),
]
OutOption = Annotated[Path | None, typer.Option(help="Run folder [default: runs/KERNEL/TIME].")]
JsonOption = Annotated[bool, typer.Option("--json", help="Only the record as JSON on stdout.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder, run id, or latest.")]
HtmlOption = Annotated[
    bool, typer.Option("--html", help="Write one self-contained HTML file in its place.")
]
HtmlOutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where to [default: report.html in the run folder]."),
]
