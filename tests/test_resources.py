"""Tests of triplepoint.resources."""

import os

import torch

from triplepoint.resources import PeakMemory, available_memory, step_clock

CPU = torch.device("cpu")


def test_peak_memory_counts_what_was_held_since_it_was_made():
    size = 64 * 2**20
    before = PeakMemory(CPU).peak()
    held = torch.ones(size // 4)
    del held
    memory = PeakMemory(CPU)
    assert before > 10 * 2**20
    held = torch.ones(size // 4)
    assert memory.peak() >= before + size // 2
    del held


def test_the_clock_gives_cpu_seconds_and_wall_seconds_and_does_not_run_back():
    clock = step_clock(CPU)
    first = clock()
    sum(range(10_000))
    second = clock()
    assert all(b >= a for a, b in zip(first, second, strict=True))
    assert second[0] > first[0]


def test_arms_share_a_cuda_device_one_at_a_time(monkeypatch):
    from triplepoint import resources

    monkeypatch.setattr(resources, "usable_cores", lambda: 7)
    monkeypatch.setattr(resources.torch.cuda, "is_available", lambda: True)
    assert resources.default_workers() == 1
    monkeypatch.setattr(resources.torch.cuda, "is_available", lambda: False)
    assert resources.default_workers() == 7


def test_available_memory_is_what_the_machine_has_left_at_most():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() < total
