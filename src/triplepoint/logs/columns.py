"""Which column of a log is what, told from its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from triplepoint.errors import LogError
from triplepoint.logs.table import Column

STEPS = (
    "global_step", "train_global_step", "trainer_global_step", "optimizer_step", "step", "steps", "iter", "iteration",
    "iterations", "iter_num", "update", "updates", "num_updates", "epoch", "epochs",
)  # fmt: skip
TRAIN = ("train", "training")
VALIDATION = ("val", "eval", "valid", "validation", "dev", "test")


def _names(stem: str, parts: tuple[str, ...], *bare: str) -> tuple[str, ...]:
    """Return the names of a quantity on a part of the data, those of whole epochs before those of single batches."""
    forms = ("{p}_{s}", "{s}_{p}", "{p}_{s}_epoch", "{p}_epoch_{s}", "{p}_{s}_step")
    return (*(form.format(p=p, s=stem) for form in forms for p in parts), *bare)


NAMES: dict[str, tuple[str, ...]] = {
    "step": STEPS,
    "train_loss": _names("loss", TRAIN, "loss", "loss_epoch", "loss_step", "lm_loss"),
    "val_loss": _names("loss", VALIDATION),
    "train_accuracy": (*_names("accuracy", TRAIN, "accuracy"), *_names("acc", TRAIN, "acc")),
    "val_accuracy": (*_names("accuracy", VALIDATION), *_names("acc", VALIDATION)),
    "lr": ("lr", "learning_rate", "train_lr", "train_learning_rate"),
}  # fmt: skip
"""What a column may be -> names in plain form, the first is preferred."""
LOOSE = {
    "train_loss": re.compile(r"(train|training)_.+_loss"),
    "val_loss": re.compile(r"(val|eval|valid|validation|dev)_.+_loss"),
    "lr": re.compile(r"lr_.+"),
}
"""Names that are taken where none of :data:`NAMES` is there, e.g. of one of several evaluation sets."""
ROLES = tuple(NAMES)
OPTIONS = {
    "step": "--step-column",
    "train_loss": "--train",
    "val_loss": "--val",
    "train_accuracy": "--train-accuracy",
    "val_accuracy": "--val-accuracy",
}
KNOWN = {name for names in NAMES.values() for name in names}


def plain(name: str) -> str:
    """Return a column's name in plain form; a chart's export has the run's name before it.

    Example:
        >>> plain("train/Loss"), plain("_step"), plain("my-run - eval/loss")
        ('train_loss', 'step', 'eval_loss')
    """
    return re.sub(r"[^a-z0-9]+", "_", name.rsplit(" - ", 1)[-1].lower()).strip("_")


def may_be_used(name: str) -> bool:
    """Whether a column of that name is any of :data:`ROLES`."""
    own = plain(name)
    return own in KNOWN or any(pattern.fullmatch(own) for pattern in LOOSE.values())


def choose(
    columns: Mapping[str, Column], named: Mapping[str, str | None], *, names: list[str], source: str
) -> dict[str, str]:
    """Return role -> name of its column, for the roles that have one.

    Args:
        columns: Columns with numbers.
        named: Role -> column that the caller names; None leaves it to its name.
        names: All columns of the log, for the message.
        source: What is read, for the message.

    Raises:
        LogError: If a named column is not there, two of the same name are, or one is named for two roles.
    """
    chosen = {}
    for role in ROLES:
        given = named.get(role)
        if given is not None:
            _check_named(role, given, columns, names, source)
        found = given or _recognised(role, columns)
        if found is not None:
            chosen[role] = found
    _check_apart(chosen, source)
    return chosen


def _check_apart(chosen: Mapping[str, str], source: str) -> None:
    roles: dict[str, str] = {}
    for role, name in chosen.items():
        if name in roles:
            one, other = (r.replace("_", " ") for r in (roles[name], role))
            raise LogError(
                f"Column '{name}' of {source} is to be both the {one} and the {other}.\n"
                f"Name another with {OPTIONS.get(roles[name], '--step-column')} or {OPTIONS.get(role, '--step-column')}."
            )
        roles[name] = role


def _check_named(
    role: str, given: str, columns: Mapping[str, Column], names: list[str], source: str
) -> None:
    if given not in columns:
        what = "has no number in" if given in names else "has no"
        raise LogError(f"{source} {what} column '{given}'.\n{columns_of(names)}")
    if role.endswith("loss") and re.search(r"(^|_)acc", plain(given)):
        raise LogError(
            f"'{given}' was named with {OPTIONS[role]} and is an accuracy; of a loss, lower is better.\n"
            f"Name it with {OPTIONS[role.replace('loss', 'accuracy')]}."
        )


def _recognised(role: str, columns: Mapping[str, Column]) -> str | None:
    """Return the column of a role; one that has a single number, or few steps, only where no other has more."""
    by_name: dict[str, list[str]] = {}
    for name in columns:
        by_name.setdefault(plain(name), []).append(name)
    ranked = [own for own in NAMES[role] if own in by_name]
    if not ranked and role in LOOSE:
        loose = [name for name in columns if LOOSE[role].fullmatch(plain(name))]
        return _one(role, loose) if loose else None
    if not ranked:
        return None
    most = max(len(columns[name]) for own in ranked for name in by_name[own])
    enough = most / 2 if role == "step" else min(most, 2)
    own = next(o for o in ranked if any(len(columns[n]) >= enough for n in by_name[o]))
    return own if own in by_name[own] else _one(role, by_name[own])


def _one(role: str, found: list[str]) -> str:
    """Return the only column; the first where a wrong one would do no harm."""
    if len(found) > 1 and role in OPTIONS:
        listed = ", ".join(f"'{name}'" for name in found[:6])
        raise LogError(
            f"{len(found)} columns may be the {role.replace('_', ' ')}: {listed}{', ...' if len(found) > 6 else ''}.\n"
            f"Name one with {OPTIONS[role]}."
        )
    return found[0]


def columns_of(names: list[str]) -> str:
    """Return the columns of a log in a sentence."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"Its columns are: {', '.join(names[:20])}{more}."
