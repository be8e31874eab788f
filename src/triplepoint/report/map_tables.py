"""The tables of a map's page: effects and pairs, slopes in size, rank correlations, rates of collapse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from triplepoint.report import formats as as_
from triplepoint.report.map_rows import AXES, PLACE, Candidate, Effect, Row
from triplepoint.report.tables import ENDPOINTS
from triplepoint.statistics import spearman, spearman_p

FEWEST = 4
"""Cells from which a rank correlation is told: with fewer no order has p below 0.05."""
OUTCOMES = ("collapsed", "stalled", "diverged")
SATURATIONS = {"saturation_end": "at the end", "saturation_500": "at step 500"}
ORDER = ("fixed_step", "best_checkpoint", "matched_train_loss")
"""Endpoints as the page shows them."""


class Cell(NamedTuple):
    """What a table shows at one place."""

    main: str
    small: str = ""
    sort: object = None
    """By which the column sorts; None stands at the end."""


class Table(NamedTuple):
    """Headings and lines; the first cell of a line is its head."""

    heads: list[str]
    lines: list[list[Cell]]


def effect_table(candidates: Sequence[Candidate]) -> Table:
    """Return one line per cell of the map: differences over seeds with both intervals."""
    return _table(candidates, [(effect, effect.row) for c in candidates for effect in c.effects])


def pair_table(candidates: Sequence[Candidate]) -> Table:
    """Return one line per pair of runs with the same seed."""
    pairs = [(e, pair) for c in candidates for e in c.effects for pair in e.pairs]
    return _table(candidates, pairs, seed=True)


def _table(
    candidates: Sequence[Candidate], lines: Sequence[tuple[Effect, Row]], *, seed: bool = False
) -> Table:
    axes = list(dict.fromkeys(axis for c in candidates for axis in c.axes))
    shape = [axis for axis in PLACE[1:-1] if any(as_.known(row.get(axis)) for _, row in lines)]
    heads = ["Candidate", "Size", *shape, "Unique tokens", "T/P", *(AXES.get(a, a) for a in axes)]
    heads += ["Seed" if seed else "Seeds", *(ENDPOINTS[name][0] for name in ORDER), "Saturation", "Phase"]  # fmt: skip
    return Table(
        [head[:1].upper() + head[1:] for head in heads],
        [_line(effect, row, [*shape], axes, seed) for effect, row in lines],
    )


def _line(
    effect: Effect, row: Row, shape: Sequence[str], axes: Sequence[str], seed: bool
) -> list[Cell]:
    ratio, saturation = row.get("tokens_per_parameter"), row.get("saturation_end")
    own = [Cell(as_.plain(row.get(axis)), sort=row.get(axis)) for axis in (*shape, *axes)]
    seeds = row.get("seed") if seed else row.get("seeds")
    params = f"{as_.count(effect.y)} parameters" if as_.known(effect.y) else ""
    early = row.get("saturation_500")
    return [
        Cell(effect.candidate, sort=effect.candidate),
        Cell(str(row.get("size") or as_.DASH), params, effect.y),
        *own[: len(shape)],
        Cell(as_.count(effect.x), sort=effect.x),
        Cell(f"{ratio:.3g}" if as_.known(ratio) else as_.DASH, sort=ratio),
        *own[len(shape) :],
        Cell(as_.plain(seeds), sort=seeds),
        *(_difference(row, endpoint) for endpoint in ORDER),
        Cell(as_.share(saturation), f"step 500: {as_.share(early)}" if as_.known(early) else "", saturation),
        Cell(str(row.get("phase") or as_.DASH), _failures(effect, seed), str(row.get("phase") or "")),
    ]  # fmt: skip


def _difference(row: Row, endpoint: str) -> Cell:
    value = row.get(endpoint)
    small = []
    for kind, name in (("bootstrap", "95 %"), ("t", "t")):
        ends = [row.get(f"{endpoint}_{kind}_{end}") for end in ("low", "high")]
        if told := as_.change_interval(ends):
            small.append(f"{name}: {told}")
    return Cell(as_.change(value), "\n".join(small), value if as_.known(value) else None)


def _failures(effect: Effect, seed: bool) -> str:
    return "" if seed else ", ".join(f"{n} {name}" for name, n in effect.failed.items())


class Correlation(NamedTuple):
    """Does more saturation go with a larger effect? One point per cell."""

    candidate: str
    saturation: str
    """Column."""
    endpoint: str
    n: int
    rho: float | None
    """Spearman's; None with too few cells, or none that differ."""
    p: float | None
    """Two-sided, by permutation."""


def correlations_of(candidates: Sequence[Candidate]) -> list[Correlation]:
    """Return the rank correlations of each candidate, and of all together where there are several."""
    groups = {c.name: list(c.effects) for c in candidates}
    if len(groups) > 1:
        groups["all together"] = [e for effects in groups.values() for e in effects]
    made = []
    for name, effects in groups.items():
        for column in SATURATIONS:
            for endpoint in ORDER:
                points = points_of(effects, column, endpoint)
                if points:
                    made.append(Correlation(name, column, endpoint, len(points), *_rank(points)))
    return made


def points_of(
    effects: Iterable[Effect], column: str, endpoint: str
) -> list[tuple[float, float, Effect]]:
    """Return saturation, effect and cell wherever both were measured."""
    found = ((e.row.get(column), e.value(endpoint), e) for e in effects)
    return [(x, y, e) for x, y, e in found if as_.known(x) and y is not None]


def _rank(points: Sequence[tuple[float, float, Effect]]) -> tuple[float | None, float | None]:
    x, y = [point[0] for point in points], [point[1] for point in points]
    if len(points) < FEWEST or len(set(x)) < 2 or len(set(y)) < 2:
        return None, None
    return spearman(x, y), spearman_p(x, y)


