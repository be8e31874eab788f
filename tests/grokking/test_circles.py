"""Tests of triplepoint.grokking.circles."""

import math

import numpy as np
import pytest
import torch

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.circles import circle_points, strongest_frequencies


def turns(p, ks, sizes):
    """An embedding of orthogonal circles: frequency ks[i] with radius sizes[i] in units 2i and 2i + 1."""
    angle = 2 * math.pi * torch.outer(torch.arange(p), torch.tensor(ks)).double() / p
    radius = torch.tensor(sizes, dtype=torch.float64)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=2).flatten(1)


def rotation(dim, seed=0):
    noise = torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed)).double()
    return torch.linalg.qr(noise)[0]


def test_orthogonal_circles_come_back_one_by_one_whatever_the_basis():
    E = turns(7, [1, 2, 3], [1.0, 2.0, 0.5])
    turned = E @ rotation(6) + torch.arange(6.0)
    for place, k in enumerate([1, 2, 3]):
        own = E[:, 2 * place : 2 * place + 2]
        torch.testing.assert_close(circle_points(turned, k), own, rtol=0, atol=1e-13)


def test_is_the_orthogonal_projection_on_the_plane_of_the_feature():
    # slow twin: numpy's least squares on the two raw axes, which are neither orthogonal nor of length 1
    E = torch.randn(11, 5, generator=torch.Generator().manual_seed(1)).double()
    rows = (E - E.mean(0)).numpy()
    for k in range(1, 6):
        wave = np.exp(-2j * np.pi * k * np.arange(11) / 11)
        F = wave @ E.numpy() / 11
        plane = np.stack([F.real, F.imag], axis=1)
        flat = plane @ np.linalg.lstsq(plane, rows.T, rcond=None)[0]
        points = circle_points(E, k).numpy()
        # distances and angles between points are those of the projections
        np.testing.assert_allclose(points @ points.T, flat.T @ flat, atol=1e-12)
        # residues lie on +u side: the first axis is Re F_k
        np.testing.assert_allclose(points[:, 0], rows @ F.real / np.linalg.norm(F.real), atol=1e-12)


def test_axes_that_do_not_exist_are_zero():
    line = turns(7, [2], [1.0])[:, :1]
    torch.testing.assert_close(circle_points(line, 2)[:, 0], line[:, 0])
    assert circle_points(line, 2)[:, 1].abs().max() == 0
    assert circle_points(torch.ones(7, 3), 1).abs().max() == 0


def test_single_precision_gives_double():
    points = circle_points(turns(5, [1], [1.0]).float(), 1)
    assert points.dtype == torch.float64 and points.shape == (5, 2)


def test_strongest_first_and_the_lower_of_equals():
    E = turns(11, [1, 2, 3, 4, 5], [1.0, 3.0, 2.0, 3.0, 0.1]) @ rotation(10)
    assert strongest_frequencies(E, 1) in ([2], [4])  # equal up to rounding
    assert sorted(strongest_frequencies(E, 2)) == [2, 4]
    assert strongest_frequencies(E, 9)[2:] == [3, 1, 5]
    assert strongest_frequencies(torch.ones(7, 2), 3) == [1, 2, 3]


@pytest.mark.parametrize("k", [0, 4, -1])
def test_refuses_a_frequency_that_does_not_exist(k):
    with pytest.raises(PlanError, match=f"no frequency k = {k} with p = 7.*\nGive k from 1 to 3"):
        circle_points(torch.ones(7, 3), k)


def test_refuses_no_frequency_at_all():
    with pytest.raises(PlanError, match="0 frequencies were asked for.\nAsk for at least 1"):
        strongest_frequencies(torch.ones(7, 3), 0)


def test_refuses_an_even_number_of_residues():
    with pytest.raises(MetricInputError, match="p = 8 rows"):
        circle_points(torch.ones(8, 3), 1)
