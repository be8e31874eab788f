"""Tests of what an embedding looks like: triplepoint.grokking.representation, groups, concentration and ablation."""

import itertools
import math

import pytest
import torch
from tests.reference import grokking_fourier as twin

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.ablation import (
    excluded_logits,
    key_frequencies,
    restricted_logits,
    table_loss,
)
from triplepoint.grokking.concentration import (
    effective_number,
    gini,
    inverse_participation_ratio,
)
from triplepoint.grokking.groups import discrete_log_order, irrep_power
from triplepoint.grokking.representation import (
    describe_embedding,
    fourier_features,
    frequency_power,
)


def circles(p, *, amplitudes=None):
    """E[j] = (cos(2 pi k j / p), sin(2 pi k j / p)) for every k, each in a plane of its own."""
    K = (p - 1) // 2
    angle = 2 * math.pi * torch.outer(torch.arange(p), torch.arange(1, K + 1)).double() / p
    E = torch.stack([angle.cos(), angle.sin()], dim=2)
    if amplitudes is not None:
        E = E * torch.as_tensor(amplitudes, dtype=torch.float64)
    return E.flatten(1)


def test_perfect_circles_have_their_exact_numbers():
    found = describe_embedding(circles(7))
    assert found.norm_mean == pytest.approx(0.5, abs=1e-14)
    assert found.norm_cv == pytest.approx(0.0, abs=1e-14)
    assert (found.cosine_mean, found.cosine_max) == pytest.approx((0.0, 0.0), abs=1e-14)
    assert (found.abs_same, found.abs_different) == pytest.approx((0.0, 0.0), abs=1e-14)
    assert found.circularity.tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert (found.unit_concentration, found.units_active) == (pytest.approx(1.0), 6)
    assert found.effective_frequencies == pytest.approx(3.0)
    assert found.inverse_participation == pytest.approx(1 / 3)
    assert found.gini == pytest.approx(0.0, abs=1e-14)
    assert found.constant_share == pytest.approx(0.0, abs=1e-14)
    assert found.power.tolist() == pytest.approx([0.5, 0.5, 0.5])


def test_unequal_circles_by_hand():
    # amplitudes 1, 2, 2: norms 0.5, 1, 1, power 0.5, 2, 2
    found = describe_embedding(circles(7, amplitudes=[[1.0], [2.0], [2.0]]))
    assert found.norm_mean == pytest.approx(5 / 6)
    assert found.norm_cv == pytest.approx(math.sqrt(2) / 5, rel=1e-12)
    assert found.power.tolist() == pytest.approx([0.5, 2.0, 2.0])
    assert found.effective_frequencies == pytest.approx(4.5**2 / 8.25)


def test_an_ellipse_is_told_from_a_circle_whatever_its_phase():
    squashed = circles(7, amplitudes=[[1.0, 0.5]] * 3)
    assert describe_embedding(squashed).circularity.tolist() == pytest.approx([0.5] * 3)
    # rows moved on by one: |Re F| and |Im F| change, the ellipse does not
    moved = describe_embedding(squashed.roll(1, 0))
    assert moved.circularity.tolist() == pytest.approx([0.5] * 3)
    assert describe_embedding(squashed[:, :1]).circularity[0] == 0.0  # a line, seen by one unit


def test_features_and_cosines_agree_with_their_sums():
    E = torch.randn(7, 5).double()
    F = fourier_features(E)
    expected = twin.features(E.tolist())
    assert (F - torch.tensor(expected, dtype=torch.complex128)).abs().max() < 1e-14
    parts = [[z.real for z in row] for row in expected], [[z.imag for z in row] for row in expected]
    rows = [part[k] for k in range(3) for part in parts]
    cosines = [abs(twin.cosine(u, v)) for u, v in itertools.combinations(rows, 2)]
    found = describe_embedding(E)
    assert found.cosine_mean == pytest.approx(sum(cosines) / 15)
    assert found.cosine_max == pytest.approx(max(cosines))

    def absolute(u, v):
        return twin.cosine([abs(x) for x in u], [abs(x) for x in v])

    same = [absolute(rows[2 * k], rows[2 * k + 1]) for k in range(3)]
    different = [
        absolute(rows[i], rows[j])
        for i, j in itertools.combinations(range(6), 2)
        if i // 2 != j // 2
    ]
    assert found.abs_same == pytest.approx(sum(same) / 3)
    assert found.abs_different == pytest.approx(sum(different) / 12)


