"""Tests of triplepoint.sweeps.scheduling, on an executor that does as it is told."""

import dataclasses
from pathlib import Path

import pytest
from tests.sweeps.test_cells import tiny

from triplepoint.errors import ExecutorError, PlanError
from triplepoint.runs import locked
from triplepoint.sweeps import Event, run_all, scheduling
from triplepoint.sweeps.executors import lost_worker


@dataclasses.dataclass
class Scripted:
    """Ends cell ``i`` with the words of ``script[i]``, one per start."""

    script: dict[int, list[str]]
    slots: int = 2
    started: list[int] = dataclasses.field(default_factory=list)
    most: int = 0
    closed: bool = False

    def __post_init__(self):
        self._running = []

    def start(self, index, cell):
        self.started.append(index)
        self._running.append(index)
        self.most = max(self.most, len(self._running))

    def events(self, timeout):
        events = []
        for index in self._running[:1]:
            word = self.script.get(index, ["done"])
            kind = word.pop(0) if len(word) > 1 else word[0]
            events.append(
                lost_worker(index, "exit code -9") if kind == "died"
                else Event(index, kind, error=PlanError(f"cell {index}.\nTry.") if kind == "error" else None)
            )  # fmt: skip
            self._running.remove(index)
        return events

    def close(self):
        self.closed = True


def cells(count):
    return [tiny(Path(f"never-made-{i}")) for i in range(count)]


def test_every_cell_runs_once_in_order_and_never_more_than_the_slots():
    executor, seen = Scripted({}), []
    assert run_all(cells(5), executor, watch=seen.append) == {}
    assert executor.started == [0, 1, 2, 3, 4]
    assert executor.most == 2
    assert [(e.index, e.kind) for e in seen] == [(i, "done") for i in range(5)]
    assert executor.closed


def test_a_lost_worker_s_cell_is_started_again_as_often_as_asked():
    executor, seen = Scripted({1: ["died", "died", "done"]}), []
    assert run_all(cells(3), executor, retries=2, watch=seen.append) == {}
    assert executor.started.count(1) == 3
    assert [e.text for e in seen if e.kind == "retried"] == [
        "A worker process ended without a word (exit code -9)."
    ] * 2


def test_a_cell_lost_too_often_fails_and_the_others_go_on():
    executor = Scripted({0: ["died"]})
    failed = run_all(cells(3), executor, fail_fast=False, retries=2)
    assert list(failed) == [0]
    assert isinstance(failed[0], ExecutorError)
    assert executor.started.count(0) == 3
    assert {1, 2} <= set(executor.started)


def test_an_error_is_not_repeated():
    executor, seen = Scripted({0: ["error"]}), []
    failed = run_all(cells(2), executor, fail_fast=False, retries=5, watch=seen.append)
    assert str(failed[0]) == "cell 0.\nTry."
    assert executor.started.count(0) == 1
    assert [(e.kind, e.text) for e in seen if e.index == 0] == [("failed", "cell 0.")]


def test_failing_fast_raises_the_error_and_closes_the_executor():
    executor = Scripted({0: ["error"]}, slots=1)
    with pytest.raises(PlanError, match="cell 0"):
        run_all(cells(3), executor, fail_fast=True)
    assert executor.started == [0]
    assert executor.closed


def test_a_busy_cell_waits_for_the_other_process(monkeypatch):
    monkeypatch.setattr(scheduling, "RECHECK_S", 0.0)
    executor, seen = Scripted({0: ["busy", "busy", "done"]}), []
    assert run_all(cells(2), executor, share=True, watch=seen.append) == {}
    assert [e.kind for e in seen if e.index == 0] == ["waiting", "done"]
    assert executor.started.count(0) == 3


def test_a_cell_that_another_process_holds_is_not_even_started(monkeypatch, tmp_path):
    monkeypatch.setattr(scheduling, "RECHECK_S", 0.0)
    held = tiny(tmp_path)
    lock = locked(tmp_path)
    lock.__enter__()
    seen = []

    def watch(event):
        seen.append((event.index, event.kind))
        if (event.index, event.kind) == (1, "done"):
            lock.__exit__(None, None, None)

    executor = Scripted({})
    run_all([held, *cells(1)], executor, share=True, watch=watch)
    assert executor.started == [1, 0]
    assert seen == [(0, "waiting"), (1, "done"), (0, "done")]