def correlation_table(found: Sequence[Correlation]) -> Table:
    """Return the correlations, one line per candidate and saturation; too few cells have none."""
    lines: dict[tuple[str, str], dict[str, Correlation]] = {}
    for one in found:
        lines.setdefault((one.candidate, one.saturation), {})[one.endpoint] = one
    return Table(
        ["Candidate", "Saturation", *(ENDPOINTS[name][0] for name in ORDER)],
        [
            [Cell(name, sort=name), Cell(SATURATIONS[column], sort=column), *(_correlated(line.get(e)) for e in ORDER)]
            for (name, column), line in lines.items()
        ],
    )  # fmt: skip


def _correlated(one: Correlation | None) -> Cell:
    if one is None:
        return Cell(as_.DASH)
    cells = f"{one.n} {'cell' if one.n == 1 else 'cells'}"
    if one.rho is None:
        return Cell(as_.DASH, f"{cells}: too few or all equal")
    p = "p < 0.001" if one.p < 0.001 else f"p = {one.p:.3f}"
    return Cell(f"{one.rho:+.2f}".replace("-", as_.MINUS), f"{p}, {cells}", one.rho)


def slope_table(slopes: Sequence[Mapping]) -> Table:
    """Return how each candidate's effect changes with tenfold parameters, one line per data size and setting.

    Args:
        slopes: ``size_slopes`` of a map's ``summary.json``.
    """
    settings = [dict(one.get("settings") or {}) for one in slopes]
    varied = [a for a in (settings[0] if slopes else ()) if len({s.get(a) for s in settings}) > 1]
    lines: dict[tuple[str, str], dict[str, Mapping]] = {}
    for one, own in zip(slopes, settings, strict=True):
        key = str(one.get("arm")), _settings(own, varied)
        lines.setdefault(key, {})[str(one.get("endpoint"))] = one
    return Table(
        ["Candidate", "Cells", *(ENDPOINTS[name][0] for name in ORDER)],
        [
            [Cell(arm, sort=arm), Cell(where, sort=where), *(_slope(of.get(name)) for name in ORDER)]
            for (arm, where), of in lines.items()
        ],
    )  # fmt: skip


def _slope(one: Mapping | None) -> Cell:
    if not one or not as_.known(one.get("slope")):
        return Cell(as_.DASH)
    small = [f"{one.get('sizes')} sizes, {one.get('n')} pairs"]
    if told := as_.change_interval([one.get("t_low"), one.get("t_high")]):
        small.insert(0, f"t: {told}")
    return Cell(as_.change(one["slope"]), "\n".join(small), one["slope"])


def rate_table(rates: Iterable[Mapping], level: str) -> Table:
    """Return how often runs collapsed, stalled or diverged, beside the baseline's rates.

    Args:
        rates: ``collapse_rates`` of a map's ``summary.json``.
        level: ``arm`` for one line per arm over all its cells; ``cell`` for one per cell where anything failed.
    """
    rates = [rate for rate in rates if rate.get("level") == level]
    settings = [dict(rate.get("settings") or {}) for rate in rates]
    varied = [a for a in (settings[0] if rates else ()) if len({s.get(a) for s in settings}) > 1]
    lines: dict[tuple[str, str], dict[str, Mapping]] = {}
    for rate, own in zip(rates, settings, strict=True):
        key = str(rate.get("arm")), _settings(own, varied)
        lines.setdefault(key, {})[str(rate.get("outcome"))] = rate
    cells = level == "cell"
    # most cells are sound: a line for each of them would hide the others
    shown = {
        key: of
        for key, of in lines.items()
        if not cells or any(r.get("count") or r.get("baseline_count") for r in of.values())
    }
    outcomes = [name for name in OUTCOMES if any(name in of for of in shown.values())]
    return Table(
        ["Arm", *(["Cell"] if cells else []), *map(str.capitalize, outcomes)],
        [
            [Cell(arm, sort=arm), *([Cell(where, sort=where)] if cells else []), *(_rate(of.get(name)) for name in outcomes)]
            for (arm, where), of in shown.items()
        ],
    )  # fmt: skip


def _rate(rate: Mapping | None) -> Cell:
    if not rate or not rate.get("n"):
        return Cell(as_.DASH)
    count, n = rate.get("count") or 0, rate["n"]
    small = []
    if as_.known(rate.get("wilson_low")):
        small.append(f"95 %: {_shares(rate['wilson_low'], rate['wilson_high'])}")
    if rate.get("baseline"):
        small.append(
            f"{rate['baseline']}: {rate.get('baseline_count')} of {rate.get('baseline_n')}"
        )
    if as_.known(rate.get("fisher_p")):
        small.append(f"Fisher p = {rate['fisher_p']:.3g}")
    low, high = rate.get("odds_ratio_low"), rate.get("odds_ratio_high")
    # between nought and infinity nothing is known, and nothing need be said
    if as_.known(low) and (low > 0 or high is not None):
        small.append(f"odds ratio {low:.2g} to {'infinity' if high is None else f'{high:.3g}'}")
    return Cell(f"{count} of {n}", "\n".join(small), count / n)


def _shares(low: float, high: float) -> str:
    return f"{100 * low:.0f} to {100 * high:.0f}{as_.NBSP}%"


def _settings(settings: Mapping, varied: Sequence[str]) -> str:
    """Say a cell by what differs between cells; its op is in the arm."""
    told = [
        f"{AXES.get(axis, axis).replace('_', ' ')} {as_.plain(settings[axis])}"
        for axis in varied
        if axis not in ("op", "seed") and settings.get(axis) is not None
    ]
    return ", ".join(told) or "all"
