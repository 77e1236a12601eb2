"""`confirm`: what holds, what has drifted, what fails, and what is no input for it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudaops.certify.envelope import canonical, open_envelope, seal
from cudaops.certify.keys import NoKey, Signer, find_key
from cudaops.cli.runs import load_record
from cudaops.domain.certificate import (
    CERTIFICATE_FORMAT,
    Certificate,
    Confirmation,
    FileHash,
    contradictions,
    judged_again,
)
from cudaops.domain.memory import MemoryEntry
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.graph.certificate import best_files, open_certified
from cudaops.graph.confirm import CONFIRMATION_NAME, confirm_run
from cudaops.graph.events import read_events
from cudaops.graph.folder import best_texts
from cudaops.memory.store import MemoryStore
from cudaops.program.patch import unified_patch
from cudaops.program.plans import make_rewrite
from cudaops.reports.confirmations import ConfirmationRow, to_record
from cudaops.sandbox.anchors import anchors_of_run
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import load_settings
from tests.certify.runs import cudaops
from tests.certify.samples import new_signer
from tests.processes import runners
from tests.standin.platform import STANDIN

Bend = Callable[[Certificate], dict[str, Any]]


@pytest.fixture(scope="module")
def home(certified: Path) -> Path:
    return certified


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Path:
    """A copy of the run folder, as somebody else would get it."""
    return Path(shutil.copytree(home / "run", tmp_path / "copy"))


def own_key(home: Path) -> Signer:
    signer = find_key(home / "key" / "signing.key")
    assert isinstance(signer, Signer)
    return signer


def confirm(
    run: Path, home: Path, memory: Path | str = "off", *, use_memory: bool = True
) -> Confirmation:
    certified = open_certified(run, own_key(home).fingerprint)
    changed = {"signing_key": home / "key" / "signing.key", "memory": str(memory)}
    settings = load_settings().model_copy(update=changed)
    options = load_record(run).options.model_copy(update={"use_memory": use_memory})
    done = confirm_run(certified, options, lambda _: None, settings)
    envelope = open_envelope((done.folder / CONFIRMATION_NAME).read_bytes(), "confirmation")
    assert envelope.state == "signed"
    assert envelope.record == done.confirmation
    return done.confirmation


def remembered(memory: Path) -> tuple[MemoryEntry, ...]:
    """Every entry there, of the one kernel."""
    (kernel,) = MemoryStore(memory).kernels()
    assert kernel.key.device_class == "sm_86"
    assert kernel.key.name == "correlate"
    return kernel.entries


def certificate_of(run: Path) -> Certificate:
    record = open_envelope((run / "certificate.json").read_bytes(), "certificate").record
    assert isinstance(record, Certificate)
    return record


def sign_again(run: Path, signer: Signer | NoKey, **changed: Any) -> None:
    certificate = certificate_of(run).model_copy(update=changed)
    (run / "certificate.json").write_bytes(seal(CERTIFICATE_FORMAT, certificate, signer))


def bench_of(run: Path) -> Workbench:
    certificate = certificate_of(run)
    executor = CpuExecutor("A10", load_settings().builds_folder)
    return Workbench.load(run, executor, certificate.policy, sm_arch="sm_86", timeout_s=120.0)


def replace_rewrite(run: Path, old: str, new: str, proposer: str = "user") -> None:
    """Put another candidate into the folder, with every hash and the signature made to fit."""
    certificate = certificate_of(run)
    path = run / "iterations" / "01" / "candidate.cu"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    rewrite = make_rewrite(path.read_text("utf-8"), proposer, certificate.candidate.title, "")
    bench = bench_of(run)
    spliced = bench.spliced(rewrite)
    texts = {**best_texts(spliced), "best.patch": unified_patch(bench.program, spliced)}
    for name, content in texts.items():
        (run / name).write_text(content, encoding="utf-8", newline="")
    files = tuple(
        FileHash(path=f.path, sha256=hashlib.sha256((run / f.path).read_bytes()).hexdigest())
        for f in certificate.files
    )
    assert {f.path: f.sha256 for f in files}.items() >= best_files(bench, rewrite).items()
    candidate = certificate.candidate.model_copy(update={"id": rewrite.id, "proposer": proposer})
    sign_again(run, new_signer(), files=files, candidate=candidate)


def test_it_holds_on_the_machine_that_made_it(home: Path, tmp_path: Path) -> None:
    """Through the command line; the folder was moved and its first place is gone."""
    moved = shutil.copytree(home / "run", tmp_path / "moved")
    key = home / "key" / "signing.key"
    done = cudaops("confirm", moved, "--json", key=key)
    assert done.returncode == 0, done.stdout + done.stderr
    confirmation = Confirmation.model_validate_json(done.stdout)
    certificate = certificate_of(moved)
    assert confirmation.result == "holds"
    assert confirmation.judgement.outcome == "provisional"
    assert confirmation.seed != certificate.seed
    assert {a.result for a in confirmation.anchors} == {"equal"}
    assert confirmation.speedup.result == "covered"
    assert confirmation.certificate_signer == own_key(home).fingerprint
    assert confirmation.notices == ()
    (folder,) = (moved / "confirmations").iterdir()
    assert {p.name for p in folder.iterdir()} == {CONFIRMATION_NAME, "events.jsonl"}
    checked = cudaops("certify", "check", folder / CONFIRMATION_NAME, key=key)
    assert checked.returncode == 0, checked.stdout


def test_what_holds_is_remembered_where_the_run_put_it(
    run: Path, home: Path, tmp_path: Path
) -> None:
    record = load_record(run)
    assert record.profile is not None
    confirm(run, home, tmp_path / "memory")
    (entry,) = remembered(tmp_path / "memory")
    assert (entry.outcome, entry.time_source, entry.gate) == ("provisional", "modelled", None)
    assert (entry.subtype, entry.family) == (record.profile.subtype, "other")
    assert (entry.run_id, entry.source_id) == (record.run_id, record.attempts[0].source_id)
    assert entry.lesson.startswith("judged again with new inputs: ")


def test_without_memory_nothing_is_remembered(run: Path, home: Path, tmp_path: Path) -> None:
    assert confirm(run, home, tmp_path / "memory", use_memory=False).result == "holds"
    assert not (tmp_path / "memory").exists()


def test_a_memory_that_takes_nothing_costs_one_notice(
    run: Path, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "memory").write_text("a file in its place")
    assert confirm(run, home, tmp_path / "memory").result == "holds"
    (events,) = run.glob("confirmations/*/events.jsonl")
    (notice,) = [e.message for e in read_events(events) if e.kind == "notice"]
    assert str(tmp_path / "memory") in notice
    assert "this result is not stored" in notice


def test_a_wrong_rewrite_signed_by_somebody_else_fails(
    run: Path, home: Path, tmp_path: Path
) -> None:
    replace_rewrite(run, "k < 32", "k < 31", proposer="recipe:matmul")
    confirmation = confirm(run, home, tmp_path / "memory")
    (entry,) = remembered(tmp_path / "memory")
    assert (entry.outcome, entry.gate) == ("rejected", "correctness_captured")
    assert entry.proposer == "user", "a stranger's word about our recipes counts for nothing"
    assert confirmation.result == "fails"
    assert confirmation.reason.startswith("correctness_captured")
    assert "not this machine's key" in confirmation.notices[0]
    assert not list(run.glob("confirmations/*/certificate.json"))


def test_a_slower_rewrite_signed_by_somebody_else_fails(run: Path, home: Path) -> None:
    replace_rewrite(
        run,
        "blockIdx.x * blockDim.x + threadIdx.x",
        "threadIdx.x * gridDim.x + blockIdx.x",
    )
    confirmation = confirm(run, home)
    assert confirmation.result == "fails"
    assert "threshold 1.10x" in confirmation.reason


def test_a_baseline_compiled_otherwise_has_drifted(run: Path, home: Path) -> None:
    """Anchors recorded where products are rounded before they are summed."""
    bench = bench_of(run)
    product = "x[(i + k * 64) % n] * x[(i + k * 96) % n]"
    assert product in bench.program.main.text
    rounded = bench.program.main.text.replace(
        product, f"__fmul_rn({product.replace(' * x', ', x')})"
    )
    main = bench.program.main.model_copy(update={"text": rounded})
    other = bench.program.model_copy(update={"files": (main,)})
    assert isinstance(other, Program)
    elsewhere = Workbench(
        other, bench.captured, bench.executor, bench.policy, run, sm_arch="sm_86", timeout_s=120.0
    )
    recorded = tuple(
        a.model_copy(update={"compiler": "g++ with -ffp-contract=off"})
        for a in anchors_of_run(elsewhere)
    )
    sign_again(run, own_key(home), anchors=recorded)
    confirmation = confirm(run, home)
    assert confirmation.result == "drifted", confirmation.reason
    assert confirmation.reason.startswith("anchor w0/signed: allocation 1 is ")
    assert "g++ with -ffp-contract=off" in confirmation.reason
    exact = next(a for a in confirmation.anchors if a.probe == "exact")
    assert exact.result == "equal", "integers are the same however they are compiled"


def bend_speedup(run: Path, home: Path, **more: Any) -> None:
    """Twice the speedup that was measured, signed by this machine's key."""
    """A certificate whose baseline was twice as slow."""
    certificate = certificate_of(run)
    slower = tuple(
        c.model_copy(
            update={
                "baseline": c.baseline.model_copy(
                    update={"samples_us": tuple(2 * s for s in c.baseline.samples_us)}
                )
            }
        )
        for c in certificate.comparisons
    )
    bent = certificate.model_copy(update={"comparisons": slower})
    sign_again(run, own_key(home), comparisons=slower, judgement=judged_again(bent), **more)


