"""Clock, temperature and driver version from NVML, through NVIDIA's `nvidia-ml-py`."""

from __future__ import annotations

from typing import Any


class Telemetry:
    """What NVML says about one GPU; None for whatever it cannot say."""

    def __init__(self, uuid: str, pci_bus_id: str) -> None:
        """Find the GPU by its UUID, by its place on the bus where that fails (MIG)."""
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        for find, name in (
            (pynvml.nvmlDeviceGetHandleByUUID, uuid),
            (pynvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id),
        ):
            try:
                self._handle = find(name)
            except pynvml.NVMLError:
                continue
            break

    def driver_version(self) -> str:
        """Of the kernel driver: `580.159.04`; empty where it is not known."""
        if self._nvml is None:
            return ""
        try:
            found = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return ""
        return found.decode() if isinstance(found, bytes) else str(found)

    def sm_clock_mhz(self) -> float | None:
        """SM clock now."""
        if self._handle is None:
            return None
        try:
            found = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
        except self._nvml.NVMLError:
            return None
        return float(found)

    def temperature_c(self) -> float | None:
        """Temperature of the GPU now."""
        if self._handle is None:
            return None
        ask = getattr(self._nvml, "nvmlDeviceGetTemperatureV", None)
        for one in (ask, self._nvml.nvmlDeviceGetTemperature):
            if one is None:
                continue
            try:
                return float(one(self._handle, self._nvml.NVML_TEMPERATURE_GPU))
            except self._nvml.NVMLError:
                continue
        return None

    def close(self) -> None:
        """Give NVML back."""
        if self._nvml is None:
            return
        nvml, self._nvml, self._handle = self._nvml, None, None
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return
