"""The results of a run in its folder: record, report, rewrite and certificate."""

from __future__ import annotations

import time
from pathlib import Path

from cudaops.domain.model_use import ModelUse
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.executors.ledger import LEDGER, seconds_by_tool
from cudaops.executors.untrusted_files import remove
from cudaops.graph.certificate import write_certificate
from cudaops.graph.folder import run_id_of, taken_home, write_best, write_whole
from cudaops.graph.opening import OpenRun
from cudaops.graph.record import build_record, with_library_time, with_summary
from cudaops.graph.state import State
from cudaops.problem.kernelbench import MODEL_NEW, model_new
from cudaops.reports import markdown
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

NOT_ENDED = "the run did not finish and has no certificate; resume it"


def finish(
    open_run: OpenRun,
    state: State,
    started: float,
    settings: Settings,
    use: ModelUse | None = None,
    *,
    goes_on: bool = False,
    ended: bool = True,
) -> RunRecord:
    """Write the run's results and clear what can be made again. `started`: by `time.monotonic`.
    `goes_on`: the bench is worked with further, so that it keeps everything. `ended`: False where
    these are the results so far."""
    options, bench, folder = open_run.options, open_run.bench, open_run.folder
    run_id = run_id_of(bench.kernel.name, folder)
    spent = seconds_by_tool(LEDGER.since(started), time.monotonic() - started)
    record = build_record(
        run_id, open_run.date, options, bench, state, open_run.intake_seconds, spent
    )
    notices = record.notices if ended else (*record.notices, NOT_ENDED)
    record = record.model_copy(update={"model": use, "ended": ended, "notices": notices})
    record = with_summary(record, settings.gpu_price)
    if ended:
        record = with_library_time(record, bench)
    if record.best is not None:
        if not goes_on:  # thousands of files, and every gate that reads them is over
            bench.ahead.begin(lambda: remove(folder / "work" / "domain"))
        spliced = bench.spliced(record.best)
        write_best(folder, *taken_home(bench.program, spliced))
        if ended:
            open_run.events.announcing("report", "report")(
                "writing the certificate: reference results on its public inputs"
            )
        # Its anchors are run on this machine's processor: once, at the end.
        unsigned = (
            write_certificate(folder, record, bench, state, settings.signing_key) if ended else None
        )
        if unsigned is not None:
            notice = f"the certificate is not signed: {unsigned}"
            record = record.model_copy(update={"notices": (*record.notices, notice)})
    record = with_model_new(record, bench, folder)
    write_whole(folder / "report.md", markdown.run_report(record))
    write_whole(folder / "run.json", record.model_dump_json(indent=2) + "\n")
    if not goes_on:
        bench.ahead.end()
        remove(folder / "work")
    return record


def with_model_new(record: RunRecord, bench: Workbench, folder: Path) -> RunRecord:
    """Write `model_new.py` of a problem in KernelBench's form, with the best rewrite or else the
    author's kernels; the record, which says so where that cannot be."""
    problem = bench.program.problem
    if problem is None or problem.form != "kernelbench":
        return record
    best = bench.program if record.best is None else bench.spliced(record.best)
    try:
        write_whole(folder / MODEL_NEW, model_new(best))
    except InputError as error:
        notice = f"there is no {MODEL_NEW}: {error}"
        return record.model_copy(update={"notices": (*record.notices, notice)})
    return record
