"""What the stand-in GPU loads: the file that `unit.py` writes beside a unit's build."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from cudaops.domain.base import Record
from cudaops.executors.cuda.runner.driver import DriverError


class Parameter(Record):
    """One parameter of a kernel, as g++ compiled it."""

    name: str
    """As its author wrote it; empty where it is not known."""
    kind: Literal["pointer", "integer", "floating", "bytes"]
    """`bytes`: a structure by value, `__half` among them."""
    size_bytes: int


class KernelImage(Record):
    """A kernel of the unit."""

    entry: int
    """`Launchable.entry`."""
    symbol: str
    """Of the cubin, so that a wrong name fails here as it does on a GPU."""
    callee: str
    """As its author wrote it, in messages."""
    parameters: tuple[Parameter, ...]
    registers: int | None
    """A thread, as ptxas reports for the cubin; None: not known, never refused."""
    static_smem_bytes: int | None


class VariableImage(Record):
    """A `__constant__` or `__device__` variable."""

    symbol: str
    """In the cubin; empty where nobody can ask for it."""
    name: str
    """In the unit: the program's qualified name, or `at_ADDRESS` for a rewrite's own."""
    address: int | None
    """Of a rewrite's own in the executable; None: the unit has registered it."""
    size_bytes: int

    @property
    def initial(self) -> str:
        """File with what stands in it when the module is loaded, beside the image."""
        return f"{self.name}.bin"


class Image(Record):
    """A unit built for the stand-in."""

    executable: str
    """Absolute path of the `cpu` executor's unit."""
    author_files: tuple[str, ...]
    """Paths that a fault's place may name."""
    kernels: tuple[KernelImage, ...]
    variables: tuple[VariableImage, ...]


def registration(image: Image) -> dict[str, str]:
    """Environment of the unit that lets it know the variables it has not registered itself."""
    own = [f"{v.address:x}:{v.size_bytes:x}" for v in image.variables if v.address is not None]
    return {"CUDAOPS_STANDIN_VARIABLES": ",".join(own)} if own else {}


def read_image(path: Path) -> Image:
    """The image of this file. Raises DriverError as cuModuleLoad does."""
    try:
        image = Image.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DriverError("CUDA_ERROR_FILE_NOT_FOUND", "load", str(path)) from None
    except (ValidationError, OSError) as problem:
        text = f"{path} is no image of the stand-in: {problem}"
        raise DriverError("CUDA_ERROR_INVALID_IMAGE", "load", text) from problem
    if not Path(image.executable).is_file():
        raise DriverError("CUDA_ERROR_FILE_NOT_FOUND", "load", image.executable)
    return image
