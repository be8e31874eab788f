"""Tests of what a command line says, as values."""

import pytest
import torch

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.experiments.specs import TaskSpec, as_numbers, first_layer


@pytest.mark.parametrize(
    ("operation", "p", "size"),
    [("add", None, 23), ("add", 37, 37), ("mul", None, 23), ("s4", None, 24)],
)
def test_a_modulus_is_filled_in_where_the_operation_takes_one(operation, p, size):
    assert TaskSpec.of(operation, p).build().Y.shape[1] == size


def test_parity_is_a_task_like_the_others():
    task = TaskSpec.of("parity", None, fraction=0.5).build()
    assert task.X.shape == (1000, 40)
    assert int(task.train.sum()) == 500


@pytest.mark.parametrize("operation", ["mul", "div"])
def test_rows_of_a_multiplicative_group_come_in_the_order_of_its_generator(operation):
    W1 = torch.arange(7.0)[:, None].repeat(1 if operation == "mul" else 2, 1)
    # 3 is the smallest primitive root of 7
    assert TaskSpec(operation=operation, p=7).residues(W1).flatten().tolist() == [1, 3, 2, 6, 4, 5]


def test_no_rows_where_multiplication_is_no_group():
    assert TaskSpec(operation="mul", p=9).residues(torch.zeros(9, 2)) is None


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: TaskSpec.of("ad", None).build(), UnknownNameError, "'ad'"),
        (lambda: TaskSpec.of("foo", None), UnknownNameError, "Known: add, .*, parity"),
        (lambda: TaskSpec.of("parity", 7), PlanError, "takes no p, got p=7.\nTry without p"),
        (
            lambda: TaskSpec.of("add", 10**21 + 1).build(),
            PlanError,
            "at most 1000, got p=10+1:.*\nTry p=97",
        ),
        (lambda: TaskSpec(seed=10**30).build(), PlanError, "below 2.62, got 10+.\nTry seed=0"),
        (lambda: TaskSpec(seed=-1).build(), PlanError, "at least 0 .*, got -1"),
        (lambda: TaskSpec.of("s4", 23).build(), PlanError, "takes no p"),
        (lambda: as_numbers("0.1;0.2", "--lam"), PlanError, "--lam takes numbers"),
        (lambda: as_numbers("", "--lam"), PlanError, "--lam takes numbers"),
        (
            lambda: first_layer(TaskSpec().build(), 10**7, std=None, seed=0),
            PlanError,
            "Try --hidden 256",
        ),
    ],
)
def test_bad_input_is_refused_with_advice(call, error, part):
    with pytest.raises(error, match=part) as caught:
        call()
    assert len(str(caught.value).splitlines()) >= 2
