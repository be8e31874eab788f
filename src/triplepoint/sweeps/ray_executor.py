"""Cells on a Ray cluster, one CPU each (extra ``ray``).

The folder that the cells run in must be one that every node sees under the same path, e.g. on a network disk
whose locks work across nodes (NFS 4 and most cluster file systems).
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from triplepoint.errors import ExecutorError
from triplepoint.extras import require
from triplepoint.sweeps.cells import Cell
from triplepoint.sweeps.executors import Event, attempt, lost_worker

ANSWER_WITHIN_S = 5.0
"""Seconds within which a cluster's port must take a connection; Ray itself would try for a minute."""


class RayExecutor:
    """A Ray task per cell.

    Args:
        workers: Cells at a time; None for as many as the cluster has CPUs.
        address: Of a running cluster (``host:port``, ``ray://host:port`` or ``auto``); None to start one on this
            machine, which ends with this process.
        mend: Whether a damaged folder is set aside and its cell started anew.

    Raises:
        MissingExtraError: If Ray is not installed.
        ExecutorError: If no cluster answers at ``address``.
    """

    def __init__(
        self, workers: int | None = None, *, address: str | None = None, mend: bool = False
    ):
        self._ray = require("ray", extra="ray")
        self._connect(workers, address)
        cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self.slots = max(1, min(workers or cpus, cpus))
        self._mend = mend
        # never repeated by Ray itself: a cell's retries are counted in one place
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_attempt)
        self._running: dict[Any, int] = {}

    def _connect(self, workers: int | None, address: str | None) -> None:
        how = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            self._ray.init(num_cpus=workers, include_dashboard=False, **how)
            return
        try:
            _knock(address)
            self._ray.init(address=address, **how)
        except (ConnectionError, OSError, ValueError, RuntimeError) as error:
            raise ExecutorError(
                f"No Ray cluster answers at {address} ({str(error).splitlines()[0]}).\n"
                "Start one with `ray start --head` and give the address that it prints (and its token, if it has one, "
                "as RAY_AUTH_TOKEN), or leave out --ray-address to start one on this machine."
            ) from error

    def start(self, index: int, cell: Cell) -> None:
        """Begin a cell."""
        self._running[self._task.remote(index, cell, self._mend)] = index

    def events(self, timeout: float) -> list[Event]:
        """Return what the tasks have said: each tells its end only, not its steps."""
        if not self._running:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(list(self._running), timeout=timeout)
        return [event for reference in ready for event in self._result(reference)]

    def _result(self, reference: Any) -> list[Event]:
        index = self._running.pop(reference)
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # the worker or its node is gone
            return [lost_worker(index, f"{type(error).__name__}")]

    def close(self) -> None:
        """Cancel what is running and leave the cluster."""
        for reference in self._running:
            with contextlib.suppress(Exception):  # it may end by itself at this very moment
                self._ray.cancel(reference, force=True)
        self._running = {}
        self._ray.shutdown()


def _knock(address: str) -> None:
    """Connect to the cluster's port, or raise OSError: unreachable is said in seconds."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not (colon and port.isdigit()):
        raise ValueError("an address is host:port, ray://host:port or auto")
    socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S).close()


def _attempt(index: int, cell: Cell, mend: bool) -> list[Event]:
    """Run one cell on whatever node this is."""
    if not cell.path.parent.is_dir():
        error = ExecutorError(
            f"{cell.path.parent} does not exist on the node {socket.gethostname()}.\n"
            "Give an --out folder that all nodes of the cluster share."
        )
        return [Event(index, "error", error=error)]
    said: list[Event] = []
    end = attempt(index, cell, said.append, mend=mend)
    return [*(event for event in said if event.kind != "step"), end]
