"""Tests of triplepoint.logs.columns: which column is what."""

import pytest

from triplepoint.errors import LogError
from triplepoint.logs.columns import ROLES, choose
from triplepoint.logs.table import Column


def columns(**lengths):
    """Columns of these lengths; two underscores stand for a slash."""
    made = {}
    for name, length in lengths.items():
        column = made[name.replace("__", "/")] = Column()
        for row in range(length):
            column.rows.append(row)
            column.values.append(1.0)
    return made


def chosen(found, **named):
    return choose(found, named, names=list(found), source="log.csv")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Global Step", "step"), ("trainer/global_step", "step"), ("Iteration", "step"), ("epoch", "step"),
        ("train/loss", "train_loss"), ("Training Loss", "train_loss"), ("loss", "train_loss"), ("train-loss", "train_loss"),
        ("val/loss", "val_loss"), ("valid_loss", "val_loss"), ("eval_loss", "val_loss"), ("Validation Loss", "val_loss"),
        ("dev.loss", "val_loss"), ("val_lm_loss", "val_loss"), ("validation/epoch_loss", "val_loss"),
        ("train_acc", "train_accuracy"), ("accuracy", "train_accuracy"), ("eval_accuracy", "val_accuracy"),
        ("val/acc", "val_accuracy"), ("learning_rate", "lr"), ("lr-AdamW", "lr"),
    ],
)  # fmt: skip
def test_names_in_use_are_recognised(name, role):
    column = columns(x=3)["x"]
    assert chosen({name: column}) == {role: name}


@pytest.mark.parametrize("name", ["val_perplexity", "eval_runtime", "grad_norm", "stepsize", "lossy"])  # fmt: skip
def test_other_names_are_not(name):
    assert chosen({name: columns(x=3)["x"]}) == {}


def test_a_single_number_loses_against_a_curve():
    # the Trainer logs train/train_loss, its mean over the run, once
    assert chosen(columns(train_loss=1, loss=50))["train_loss"] == "loss"
    assert chosen(columns(train_loss=1))["train_loss"] == "train_loss"


def test_a_step_that_few_rows_have_is_not_preferred():
    assert chosen(columns(global_step=10, step=100))["step"] == "step"
    assert chosen(columns(global_step=60, step=100))["step"] == "global_step"


def test_the_plain_spelling_is_preferred_to_the_others_of_a_name():
    assert chosen(columns(_step=5, step=5))["step"] == "step"


def test_two_spellings_of_one_name_are_ambiguous():
    with pytest.raises(LogError, match="2 columns may be the val loss: 'val/loss', 'val.loss'.\nName one with --val."):  # fmt: skip
        chosen(dict(zip(("val/loss", "val.loss"), columns(a=3, b=3).values(), strict=True)))


def test_the_first_of_several_learning_rates_is_taken():
    found = dict(zip(("lr-AdamW/pg1", "lr-AdamW/pg2"), columns(a=3, b=3).values(), strict=True))
    assert chosen(found) == {"lr": "lr-AdamW/pg1"}


def test_a_named_column_is_taken():
    found = columns(loss=5, objective=5)
    assert chosen(found, train_loss="objective")["train_loss"] == "objective"


def test_a_named_column_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(LogError, match="log.csv has no column 'vall'.\nIts columns are: step, loss."):  # fmt: skip
        chosen(columns(step=3, loss=3), val_loss="vall")


def test_a_named_column_without_numbers_is_told_apart():
    with pytest.raises(LogError, match="log.csv has no number in column 'text'.\nIts columns are"):
        choose({}, {"val_loss": "text"}, names=["text"], source="log.csv")


def test_an_accuracy_is_no_loss():
    with pytest.raises(LogError, match="'eval_acc' was named with --val and is an accuracy; of a loss, lower is better.\nName it with --val-accuracy."):  # fmt: skip
        chosen(columns(step=3, eval_acc=3), val_loss="eval_acc")


def test_many_columns_are_listed_in_part():
    found = columns(**{f"c{i}": 2 for i in range(25)})
    with pytest.raises(LogError, match="c19 and 5 more"):
        chosen(found, step="x")


def test_roles_are_chosen_in_their_order():
    found = columns(lr=3, val_acc=3, acc=3, val_loss=3, loss=3, step=3)
    assert tuple(chosen(found)) == ROLES


@pytest.mark.parametrize(
    "named", [{"train_loss": "val_loss"}, {"val_loss": "step"}, {"val_accuracy": "train_loss"}]
)
def test_one_column_is_not_two_things(named):
    found = columns(step=3, train_loss=3, val_loss=3)
    with pytest.raises(LogError, match="is to be both the .* and the .*\nName another with --"):
        chosen(found, **named)
