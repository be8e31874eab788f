"""A map survives kill -9 of its driver and workers, and its table does not show it."""

import importlib.util
import random
import subprocess
import sys
from collections import Counter

import pytest
from tests.maps.killing import PLAN, driver, kill_often, ray_head

from triplepoint.runs import read_json, read_rows

WITHOUT_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs the extra ray"
)


def finished_map(out, plan, *options):
    """Run a map to its end."""
    out.parent.mkdir(exist_ok=True)
    process = driver(plan, out, *options)
    assert process.wait(timeout=1500) == 0, (out.parent / "driver.log").read_text()[-2000:]


def assert_same(cut, whole):
    """The tables of both maps are equal, and nothing was lost, doubled or set aside."""
    assert read_rows(cut / "table.parquet") == read_rows(whole / "table.parquet")
    assert read_json(cut / "summary.json") == read_json(whole / "summary.json")
    manifest = read_json(cut / "manifest.json")
    assert (manifest["status"], manifest["failed"], manifest["quarantined"]) == ("finished", {}, [])
    assert len(list((cut / "cells").iterdir())) == 24


def fifty_kills(tmp_path, options, *, worker, under=None):
    """Kill until fifty have died, and compare what comes out each time with a map that was left alone."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(steps=60))
    options = [*options, "--workers", "2", "--retries", "1000"]
    whole = tmp_path / "whole" / "map"
    finished_map(whole, plan, "--workers", "2")
    choose, killed, maps = random.Random(7), Counter(), 0
    while killed.total() < 50:  # a fast machine finishes a map before: then another one
        cut = tmp_path / f"cut{maps}" / "map"
        cut.parent.mkdir()
        left = 50 - killed.total()
        killed += kill_often(plan, cut, options, kills=left, choose=choose, worker=worker, under=under)  # fmt: skip
        finished_map(cut, plan, *options)
        assert_same(cut, whole)
        maps += 1
    print(f"{' '.join(options)}: killed {dict(killed)} in {maps} maps of 24 cells")
    assert min(killed["driver"], killed["worker"]) >= 10


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_fifty_kills_leave_the_table_as_it_is(tmp_path):
    fifty_kills(tmp_path, [], worker="multiprocessing.forkserver")


@WITHOUT_RAY
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_fifty_kills_on_ray_leave_the_table_as_it_is(tmp_path):
    with ray_head(tmp_path / "head.log") as (address, head):
        options = ["--executor", "ray", "--ray-address", address]
        fifty_kills(tmp_path, options, worker="ray::_attempt", under=head)


@pytest.mark.slow
def test_two_drivers_share_a_folder(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(steps=20))
    both, alone = tmp_path / "both" / "map", tmp_path / "alone" / "map"
    both.parent.mkdir()
    drivers = [driver(plan, both, "--workers", "1") for _ in range(2)]
    assert [process.wait(timeout=600) for process in drivers] == [0, 0]
    finished_map(alone, plan, "--workers", "1")
    assert_same(both, alone)


@WITHOUT_RAY
@pytest.mark.slow
def test_a_ray_cluster_that_is_not_there_is_an_error_in_seconds(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "triplepoint.cli.main", "map", "run", "--grid", "size=gpt2-0.1m;op=norm,dyt;steps=5",
         "--out", tmp_path / "m", "--executor", "ray", "--ray-address", "127.0.0.1:1"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Error: No Ray cluster answers at 127.0.0.1:1 (" in done.stderr
    assert "Start one with `ray start --head`" in done.stderr
