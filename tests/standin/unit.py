"""What the stand-in's driver must know of a unit: asked from the unit itself and from its cubin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Unit
from cudaops.errors import SandboxUnavailable
from cudaops.executors.cpu.build import BASELINE_ENTRY, Built
from cudaops.executors.cuda.platform import Module
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded
from cudaops.program.candidate import NAMESPACE
from cudaops.program.plans import instance
from tests.standin.image import (
    Image,
    KernelImage,
    Parameter,
    VariableImage,
    registration,
)

IMAGE = "image.json"
TIMEOUT_S = 60.0
_FIXED = 0x400000
"""Where a non-PIE executable is linked; smaller values are shared memory, which is thread-local."""
_OURS = ("cudaops_entry_", "cudaops_global_", "guard variable for ")


class Described(NamedTuple):
    """What a unit says of itself."""

    kernels: dict[int, list[tuple[str, int]]]
    """Kind and size of each parameter, by entry."""
    variables: dict[str, int]
    """Size of each variable, by name."""


def write_image(folder: Path, unit: Unit, real: Module, built: Built) -> None:
    """Write the image of a unit and its variables' initial contents."""
    own = tuple(_own_variables(built.executable, real))
    image = Image(
        executable=str(built.executable.absolute()),
        author_files=tuple(f.path for f in unit.program.files),
        kernels=(),
        variables=own,
    )
    names = [v.qualified_name for v in unit.program.global_variables]
    described = _described(folder, image, (*names, *(v.name for v in own)))
    registered = tuple(
        VariableImage(
            symbol=real.variables.get(name, ""),
            name=name,
            address=None,
            size_bytes=described.variables[name],
        )
        for name in dict.fromkeys(names)
    )
    kernels = tuple(
        _kernel(unit, real, index, described.kernels[one.entry])
        for index, one in enumerate(real.launchables)
    )
    image = image.model_copy(update={"kernels": kernels, "variables": (*registered, *own)})
    (folder / IMAGE).write_text(image.model_dump_json(indent=1), encoding="utf-8")


def _own_variables(executable: Path, real: Module) -> Iterator[VariableImage]:
    """Variables of the rewrite's own text, those inside of its functions among them."""
    command = ["nm", "-C", "-S", "--defined-only", str(executable)]
    confine = Confinement("compile", reads=(executable.parent,))
    done = run_bounded(command, cwd=executable.parent, timeout_s=TIMEOUT_S, confine=confine)
    for line in done.stdout.splitlines():
        address, size, kind, name = [*line.split(" ", 3), "", "", ""][:4]
        scope, _, last = name.rpartition("::")
        if kind not in tuple("bBdDuvV") or NAMESPACE not in scope or int(address, 16) < _FIXED:
            continue
        if not last.startswith(_OURS) and not name.startswith(_OURS):
            yield VariableImage(
                symbol=real.variables.get(name, ""),
                name=f"at_{int(address, 16):x}",
                address=int(address, 16),
                size_bytes=int(size, 16),
            )


def _described(folder: Path, image: Image, variables: Sequence[str]) -> Described:
    """Let the unit run without a launch: it lists itself and dumps its variables."""
    lines = [f"gdump {name} {folder / name}.bin\n" for name in variables]
    (folder / "spec.txt").write_text("".join(lines), encoding="utf-8")
    listing = folder / "description.tsv"
    done = run_bounded(
        [image.executable, str(folder / "spec.txt")],
        cwd=folder,
        timeout_s=TIMEOUT_S,
        env={"CUDAOPS_STANDIN_DESCRIBE": str(listing), **registration(image)},
        tool="kernels",
        confine=Confinement("kernel", writes=(folder,)),
    )
    if done.exit_code != 0 or not listing.is_file():
        raise SandboxUnavailable(
            f"the unit {image.executable} cannot be started: exit code {done.exit_code}, "
            f"{' '.join(done.stderr.split())[:200] or 'no message'}",
            "delete the cache folder and run again",
        )
    found = Described({}, {})
    parameters: list[tuple[str, int]] = []
    for words in (line.split("\t", 2) for line in listing.read_text("utf-8").splitlines()):
        if words[0] == "entry":
            parameters = found.kernels.setdefault(int(words[1]), [])
        elif words[0] == "parameter":
            parameters.append((words[1], int(words[2])))
        else:
            found.variables[words[2]] = int(words[1])
    return found


def _kernel(unit: Unit, real: Module, index: int, found: list[tuple[str, int]]) -> KernelImage:
    launchable = real.launchables[index]
    resources = real.resources[index] if index < len(real.resources) else None
    names = _parameter_names(unit, launchable.entry)
    return KernelImage(
        entry=launchable.entry,
        symbol=launchable.symbol,
        callee=_callee(unit, launchable.entry),
        parameters=tuple(
            Parameter.model_validate(
                {"name": names[n] if n < len(names) else "", "kind": kind, "size_bytes": size}
            )
            for n, (kind, size) in enumerate(found)
        ),
        registers=None if resources is None else resources.registers,
        static_smem_bytes=None if resources is None else resources.static_smem_bytes,
    )


def _callee(unit: Unit, entry: int) -> str:
    """The name that the unit itself gives the entry."""
    if entry == BASELINE_ENTRY or unit.rewrite is None:
        return unit.callee
    return instance(unit.rewrite, unit.rewrite.plan.launches[entry])


def _parameter_names(unit: Unit, entry: int) -> tuple[str, ...]:
    """What the author calls a kernel's parameters; of a rewrite, what its plan hands over."""
    if entry == BASELINE_ENTRY or unit.rewrite is None:
        return tuple(p.name for p in unit.program.kernel(unit.kernel).parameters)
    return unit.rewrite.plan.launches[entry].args
