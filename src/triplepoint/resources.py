"""What a run costs: seconds and bytes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import torch

from triplepoint.runs import usable_cores


class PeakMemory:
    """Largest memory since this object was made: resident memory on a CPU, the allocator's on CUDA."""

    def __init__(self, device: torch.device):
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with contextlib.suppress(OSError):
                # Linux: forget the peak so far, so that one run's does not show in the next one's
                Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """Return the peak in bytes; -1 where the system does not tell."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        try:
            import resource  # not on Windows
        except ImportError:
            return -1
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def default_workers() -> int:
    """Return how many arms to train at a time: one per core, or one where there is a CUDA device to share."""
    return 1 if torch.cuda.is_available() else usable_cores()


def available_memory() -> int:
    """Return how many bytes this machine, or this container, can still give to processes; -1 where unknown."""
    meminfo = _numbers("/proc/meminfo")
    if "MemAvailable:" not in meminfo:
        return -1
    free = 1024 * meminfo["MemAvailable:"]
    with contextlib.suppress(OSError, ValueError, KeyError):  # "max" where there is no limit
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        # what is only cached is given back when it is needed
        free = min(free, limit - used + _numbers(group / "memory.stat")["inactive_file"])
    return free


def _numbers(path: str | Path) -> dict[str, int]:
    """Return the first number of each line by its first word; empty where there is no such file."""
    with contextlib.suppress(OSError):
        words = [line.split() for line in Path(path).read_text().splitlines()]
        return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}
    return {}


def step_clock(device: torch.device) -> Callable[[], tuple[float, float]]:
    """Return a clock giving (own seconds, wall seconds).

    On a CPU *own* is the process's CPU time, which a busy machine does not stretch; elsewhere it is wall
    time, after the device has caught up.
    """
    if device.type == "cpu":
        return lambda: (time.process_time(), time.perf_counter())

    def clock() -> tuple[float, float]:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        return now, now

    return clock