def test_random_phases_have_the_absolute_similarity_two_over_pi():
    phase = 2 * math.pi * torch.rand(20_000).double()
    j = torch.arange(5).double()[:, None]
    found = describe_embedding(
        torch.cos(2 * math.pi * j / 5 + phase) + torch.cos(4 * math.pi * j / 5 - 3 * phase)
    )
    assert found.abs_same == pytest.approx(2 / math.pi, abs=0.01)


def test_units_concentrate_and_silent_ones_do_not_count():
    E = circles(7)[:, :2]
    mixed = torch.stack([E[:, 0], circles(7)[:, 0] + circles(7)[:, 2], torch.ones(7)], dim=1)
    found = describe_embedding(mixed)
    # the first unit has one frequency, the second two equal ones, the third none
    assert (found.units_active, found.unit_concentration) == (2, pytest.approx(0.75))
    assert found.constant_share == pytest.approx(7 / (3.5 + 7 + 7))


def test_numbers_do_not_depend_on_scale_or_rotation_where_they_should_not():
    E = torch.randn(11, 30).double()
    Q, _ = torch.linalg.qr(torch.randn(30, 30).double())
    one, other = describe_embedding(E), describe_embedding(3 * E @ Q)
    assert other.norm_cv == pytest.approx(one.norm_cv)
    assert other.cosine_mean == pytest.approx(one.cosine_mean)
    torch.testing.assert_close(other.circularity, one.circularity)
    assert other.norm_mean == pytest.approx(3 * one.norm_mean)
    low = describe_embedding(E.float())
    assert low.norm_cv == pytest.approx(one.norm_cv, rel=1e-5)


@pytest.mark.parametrize("n", [2, 6, 7])
def test_powers_of_all_frequencies_add_up_to_the_mean_square_row(n):
    E = torch.randn(n, 4).double()
    power = frequency_power(E)
    assert len(power) == n // 2 + 1
    assert power.sum().item() == pytest.approx((E.square().sum() / n).item())
    if n == 7:
        torch.testing.assert_close(power[1:], 2 * describe_embedding(E).power)


@pytest.mark.parametrize("p", [3, 7, 23])
def test_multiplication_is_addition_in_the_order_of_the_discrete_logarithm(p):
    order = discrete_log_order(p).tolist()
    assert sorted(order) == list(range(1, p))
    place = {residue: i for i, residue in enumerate(order)}
    for a, b in itertools.product(range(1, p), repeat=2):
        assert place[a * b % p] == (place[a] + place[b]) % (p - 1)
    if p == 7:  # and a character of the multiplicative group is one frequency
        E = torch.zeros(p, 1).double()
        E[order, 0] = torch.cos(2 * math.pi * 2 * torch.arange(6).double() / 6)
        assert frequency_power(E[order]).tolist() == pytest.approx([0, 0, 0.5, 0], abs=1e-14)


def symmetric_group_3():
    """(quotient table, characters trivial / sign / standard) of S3, the identity first."""
    elements = sorted(itertools.permutations(range(3)))
    index = {g: i for i, g in enumerate(elements)}

    def inverse(h):
        return tuple(h.index(i) for i in range(3))

    quotients = [[index[tuple(g[i] for i in inverse(h))] for h in elements] for g in elements]
    fixed = [sum(g[i] == i for i in range(3)) for g in elements]
    sign = [{3: 1, 1: -1, 0: 1}[f] for f in fixed]
    characters = [[1] * 6, sign, [f - 1 for f in fixed]]
    return elements, torch.tensor(quotients), torch.tensor(characters, dtype=torch.float64)


def test_power_of_a_group_that_is_not_commutative():
    elements, quotients, characters = symmetric_group_3()
    sign = characters[1][:, None]
    assert irrep_power(sign, quotients, characters).tolist() == pytest.approx([0, 1, 0], abs=1e-14)
    # the matrices that permute three coordinates: the trivial and the standard representation, 1 : 2
    matrices = torch.stack([torch.eye(3)[list(g)].flatten() for g in elements]).double()
    assert irrep_power(matrices, quotients, characters).tolist() == pytest.approx(
        [1 / 3, 0, 2 / 3], abs=1e-14
    )
    assert irrep_power(torch.randn(6, 4), quotients, characters).sum().item() == pytest.approx(1.0)


def test_concentrations_by_hand():
    x = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 4.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]).double()
    # 1 2 3 4: 2 (1 + 4 + 9 + 16) / (4 * 10) - 5/4 = 1/4; sum of squares 30/100
    assert gini(x).tolist() == pytest.approx([0.0, 0.75, 0.25])
    assert inverse_participation_ratio(x).tolist() == pytest.approx([0.25, 1.0, 0.3])
    assert effective_number(x).tolist() == pytest.approx([4.0, 1.0, 10 / 3])
    values = torch.rand(9).double()
    assert gini(values).item() == pytest.approx(twin.gini(values.tolist()))
    assert gini(5 * values.flip(0)).item() == pytest.approx(gini(values).item())
    assert math.isnan(gini(torch.zeros(3)).item())


