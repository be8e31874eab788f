"""A toy's page: where each weight of the norm came to, beside the closed form."""

from __future__ import annotations

from collections.abc import Mapping

from triplepoint.report import formats as as_
from triplepoint.report.grok_tables import number

EXPECTED = {
    "w": "Each weight, closed form", "train_floor": "Floor of the training loss",
    "test_floor": "Floor of the test loss", "fit_steps": "Fit until step", "drift_steps": "Drift until step",
    "largest_difference": "Largest difference from the closed form",
}  # fmt: skip


def toy_headline(toy: Mapping) -> tuple[str, str, str]:
    """Return (word, sentence, tone) of a toy: how long fit and drift take, where the closed form says it."""
    times = [
        (end["lam"], end["expected"]["fit_steps"], end["expected"]["drift_steps"])
        for end in toy.get("ends") or [] if end.get("expected")
    ]  # fmt: skip
    if not times:
        return (
            "A toy of a few parameters",
            "Where each weight of the norm came to is in the table below.",
            "none",
        )
    (lam, fit, drift), *others = times
    text = f"At lambda = {lam:g} the fit is done after {as_.count(fit)} steps, the drift after {as_.count(drift)}"
    text += "".join(f"; at {x:g} after {as_.count(f)} and {as_.count(d)}" for x, f, d in others)
    later = all(drift > fit for _, fit, drift in times)
    word = "Fits first, generalises later" if later else "Both phases in closed form"
    return word, f"{text}.", "none"


def toy_floors(toy: Mapping) -> dict[str, dict[str, float]]:
    """Return metric -> arm -> floor of the closed form."""
    expected = {f"lam={e['lam']:g}": e.get("expected") or {} for e in toy.get("ends") or []}
    return {
        metric: {arm: found[name] for arm, found in expected.items() if as_.known(found.get(name))}
        for metric, name in (("train_loss", "train_floor"), ("val_loss", "test_floor"))
    }


def toy_rows(toy: Mapping) -> list[tuple[str, list[str]]]:
    """Return where each weight of the norm came to, beside the closed form: (name, a cell for each)."""
    ends = toy.get("ends") or []
    rows = [
        ("End point", [", ".join(number("theta", w) for w in end.get("theta") or []) for end in ends]),
        *((name, [number(key, end.get(key)) for end in ends])
          for key, name in (("train_loss", "Training loss"), ("norm_sq", "Squared norm"),
                            ("sigma_min", "Smallest singular value of J"))),
        ("Heads into a singular point", [as_.plain(end.get("towards_singular")) for end in ends]),
    ]  # fmt: skip
    for key, name in EXPECTED.items():
        values = [(end.get("expected") or {}).get(key) for end in ends]
        if any(value is not None for value in values):
            form = as_.count if key.endswith("_steps") else lambda v, key=key: number(key, v)
            rows.append((name, [form(value) for value in values]))
    return rows if ends else []
