"""What a report says about measured times: the program's, and how the kernel's were taken."""

from __future__ import annotations

from cudaops.domain.run import RunRecord
from cudaops.reports.facts import clock_of
from cudaops.reports.quantities import Clock, milliseconds, significant


def program_sentence(record: RunRecord) -> str | None:
    """What share of the program the kernel is; None where the program was not timed."""
    program = record.program
    if program is None or program.program_seconds is None or program.kernel_share_pct is None:
        return None
    kernel_ms = 1000 * (program.kernel_seconds or 0.0)
    text = (
        f"One run of the program takes {significant(program.program_seconds)} s, its launches of "
        f"{program.kernel} {significant(kernel_ms)} ms of that "
        f"({significant(program.kernel_share_pct, 3)} %; {clock_of(record)})"
    )
    if program.reported_kernel_ms is not None:
        text += f"; the program itself prints KERNEL_MS {significant(program.reported_kernel_ms)}"
    if program.best_program_seconds is not None:
        text += f"; with the rewrite it takes {significant(program.best_program_seconds)} s"
    return text + "."


def timing_sentences(record: RunRecord) -> list[str]:
    """How times were measured, cold and warm; nothing where they are modelled."""
    timing, clock = record.verify.timing, clock_of(record)
    if timing is None:
        return []
    rows = [
        f"{name}: {milliseconds(found.baseline_ms, clock)} to "
        f"{milliseconds(found.candidate_ms, clock)}, {found.speedup:.2f}×{decides}"
        for name, found, decides in (
            ("L2 cold", timing.cold, " (decides)" if timing.regime == "cold" else ""),
            ("L2 warm", timing.warm, " (decides)" if timing.regime == "warm" else ""),
        )
        if found is not None
    ]
    if timing.cupti is not None:
        seen = Clock("cupti", record.device)
        rows.append(
            f"CUPTI: {milliseconds(timing.cupti.baseline_ms, seen)} to "
            f"{milliseconds(timing.cupti.candidate_ms, seen)}, {timing.cupti.speedup:.2f}×"
        )
    taken = f"{timing.samples} pairs of samples, {timing.blocks_redone} noisy blocks taken again"
    if timing.sm_clock_mhz is not None:
        taken += f", SM clock {timing.sm_clock_mhz[0]:.0f}-{timing.sm_clock_mhz[1]:.0f} MHz"
    if timing.temperature_c is not None:
        taken += f", {timing.temperature_c[0]:.0f}-{timing.temperature_c[1]:.0f} °C"
    return [*rows, taken, *timing.notices]
