"""Tests of triplepoint.grokking.tasks."""

import itertools

import pytest
import torch

from triplepoint.errors import DataError, PlanError, UnknownNameError
from triplepoint.grokking import OPERATIONS, pair_task, parity_task

# each operation in plain Python, on the tokens of a row
RULES = {
    "add": lambda a, b, p: (a + b) % p,
    "sub": lambda a, b, p: (a - b) % p,
    "mul": lambda a, b, p: (a * b) % p,
    "sum_squares": lambda a, b, p: (a * a + b * b) % p,
    "div": lambda a, b, p: next(c for c in range(p) if (c * b) % p == a),
}


@pytest.mark.parametrize(
    ("p", "samples", "train"),
    # counted in the paper's coding at fraction 0.7
    [(5, 15, 10), (11, 66, 46), (17, 153, 107), (23, 276, 193), (37, 703, 492)],
)
def test_unordered_addition_has_the_papers_counts(p, samples, train):
    task = pair_task("add", p=p, fraction=0.7)
    assert task.X.shape == (samples, p)
    assert task.Y.shape == (samples, p)
    assert int(task.train.sum()) == train
    assert len(task.train_set[0]) == train
    assert len(task.test_set[0]) == samples - train


def test_unordered_pairs_are_sums_of_two_one_hots():
    task = pair_task("add", p=5)
    assert task.X.dtype == task.Y.dtype == torch.float64
    for x, y, (a, b, sign) in zip(task.X, task.Y, task.tokens.tolist(), strict=True):
        assert a <= b and sign == 5
        expected = [0.0] * 5
        expected[a] += 1
        expected[b] += 1
        assert x.tolist() == expected
        assert y.tolist() == [float(c == (a + b) % 5) for c in range(5)]
    assert task.vocab == 6


@pytest.mark.parametrize("operation", RULES)
def test_ordered_pairs_are_two_one_hots_and_the_result_is_the_operations(operation):
    task = pair_task(operation, p=7, pairs="ordered")
    expected = [(a, b) for a in range(7) for b in range(7) if operation != "div" or b]
    assert sorted(tuple(row[:2]) for row in task.tokens.tolist()) == expected
    for x, (a, b, _), label in zip(task.X, task.tokens.tolist(), task.labels.tolist(), strict=True):
        assert x.nonzero().flatten().tolist() == [a, 7 + b]
        assert label == RULES[operation](a, b, 7)
    assert torch.equal(task.Y.argmax(1), task.labels)


@pytest.mark.parametrize(("operation", "degree"), [("s4", 4), ("s5", 5)])
def test_permutations_are_composed_right_to_left(operation, degree):
    elements = list(itertools.permutations(range(degree)))
    task = pair_task(operation)
    assert len(task.X) == len(elements) ** 2
    assert task.X.shape[1] == 2 * len(elements)
    rows = zip(task.tokens.tolist(), task.labels.tolist(), strict=True)
    for (a, b, _), label in itertools.islice(rows, 0, None, 97):
        composed = tuple(elements[a][elements[b][i]] for i in range(degree))
        assert elements[label] == composed


def test_every_operation_has_its_smaller_table_by_default():
    for name, operation in OPERATIONS.items():
        p = operation.alphabet if isinstance(operation.alphabet, int) else 7
        task = pair_task(name) if isinstance(operation.alphabet, int) else pair_task(name, p=7)
        table = operation.table(p)
        assert operation.commutes == torch.equal(table, table.T)
        assert task.X.shape[1] == (p if operation.commutes else 2 * p)


def test_no_input_occurs_twice():
    for task in (pair_task("add", p=7, pairs="ordered"), pair_task("mul", p=7), parity_task()):
        assert len(task.X.unique(dim=0)) == len(task.X)


def test_the_split_is_the_seeds_own_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, same, other = (pair_task("add", p=11, seed=s) for s in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.train, same.train)
    assert not torch.equal(first.train, other.train)
    assert torch.equal(first.test, ~first.train)


