"""Which of a service's executors is used, and whether the two sides understand each other."""

from __future__ import annotations

from cudaops import __version__
from cudaops.cuda import devices
from cudaops.errors import InputError, PrerequisiteError
from cudaops.sandbox.executors.remote_transport import FIRST_PATIENCE_S, NotThere, Transport
from cudaops.sandbox.wire import PROTOCOL, Machinery, Offer, Place

MODELLED = "A10"
"""Device whose time is modelled where neither device nor target was named; as on `cpu`."""


def ask_offer(transport: Transport) -> Offer:
    """What the service offers.

    Raises SandboxUnavailable where it is not there, PrerequisiteError where it refuses the token or
    speaks another protocol.
    """
    patience_s = min(FIRST_PATIENCE_S, transport.patience_s)
    try:
        answer = transport.ask("GET", "/executor", patience_s=patience_s)
        spoken = answer.json()
        protocol, version = int(spoken["protocol"]), str(spoken["version"])
    except (NotThere, ValueError, KeyError, TypeError):
        raise PrerequisiteError(
            f"{transport.server} is no service of cudaops with a remote executor",
            "correct CUDAOPS_SERVER, or update cudaops there",
        ) from None
    if protocol != PROTOCOL:
        side = "there" if protocol < PROTOCOL else "here"
        raise PrerequisiteError(
            f"cudaops {version} on {transport.server} speaks version {protocol} of the remote "
            f"executor's protocol, cudaops {__version__} here speaks {PROTOCOL}",
            f"update cudaops {side}: python -m pip install -U cudaops",
        )
    return Offer.model_validate(spoken)


def choose_place(
    transport: Transport, device: str | None, sm_arch: str, behind: Machinery | None
) -> Place:
    """Where calls go: to the GPU named `device`, or any where none is named; else to a processor,
    which models the time of `device`. `behind` allows one of the two only.

    Raises what `ask_offer` raises, and PrerequisiteError where no worker offers it.
    """
    offer = ask_offer(transport)
    device = _name(device)
    gpus = [p for p in offer.places if p.executor == "cuda" and device in (None, p.device)]
    if gpus and behind != "cpu":
        return gpus[0].model_copy(update={"sm_arch": sm_arch})
    if behind == "cuda" or not any(p.executor == "cpu" for p in offer.places):
        there = ", ".join(sorted(p.target for p in offer.places)) or "no worker is running"
        raise PrerequisiteError(
            f"the service {transport.server} has no executor for this ({there})",
            "start `cudaops worker` where it is, or name a device that it has",
        )
    row = devices.device(device or sm_arch or MODELLED)
    return Place(executor="cpu", device=row.name, sm_arch=sm_arch)


def _name(device: str | None) -> str | None:
    """As the table spells it; a GPU that it has not is called what the service calls it."""
    try:
        return None if device is None else devices.device(device).name
    except InputError:
        return device
