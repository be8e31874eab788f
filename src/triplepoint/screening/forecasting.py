"""From a calibration's arms to the rule's answer about the plan, with everything that a person may ask about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from triplepoint.evidence import ENDPOINTS, BenchmarkCell, Endpoint, Setting, Trajectory
from triplepoint.screening.arms import Arms
from triplepoint.screening.lateness import Outlook
from triplepoint.screening.latents import QUANTITIES
from triplepoint.screening.nearness import Nearness
from triplepoint.screening.plans import TIE_MARGIN, Plan
from triplepoint.screening.rule import FittedRule, Forecast, s1_end
from triplepoint.screening.rulebook import CellRecord, RuleBook, Track
from triplepoint.sweeps import ArmRun

FULL_SPREADS = 3.0
"""Most that the laws' spreads are widened by for a plan that is far from the benchmark."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointForecast:
    """One endpoint of the plan."""

    delta_rel: float
    """Median of (candidate - baseline) / baseline."""
    interval: tuple[float, float]
    """95 % of the draws."""
    probability: float
    """That the candidate ends lower, given that the arms end apart by more than the tie margin; tempered, capped."""
    answered: bool
    """Whether the rule commits itself."""
    loss: float
    """The candidate's median, nats per token."""
    loss_interval: tuple[float, float]
    baseline_loss: float
    baseline_interval: tuple[float, float]

    def apart(self, margin: float) -> bool:
        """Whether the two arms' own intervals do not overlap, and their difference is surely beyond the tie margin."""
        (low, high), (below, above) = self.loss_interval, self.baseline_interval
        return (low > above or high < below) and (self.interval[0] > margin or self.interval[1] < -margin)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """One number that a forecast was made of."""

    label: str
    value: float
    spread: float | None
    meaning: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanForecast:
    """What the rule says about a plan."""

    look: int
    """Step whose fitted rule was used."""
    endpoints: Mapping[Endpoint, EndpointForecast]
    nearness: Nearness
    track: Mapping[Endpoint, Track]
    onset_epoch: float | None
    """Epoch from which the baseline over-fits, the median; None where most draws never do inside the plan."""
    early_stopping: float
    """What the baseline gains by stopping at its best: relative difference, negative."""
    from_baseline_run: bool
    """Whether the baseline's end was read from a finished run."""
    terms: tuple[Term, ...]


MEANINGS: Mapping[str, str] = {
    "acceleration": "ln of how much steeper the baseline's train loss will fall in the clock",
    "curvature": "how fast its validation curve will bend, per nat of train loss",
    "catching_up": "how the candidate's speed ratio grows with the clock (exponent)",
    "escaping": "the same of a candidate that is still on the plateau",
    "relief": "share of the baseline's over-fitting that the candidate is spared",
    "offset": "candidate's validation loss at equal train loss, beside that, nats",
}