def test_key_frequencies_are_the_fewest_that_hold_the_share():
    power = torch.tensor([0.1, 0.5, 0.1, 0.3])
    assert key_frequencies(power, share=0.5) == [2]
    assert key_frequencies(power, share=0.8) == [2, 4]
    assert sorted(key_frequencies(power, share=1.0)) == [1, 2, 3, 4]


def test_restricted_and_excluded_logits_are_the_waves_of_the_sum():
    p, key = 7, [1, 3]
    logits = torch.randn(p, p, 1).double()
    waves = torch.tensor(twin.waves_of_the_sum(logits[..., 0].tolist(), key), dtype=torch.float64)
    restricted, excluded = restricted_logits(logits, key), excluded_logits(logits, key)
    torch.testing.assert_close(restricted[..., 0], waves + logits.mean(), atol=1e-13, rtol=0)
    torch.testing.assert_close(excluded[..., 0], logits[..., 0] - waves, atol=1e-13, rtol=0)
    torch.testing.assert_close(restricted + excluded, logits + logits.mean(), atol=1e-13, rtol=0)


def sum_table(p):
    a = torch.arange(p)
    return (a[:, None] + a) % p


def test_a_network_of_two_frequencies_answers_by_them_and_not_without_them():
    p, key = 7, [2, 3]
    labels = sum_table(p)
    gap = 2 * math.pi * (labels[..., None] - torch.arange(p)).double() / p
    logits = 10 * sum(torch.cos(k * gap) for k in key)
    noise = torch.randn(p, p, p).double()
    full = table_loss(logits, labels)
    assert table_loss(restricted_logits(logits + noise, key), labels) == pytest.approx(
        full, abs=0.1
    )
    assert table_loss(excluded_logits(logits, key), labels) == pytest.approx(math.log(p), abs=1e-9)


def test_table_losses_by_hand():
    labels = sum_table(3)
    perfect = torch.nn.functional.one_hot(labels).double()
    assert table_loss(perfect, labels, squared=True) == 0.0
    # all zeros: one missing 1 per pair
    assert table_loss(0 * perfect, labels, squared=True) == 1.0
    one = torch.zeros(3, 3, dtype=torch.bool)
    one[0, 1] = True
    spoiled = perfect.clone()
    spoiled[0, 1] = torch.tensor([3.0, 1.0, 0.0])
    assert table_loss(spoiled, labels, where=one, squared=True) == 9.0
    assert table_loss(spoiled, labels, where=~one, squared=True) == 0.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: fourier_features(torch.ones(6, 2)),
            MetricInputError,
            "p = 6 rows.*\n.*frequency_power",
        ),
        (lambda: fourier_features(torch.ones(7)), MetricInputError, "one row per element"),
        (lambda: describe_embedding(torch.ones(7, 2) / 0), MetricInputError, "no finite matrix"),
        (lambda: describe_embedding(torch.zeros(7, 2)), MetricInputError, "there is no frequency"),
        (lambda: discrete_log_order(15), PlanError, "p = 15 is no prime"),
        (lambda: discrete_log_order(9), PlanError, "p = 9 is no prime"),
        (
            lambda: irrep_power(torch.ones(2, 1), torch.zeros(3, 3), torch.ones(1, 2)),
            MetricInputError,
            r"\[2, 2\]",
        ),
        (lambda: gini(torch.tensor([1.0, -1.0])), MetricInputError, "Square amplitudes first"),
        (lambda: effective_number(torch.tensor([math.nan])), MetricInputError, "finite values"),
        (lambda: key_frequencies(torch.ones(3), share=0.0), PlanError, "e.g. 0.95"),
        (
            lambda: key_frequencies(torch.zeros(3)),
            MetricInputError,
            r"describe_embedding\(E\).power",
        ),
        (
            lambda: restricted_logits(torch.ones(5, 4, 3), [1]),
            MetricInputError,
            "every ordered pair",
        ),
        (lambda: restricted_logits(torch.ones(5, 5, 3), [3]), PlanError, r"in 1 .. 2 for p = 5"),
        (lambda: excluded_logits(torch.ones(5, 5, 3), [1, 1]), PlanError, "Give different ones"),
        (lambda: table_loss(torch.ones(5, 5, 3), torch.ones(4, 4)), MetricInputError, "do not fit"),
    ],
)
def test_bad_input_says_what_to_try(call, error, text):
    with pytest.raises(error, match=text):
        call()
