"""The remote executor with the `cuda` executor's machinery behind it, on the stand-in of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Misbehaved
from cudaops.program.plans import resolve
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.executors.remote import RemoteExecutor
from tests.sandbox.cases import array, compiled, ran, run, vector_case
from tests.sandbox.conformance import SCALE, SCALE_LAUNCH, rewrite
from tests.service.remote_service import RemoteService

pytestmark = [pytest.mark.nvcc]


@pytest.fixture
def executor(
    new_database: Callable[[], str], tmp_path: Path, cache: Path
) -> Iterator[RemoteExecutor]:
    service = RemoteService(new_database(), tmp_path / "service", cache, "cuda")
    try:
        service.start()
        made = RemoteExecutor(service.address, None, tmp_path / "remote")
        yield made
        made.close()
    finally:
        service.stop()


@pytest.mark.deep
def test_a_pair_is_timed_there_and_what_it_wrote_comes_back(
    executor: RemoteExecutor, tmp_path: Path
) -> None:
    executor.check_available()
    assert (executor.behind, executor.time_source) == ("cuda", "standin")
    case = vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)
    good = rewrite("if (i < n) b[i] = a[i] * by;")
    np.testing.assert_array_equal(
        array(ran(run(executor, case, good)).outputs[1])[:9:4], [0, 6, 12]
    )
    baseline, candidate = compiled(executor, case), compiled(executor, case, good)
    assert candidate.image is not None
    assert not (Path(candidate.folder) / candidate.image.name).exists()
    other = np.linspace(-1, 1, 1000, dtype=np.float32)
    other.tofile(tmp_path / "other.bin")
    inputs = InputSet(contents={0: str(tmp_path / "other.bin")}, poison={1: 7})
    pair = executor.measure_pair(
        baseline,
        candidate,
        case.workload,
        resolve(good, case.program.kernel("scale"), case.workload),
        alternatives=[inputs],
        folder=tmp_path / "watched",
    )
    assert not isinstance(pair, Misbehaved), pair
    for measured in pair:
        assert measured.source == "standin"
        assert measured.timing is not None
        found = {one.inputs: one for one in measured.timing.timed_outputs}
        for number, values in ((0, 0.5 * np.arange(1000)), (1, other)):
            path = Path(found[number].files[1])
            assert path.parent == tmp_path / "watched"
            np.testing.assert_array_equal(array(path), np.float32(3) * values.astype(np.float32))
    views = executor.texts(candidate.unit, executor.sm_arch)
    assert views[0].compiler == "nvcc"
    assert "a[i] * by" in views[0].candidate.text
    looks = executor.object_looks(candidate, baseline, executor.sm_arch, None)
    assert [line for look in looks for line in look.findings.refused] == []
