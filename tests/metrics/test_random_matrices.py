"""Tests of triplepoint.metrics.random_matrices."""

import math

import pytest
import torch
from tests.reference import spectra as twin

from triplepoint.metrics.random_matrices import (
    marchenko_pastur,
    median_of_marchenko_pastur,
    shuffle_in_place,
    shuffled,
)


def evals_of(w):
    w = w.double()
    return torch.linalg.svdvals(w).square()


@pytest.mark.parametrize("q", [1.0, 0.999, 0.5, 0.1, 0.01, 1e-4])
def test_median_agrees_with_its_twin(q):
    assert median_of_marchenko_pastur(q) == pytest.approx(twin.marchenko_pastur_median(q), rel=1e-6)


@pytest.mark.parametrize("shape", [(300, 300), (600, 150), (150, 600)], ids=str)
def test_noise_has_its_own_level_and_no_spikes(shape):
    bulk = marchenko_pastur(evals_of(0.02 * torch.randn(shape)), rows=shape[0], columns=shape[1])
    assert bulk.noise_sd == pytest.approx(0.02, rel=0.02)
    m, n = max(shape), min(shape)
    assert bulk.edge == pytest.approx((bulk.noise_sd * (math.sqrt(m) + math.sqrt(n))) ** 2)
    assert bulk.edge < bulk.spike_threshold < 1.1 * bulk.edge
    assert bulk.spikes == 0
    assert bulk.soft_rank == pytest.approx(1, rel=0.05)


def test_the_largest_eigenvalue_of_noise_passes_the_threshold_about_once_in_a_hundred():
    torch.manual_seed(1)
    passed = sum(
        marchenko_pastur(evals_of(torch.randn(120, 60)), rows=120, columns=60).spikes > 0
        for _ in range(300)
    )
    # the fitted level adds to the spread: 3 expected, 12 has p < 1e-4
    assert passed < 12


def test_planted_directions_are_counted():
    w = torch.randn(400, 100)
    left, _ = torch.linalg.qr(torch.randn(400, 3))
    right, _ = torch.linalg.qr(torch.randn(100, 3))
    spiked = w + (left * torch.tensor([60.0, 80.0, 100.0])) @ right.T
    bulk = marchenko_pastur(evals_of(spiked), rows=400, columns=100)
    assert bulk.spikes == 3
    assert bulk.noise_sd == pytest.approx(1, rel=0.03)
    # a spike theta of unit noise comes out at (theta^2 + m)(theta^2 + n) / theta^2
    assert bulk.soft_rank == pytest.approx(900 / ((1e4 + 400) * (1e4 + 100) / 1e4), rel=0.05)


@pytest.mark.parametrize("evals", [torch.zeros(5), torch.tensor([9.0, 0.0, 0.0]), torch.tensor([])])
def test_where_the_median_is_zero_there_is_no_bulk(evals):
    bulk = marchenko_pastur(evals, rows=len(evals), columns=9)
    assert (bulk.noise_sd, bulk.edge, bulk.spikes, bulk.soft_rank) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "shape", [(5, 7), (900, 700), (300, 2000), (3, 90_000)], ids=["small", "tall", "wide", "flat"]
)
def test_shuffling_keeps_entries_and_shape_and_leaves_its_input(shape):
    w = torch.arange(float(math.prod(shape))).reshape(shape)
    mixed = shuffled(w, seed=3)
    assert mixed.shape == w.shape and w.flatten().diff().eq(1).all()
    assert torch.equal(mixed.flatten().sort().values, w.flatten())
    assert torch.equal(mixed, shuffled(w, seed=3))
    assert not torch.equal(mixed, shuffled(w, seed=4))


def test_shuffling_in_place_returns_the_same_memory():
    w = torch.randn(600, 500)
    before = w.flatten().sort().values
    assert shuffle_in_place(w) is w
    assert torch.equal(w.flatten().sort().values, before)
    wide = torch.randn(500, 600)
    assert shuffle_in_place(wide) is wide


@pytest.mark.parametrize("shape", [(200, 200), (1000, 600), (600, 1000)], ids=str)
def test_shuffling_leaves_nothing_of_rows_columns_or_a_common_direction(shape):
    rows, columns = torch.randn(shape[0], 1), torch.randn(1, shape[1])
    signal = rows @ columns
    assert marchenko_pastur(
        evals_of(signal + 0.1 * torch.randn(shape)), rows=shape[0], columns=shape[1]
    ).spikes
    largest = float(evals_of(shuffled(signal)).max())
    edge = float(signal.square().mean()) * (math.sqrt(shape[0]) + math.sqrt(shape[1])) ** 2
    # products of normals have heavy tails of their own, hence the room
    assert largest < 1.3 * edge


@pytest.mark.parametrize(
    "common",
    [
        torch.randn(400),
        torch.linspace(-1, 1, 400),
        torch.sin(torch.arange(400.0)),
        20.0 * (torch.arange(400) % 10 == 7),
    ],
    ids=["random", "ramp", "wave", "some-columns"],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_shuffling_leaves_nothing_of_what_all_rows_share(common, transposed):
    # equal rows must not come out as equal blocks
    signal = common.expand(3000, 400) - common.mean()
    mixed = shuffled(signal.T if transposed else signal)
    uniform = signal.flatten()[torch.randperm(signal.numel())].view(signal.shape)
    largest = float(evals_of(uniform).max())
    assert float(evals_of(signal).max()) > 50 * largest
    assert float(evals_of(mixed).max()) == pytest.approx(largest, rel=0.08)