class Forecaster:
    """Forecasts every candidate of one screen.

    Args:
        book: The fitted rule and its record.
        plan: What the user is about to train.
        baseline: Its calibrations.
        parameters: Counts by convention.
        tokens_per_step: Tokens of one step.
        plateau: Validation loss of unigram frequencies.
        baseline_run: A finished run of the baseline to the plan's end.
        margin: Share of the baseline's loss within which arms are equal.
    """

    def __init__(
        self,
        *,
        book: RuleBook,
        plan: Plan,
        baseline: Arms,
        parameters: Mapping[str, int],
        tokens_per_step: int,
        plateau: float,
        baseline_run: ArmRun | None = None,
        margin: float = TIE_MARGIN,
    ):
        self.margin = margin
        self.book, self.plan, self.baseline = book, plan, baseline
        self.parameters, self.tokens, self.plateau = parameters, tokens_per_step, plateau
        self.baseline_run = baseline_run
        self.look = book.look_for(baseline.steps[-1])

    def forecast(self, arm: Arms) -> PlanForecast | None:
        """Forecast a candidate; None where the rule has nothing to go by."""
        if self.look is None or self.plan.unique_tokens is None:
            return None
        cell = self._cell(arm)
        nearness = self.book.neighbourhood(self.look).nearness(cell.setting, cell.op)
        rule = widened(
            self.book.rules[self.look], 1.0 if nearness.where == "inside" else nearness.ratio
        )
        found = rule.forecast(cell, margin=self.margin)
        if found.outlook is None:
            return None
        family = cell.setting.architecture.partition(" ")[0]
        return PlanForecast(
            look=self.look,
            endpoints={e: _endpoint(e, found, found.outlook) for e in ENDPOINTS},
            nearness=nearness,
            track={e: self.book.track(self.look, e, architecture=family) for e in ENDPOINTS},
            onset_epoch=self._onset(found.outlook, cell.setting),
            early_stopping=_early_stopping(found.outlook),
            from_baseline_run=self.baseline_run is not None,
            terms=_terms(found, rule),
        )

    def _cell(self, arm: Arms) -> BenchmarkCell:
        baselines = [trajectory_of(run) for run in self.baseline.runs]
        if self.baseline_run is not None:
            whole = trajectory_of(self.baseline_run).until(self.plan.steps)
            baselines = [joined(beginning, whole) for beginning in baselines]
        return BenchmarkCell(
            name=arm.name, candidate=_told(arm, self.baseline), op=_op(arm), setting=self._setting(arm),
            baseline_runs=tuple(baselines), candidate_runs=tuple(trajectory_of(run) for run in arm.runs), truth=None,
        )  # fmt: skip

    def _setting(self, arm: Arms) -> Setting:
        plan, facts = self.plan, self.baseline.runs[0].facts
        size = str(facts["asked"].get("size") or "own")
        return Setting(
            architecture=size.partition("-")[0], size=size, corpus="", unique_tokens=plan.unique_tokens,
            params=self.parameters, steps=plan.steps, tokens_per_step=self.tokens, lr=self.baseline.lr,
            candidate_lr=arm.lr, rate="plan" if arm.lr == self.baseline.lr else "own best", warmup=plan.warmup,
            schedule=plan.schedule, plateau=self.plateau,
        )  # fmt: skip

    def _onset(self, ahead: Outlook, setting: Setting) -> float | None:
        """Return the epoch of the baseline's best checkpoint, where that comes well before the end."""
        recipe = dataclasses.replace(self.plan.recipe(), lr=setting.lr)
        steps = np.unique(np.linspace(1, setting.steps, 400).astype(int))
        clock = np.array([recipe.s1_at(int(step)) for step in steps])
        best = np.interp(np.median(ahead.best_clock), clock, steps)
        over = np.mean(ahead.best_clock < 0.95 * s1_end(setting, setting.lr)) > 0.5
        return float(best) * self.tokens / setting.unique_tokens if over else None


def trajectory_of(run: ArmRun) -> Trajectory:
    """Return a run's curves as the benchmark has them."""
    steps = np.array([int(s) for s in run.arrays["eval_steps"]])
    at, clock = run.series("s1")
    losses = {name: run.arrays[name].astype(float).mean(axis=1) for name in ("train_loss", "val_loss")}  # fmt: skip
    return Trajectory(
        seed=run.seed, steps=steps, s1=np.interp(steps, at, clock), train=losses["train_loss"], val=losses["val_loss"],
        series={}, outcome=run.outcome, diverged_at=run.diverged_at,
    )  # fmt: skip


def joined(beginning: Trajectory, whole: Trajectory) -> Trajectory:
    """Return a calibration's curve, and from where it ends that of a finished run of the same plan."""
    rest = whole.s1 > beginning.s1[-1]
    return dataclasses.replace(
        beginning,
        **{name: np.concatenate([getattr(beginning, name), getattr(whole, name)[rest]]) for name in ("steps", "s1", "train", "val")},
    )  # fmt: skip


def widened(rule: FittedRule, factor: float) -> FittedRule:
    """Return the rule with its laws' spreads wider, three times at most."""
    factor = min(max(factor, 1.0), FULL_SPREADS)
    laws = {name: dataclasses.replace(law, spread=law.spread * factor) for name, law in rule.laws.items()}  # fmt: skip
    return dataclasses.replace(rule, laws=laws)


def _op(arm: Arms) -> str:
    return f"{arm.op}:{arm.preset}" if arm.preset else arm.op


def _told(arm: Arms, baseline: Arms) -> str:
    """Return the candidate in the benchmark's words, so that a regulariser is known as one."""
    ours, theirs = (a.runs[0].facts["asked"]["recipe"]["weight_decay"] for a in (arm, baseline))
    return f"{arm.op} weight_decay={ours:g}" if ours > theirs else arm.name


def _endpoint(endpoint: Endpoint, found: Forecast, ahead: Outlook) -> EndpointForecast:
    delta = ahead.difference(endpoint)
    loss, baseline = ahead.candidate[endpoint], ahead.baseline[endpoint]
    return EndpointForecast(
        delta_rel=float(np.median(delta)), interval=_ends(delta), probability=found.p[endpoint],
        answered=found.answered[endpoint], loss=float(np.median(loss)), loss_interval=_ends(loss),
        baseline_loss=float(np.median(baseline)), baseline_interval=_ends(baseline),
    )  # fmt: skip


