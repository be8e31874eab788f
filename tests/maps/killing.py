"""A map that is killed again and again, for the tests: its plan, its drivers, and whom to kill."""

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PLAN = """
name = "killed"
windows = 8
eval_every = 20
checkpoint_every = 10
[defaults]
size = "gpt2-0.1m"
context = 16
batch = 2
warmup = 10
steps = {steps}
[grid]
unique_tokens = [2000, 20000]
op = ["norm", "dyt:paper", "dyt"]
seed = [0, 1, 2, 3]
"""
"""24 cells."""


def driver(plan: Path, out: Path, *options: str) -> subprocess.Popen:
    """Start ``map run`` in a process of its own."""
    command = [sys.executable, "-m", "triplepoint.cli.main", "map", "run", str(plan), "--out", str(out), *options]  # fmt: skip
    with (out.parent / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def descendants(pid: int, named: str = "") -> list[int]:
    """Return the processes under ``pid`` whose command line contains ``named``."""
    parents, lines = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            lines[int(entry.name)] = (entry / "cmdline").read_text()
        except (OSError, ValueError):
            continue
    found, frontier = [], [pid]
    while frontier:
        frontier = [child for child, parent in parents.items() if parent in frontier]
        found += frontier
    return [p for p in found if named in lines[p]]


@contextlib.contextmanager
def ray_head(log: Path) -> Iterator[tuple[str, int]]:
    """Run the head of a Ray cluster with two CPUs and a token of its own; yields its address and process."""
    # the drivers inherit it
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block", "--num-cpus=2",
        f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats",
    ]  # fmt: skip
    with log.open("ab") as said:
        head = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        until = time.monotonic() + 180
        while time.monotonic() < until and "--block" not in log.read_text():
            time.sleep(0.5)
        yield f"127.0.0.1:{port}", head.pid
    finally:
        under = descendants(head.pid)
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(timeout=30)
        for pid in under:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        del os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]


def kill_often(
    plan: Path,
    out: Path,
    options: list[str],
    *,
    kills: int,
    choose: random.Random,
    worker: str,
    under: int | None = None,
) -> Counter:
    """Kill drivers and workers at random moments until ``kills`` have died or the map is finished.

    Args:
        plan: Its file.
        out: Its folder.
        options: Of the driver.
        kills: How many, of both together.
        choose: When, and whom.
        worker: What is in a worker's command line.
        under: Process that the workers descend from; None for the driver.

    Returns:
        How many of each were killed.
    """
    killed = Counter()
    process = driver(plan, out, *options)
    while killed.total() < kills:
        _wait_for_progress(process, out)
        time.sleep(choose.random())
        if process.poll() is not None:
            break
        victim = "driver" if choose.random() < 0.4 else "worker"
        there = [process.pid] if victim == "driver" else descendants(under or process.pid, worker)
        if not there:
            continue
        try:
            os.kill(choose.choice(there), signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed[victim] += 1
        if victim == "driver":
            process.wait()
            process = driver(plan, out, *options)
    process.kill()
    process.wait()
    return killed


def _wait_for_progress(process: subprocess.Popen, out: Path) -> None:
    """Wait until a cell has written something, so that kills land in the training as well as in imports."""
    before, until = _written(out), time.monotonic() + 60
    while process.poll() is None and _written(out) == before and time.monotonic() < until:
        time.sleep(0.05)


def _written(out: Path) -> int:
    return sum(p.stat().st_mtime_ns for p in out.glob("cells/*/records.jsonl"))