def test_another_speedup_has_drifted(run: Path, home: Path, tmp_path: Path) -> None:
    bend_speedup(run, home)
    confirmation = confirm(run, home, tmp_path / "memory")
    assert confirmation.result == "drifted"
    assert not (tmp_path / "memory").exists(), "it neither held nor failed"
    assert confirmation.reason.startswith("speedup: ")
    assert "in the certificate" in confirmation.reason


def test_an_unsigned_certificate_is_confirmed_and_said_to_be_unsigned(
    run: Path, home: Path
) -> None:
    sign_again(run, NoKey("no place"))
    confirmation = confirm(run, home)
    assert confirmation.result == "holds"
    assert confirmation.certificate_signer is None
    assert confirmation.notices == ("the certificate is not signed: no place",)


def edited(path: Path) -> None:
    path.write_text(path.read_text("utf-8") + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda run: (run / "certificate.json").unlink(), "holds no certificate.json"),
        (lambda run: (run / "certificate.json").write_text("{}"), "is no certificate"),
        (lambda run: edited(run / "certificate.json"), "was altered"),
        (lambda run: edited(run / "best.cu"), "best.cu: DIFFERS"),
        (lambda run: edited(run / "best.patch"), "best.patch: DIFFERS"),
        (lambda run: edited(run / "state" / "program.json"), "state/program.json: DIFFERS"),
        (lambda run: edited(run / "state" / "captured.json"), "state/captured.json: DIFFERS"),
        (lambda run: (run / "state" / "program.json").unlink(), "state/program.json is missing"),
        (lambda run: shutil.rmtree(run / "workloads"), "workload w0 is missing"),
        (lambda run: edited(run / "iterations/01/candidate.cu"), "candidate.cu: DIFFERS"),
    ],
)
def test_a_damaged_folder_is_one_line(
    run: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(run)
    with pytest.raises(InputError) as refused:
        open_certified(run, None)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_changed_input_is_seen(run: Path) -> None:
    path = run / "workloads" / "w0" / "a0.before.bin"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(InputError, match="workload w0: DIFFERS"):
        open_certified(run, None)


def test_a_best_file_that_is_not_the_candidate_is_refused(run: Path, home: Path) -> None:
    """Somebody puts another file for the user to take, and signs that."""
    (run / "best.cu").write_text("int main() { return 0; }\n")
    digest = hashlib.sha256((run / "best.cu").read_bytes()).hexdigest()
    files = tuple(
        f.model_copy(update={"sha256": digest}) if f.path == "best.cu" else f
        for f in certificate_of(run).files
    )
    sign_again(run, new_signer(), files=files)
    with pytest.raises(InputError, match="is not the author's program with the certified"):
        confirm(run, home)
    assert not (run / "confirmations").exists()


@pytest.mark.nvcc
def test_no_runner_stays(run: Path, home: Path) -> None:
    """On the stand-in of a GPU, of a rewrite that is refused before it is judged."""
    (run / "best.cu").write_text("int main() { return 0; }\n")
    options = load_record(run).options.model_copy(update={"executor": "cuda", "device": None})
    settings = load_settings().model_copy(update={"gpu_driver": STANDIN})
    others = runners()
    with pytest.raises(InputError):
        confirm_run(open_certified(run, None), options, lambda _: None, settings)
    assert runners() == others


def test_a_lenient_policy_is_said(run: Path) -> None:
    policy = certificate_of(run).policy.model_copy(update={"max_error_factor": 1e9})
    sign_again(run, new_signer(), policy=policy)
    notices = open_certified(run, None).notices
    assert any("error factor 1e+09, usual 4" in line for line in notices)


def test_wrong_input_on_the_command_line(run: Path, home: Path) -> None:
    key = home / "key" / "signing.key"
    gone = cudaops("confirm", "nowhere", key=key)
    assert gone.returncode == 2
    assert len(gone.stderr.splitlines()) == 1
    document = json.loads((run / "certificate.json").read_bytes())
    document["body"]["bar"] = 1.05
    (run / "certificate.json").write_bytes(canonical(document))
    done = cudaops("confirm", run, key=key)
    assert done.returncode == 2
    assert "was altered: the signature does not belong to this text" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.timeout(580)
def test_a_folder_of_certificates_is_one_table(home: Path, tmp_path: Path) -> None:
    """One that has drifted since another nvcc, one that was altered; not what an earlier
    confirmation left there."""
    folder, key = tmp_path / "kept", home / "key" / "signing.key"
    drifted, refused = folder / "deep" / "drifted", folder / "deep" / "refused"
    for each in (drifted, refused):
        shutil.copytree(home / "run", each)
    bend_speedup(drifted, home, tools={"nvcc": "12.8"})
    shutil.copytree(home / "run", drifted / "confirmations" / "x")
    with (refused / "best.cu").open("a", encoding="utf-8") as file:
        file.write("// altered\n")
    done = cudaops("confirm", folder, key=key)
    assert done.returncode == 1, done.stderr
    words = " ".join(done.stdout.split())
    assert words.startswith("run result certified now drift tools")
    assert "-50.0 %" in words
    assert words.endswith("2 certificates: 1 drifted, 1 refused")
    (path,) = drifted.glob("confirmations/*/confirmation.json")
    confirmation = open_envelope(path.read_bytes(), "confirmation").record
    assert isinstance(confirmation, Confirmation)
    row = to_record(ConfirmationRow("deep/drifted", certificate_of(drifted), confirmation))
    assert row["result"] == "drifted"
    assert row["drift_pct"] == pytest.approx(-50, abs=5)
    assert any(text.startswith("nvcc 12.8 to ") for text in row["tools_changed"])
    assert Confirmation.model_validate(row["confirmation"]) == confirmation


def test_a_folder_without_certificates_is_one_line(home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = cudaops("confirm", tmp_path / "empty", key=home / "key" / "signing.key")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "holds none with a certificate.json" in done.stderr


@pytest.mark.gpu
def test_a_modelled_rewrite_is_accepted_on_a_gpu(tmp_path: Path) -> None:
    key = tmp_path / "key" / "signing.key"
    source = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"
    made = cudaops("run", source, "--executor", "cpu", "--out", tmp_path / "run", key=key)
    assert made.returncode == 0, made.stderr
    done = cudaops("confirm", tmp_path / "run", "--executor", "cuda", key=key)
    assert done.returncode == 0, done.stdout + done.stderr
    (accepted,) = (tmp_path / "run").glob("confirmations/*/certificate.json")
    assert certificate_of(accepted.parent).outcome == "accepted"
    checked = cudaops("certify", "check", accepted, key=key)
    assert checked.returncode == 0, checked.stdout


def test_a_certificate_of_several_runs_holds(home: Path, tmp_path: Path) -> None:
    """Each workload says which run it is of and what for; all of them are judged again."""
    sizes = Path(__file__).parents[1] / "data" / "sizes"
    key = home / "key" / "signing.key"
    made = cudaops(
        "verify", str(sizes / "rows.cu"), str(sizes / "a_warp_a_row.cu"), "--executor",
        "cpu", "--device", "H200", "--min-speedup", "1.05", "--args", "judged: 100 64 1", "--args",
        "256 80 4", "--args", "timed*2: 2048 512 4", "--out", str(tmp_path / "run"), key=key,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    certificate = certificate_of(tmp_path / "run")
    assert [run.role for run in certificate.program.runs] == ["judged", "both", "timed"]
    assert [(w.id, w.run, w.role) for w in certificate.workloads] == [
        ("w0", 2, "timed"), ("w1", 1, "both"), ("w2", 0, "judged"),
    ]  # fmt: skip
    assert {a.workload for a in certificate.anchors} == {"w1", "w2"}
    assert contradictions(certificate) == ()
    assert confirm(tmp_path / "run", home).result == "holds"