def _ends(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def _early_stopping(ahead: Outlook) -> float:
    end, best = ahead.baseline["fixed_step"], ahead.baseline["best_checkpoint"]
    return float(np.median((best - end) / end))


def _terms(found: Forecast, rule: FittedRule) -> tuple[Term, ...]:
    """Return what the forecast was made of: measured, then drawn; means over seeds."""
    readings = found.readings
    mean: Any = lambda values: float(np.mean(list(values)))  # noqa: E731
    measured = [
        Term(label="speed ratio", value=mean(r.speed_ratio for r in readings), spread=None, meaning="clock at which the baseline had the candidate's train loss, over the candidate's"),
        Term(label="offset", value=mean(r.offset for r in readings), spread=None, meaning="candidate's validation loss minus the baseline's at equal train loss, nats"),
        Term(label="slope", value=mean(r.slope for r in readings), spread=None, meaning="baseline's validation loss per nat of train loss: 1 no over-fitting, 0 at the best, negative beyond"),
        Term(label="epochs", value=mean(r.epochs for r in readings), spread=None, meaning="passes over the data so far"),
    ]  # fmt: skip
    stuck = readings[0].on_plateau
    unused = "catching_up" if stuck else "escaping"
    drawn = [
        Term(
            label=name.replace("_", " "), value=mean(rule.laws[name].expected(quantity.features(r)) for r in readings),
            spread=rule.laws[name].spread, meaning=MEANINGS[name],
        )
        for name, quantity in QUANTITIES.items() if name != unused
    ]  # fmt: skip
    return (*measured, *drawn)


def facts_of(
    forecast: PlanForecast, cells: Sequence[CellRecord], criterion: Endpoint
) -> dict[str, Any]:
    """Return what a verdict keeps of a forecast: the criterion's endpoint on top, then everything else.

    Args:
        forecast: Of the plan.
        cells: The book's.
        criterion: The endpoint that counts.
    """
    track = forecast.track[criterion]
    near = [
        {**_named(cells[n.number]), "distance": n.distance, "delta_rel": cells[n.number].truth[criterion].delta_rel,
         "winner": cells[n.number].truth[criterion].winner}
        for n in forecast.nearness.nearest
    ]  # fmt: skip
    # nothing to stop early where it does not over-fit: what is left then is noise
    gained = forecast.early_stopping if forecast.onset_epoch else 0.0
    stopping = {"what": "stopping the baseline at its best checkpoint", "fixed_step": gained, "best_checkpoint": 0.0}  # fmt: skip
    return {
        **dataclasses.asdict(forecast.endpoints[criterion]),
        "look": forecast.look,
        "endpoints": {e: dataclasses.asdict(end) for e, end in forecast.endpoints.items()},
        "where": forecast.nearness.where,
        "where_why": forecast.nearness.why,
        "distance_ratio": forecast.nearness.ratio,
        "nearest": near,
        "record": {**track.facts, "held_out": "scale"},
        "onset_epoch": forecast.onset_epoch,
        "from_baseline_run": forecast.from_baseline_run,
        "alternatives": [stopping, *alternatives(forecast, cells)],
    }  # fmt: skip


def alternatives(
    forecast: PlanForecast, cells: Sequence[CellRecord], *, count: int = 3
) -> list[dict[str, Any]]:
    """Return what else did better near this plan, at one endpoint at least: regularised baselines of the nearest groups.

    Args:
        forecast: Of the plan.
        cells: The book's.
        count: At most so many.
    """
    near = {cells[n.number].setting.group for n in forecast.nearness.nearest}
    if forecast.nearness.where == "outside":
        return []
    kept = [
        c for c in cells
        if c.setting.group in near and c.regularised and any(t.winner == "candidate" for t in c.truth.values())
    ]  # fmt: skip
    return [
        {**_named(c), "what": c.candidate, **{e: c.truth[e].delta_rel for e in ENDPOINTS}}
        for c in kept[:count]
    ]


def _named(cell: CellRecord) -> dict[str, Any]:
    setting = cell.setting
    return {
        "cell": cell.name, "candidate": cell.candidate, "size": setting.size, "corpus": setting.corpus,
        "unique_tokens": setting.unique_tokens, "steps": setting.steps, "lr": setting.candidate_lr,
    }  # fmt: skip