def test_label_noise_replaces_that_share_of_training_labels_and_no_others():
    clean, noisy = (pair_task("add", p=11, label_noise=share, seed=1) for share in (0.0, 0.25))
    assert torch.equal(clean.train, noisy.train)
    changed = clean.labels != noisy.labels
    assert torch.equal(changed, noisy.noisy)
    # 46 training samples
    assert int(changed.sum()) == round(0.25 * 46) == 12
    assert not (changed & noisy.test).any()
    assert torch.equal(noisy.Y.argmax(1), noisy.labels)
    assert not clean.noisy.any()


def test_all_labels_can_be_noise():
    task = pair_task("add", p=11, label_noise=1.0)
    assert torch.equal(task.noisy, task.train)


@pytest.mark.parametrize(("bits", "samples"), [(6, 64), (40, 500)])
def test_sparse_parity_counts_the_first_bits(bits, samples):
    task = parity_task(bits, relevant=3, samples=samples)
    assert task.X.shape == (samples, bits)
    assert set(task.X.flatten().tolist()) == {-1.0, 1.0}
    assert torch.equal(task.X, 2.0 * task.tokens[:, :-1] - 1)
    # the product of signs is -1 to the number of minus signs, another way to count
    product = task.X[:, :3].prod(1)
    assert torch.equal(task.labels, (product > 0).long())
    assert torch.equal(task.Y.argmax(1), task.labels)
    assert set(task.tokens[:, -1].tolist()) == {2}
    # the irrelevant bits are not constant, nor is any other column
    assert (task.X.std(0) > 0.5).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": None}, "a \\+ b needs a modulus p.\nTry p=23, or the paper's p=37."),
        ({"p": 10}, "p must be odd and at least 3, got p=10: .*leaves p/2 without.*\nTry p=11."),
        ({"p": 1}, "p must be odd and at least 3, got p=1: .*\nTry p=5."),
        ({"p": 15, "operation": "div"}, "a / b needs a prime p, got p=15: .*\nTry p=17."),
        ({"p": 7, "operation": "s4"}, "s4 has 24 elements and takes no p, got p=7.\nTry without p."),
        ({"p": 7, "fraction": 0.0}, "must lie between 0 and 1, got 0.0.\nTry fraction=0.7."),
        ({"p": 7, "fraction": 1.0}, "must lie between 0 and 1, got 1.0.\nTry fraction=0.7."),
        ({"p": 7, "label_noise": -0.1}, "share of the training labels, got -0.1.\nTry label_noise"),
        ({"p": 7, "operation": "sub", "pairs": "unordered"}, "a - b cannot be asked .*: the order"),
        ({"p": 7, "pairs": "all"}, "asked about all pairs.\nTry pairs='ordered', or unordered"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(PlanError, match=f"(?s){message}"):
        pair_task(**{"operation": "add", **settings})


@pytest.mark.parametrize(("fraction", "left"), [(0.999, "test"), (0.001, "train")])
def test_a_split_with_an_empty_side_is_refused(fraction, left):
    message = f"{fraction} of 15 samples leaves none to {left} on.\nTry fraction=0.7, or a larger p"
    with pytest.raises(DataError, match=message):
        pair_task("add", p=5, fraction=fraction)


def test_an_unknown_operation_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="no operation 'adds'.\nDid you mean 'add'"):
        pair_task("adds", p=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 3, "relevant": 4}, "got relevant=4 and bits=3.\nTry bits=40, relevant=3."),
        ({"bits": 63}, "relevant <= bits <= 62, got relevant=3 and bits=63"),
        ({"bits": 3, "samples": 9}, "There are 8 different samples of 3 bits, got samples=9.\nTry"),
    ],
)
def test_parity_that_cannot_be_is_refused(settings, message):
    with pytest.raises(PlanError, match=message):
        parity_task(**settings)
