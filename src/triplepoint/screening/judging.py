"""Finished calibrations -> a verdict. Reads runs, trains nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from triplepoint.phases import Judgement, judge_arm, plateau_exit_step
from triplepoint.published import Facts, apply_rules
from triplepoint.screening import clocks, reasons, words
from triplepoint.screening.arms import Arms
from triplepoint.screening.comparing import endpoints
from triplepoint.screening.forecasting import Forecaster, PlanForecast, facts_of
from triplepoint.screening.miniature_evidence import MiniatureEvidence
from triplepoint.screening.plans import TIE_MARGIN, Plan
from triplepoint.screening.rulebook import RuleBook, shipped
from triplepoint.screening.verdicts import (
    CandidateVerdict,
    Comparison,
    NextLook,
    Verdict,
    Word,
    overall,
)
from triplepoint.sweeps import ArmRun


class Judge:
    """Turns the runs of one screen into its verdict.

    Args:
        plan: What the user is about to train.
        baseline: Its runs.
        candidates: Theirs.
        criterion: The endpoint that counts.
        tie_margin: Fraction of the baseline's loss within which arms are equal.
        parameters: Counts by convention, of the baseline.
        tokens_per_step: Tokens of one step.
        confidence: Least probability of an answer; None for the rule's own threshold.
        baseline_run: A finished run of the baseline to the plan's end, where there is one.
        book: The rule and its record.
        miniatures: The whole plan at small sizes, where it was trained.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        baseline: Arms,
        candidates: Sequence[Arms],
        criterion: str,
        parameters: Mapping[str, int],
        tokens_per_step: int,
        tie_margin: float = TIE_MARGIN,
        confidence: float | None = None,
        baseline_run: ArmRun | None = None,
        book: RuleBook | None = None,
        miniatures: MiniatureEvidence | None = None,
    ):
        self.miniatures = miniatures
        self.confidence, self.baseline_run = confidence, baseline_run
        self.plan, self.baseline, self.candidates = plan, baseline, candidates
        self.criterion, self.margin = criterion, tie_margin
        self.parameters, self.tokens = parameters, tokens_per_step
        self.recipe = dict(baseline.runs[0].facts["asked"]["recipe"])
        self.steps = baseline.runs[0].until
        self.plateau = baseline.runs[0].plateau
        self.measured = plan.steps == self.steps
        self.plan_facts = self._plan_facts()
        self.baseline_diverged = baseline.diverged_at()
        self.baseline_exit = self._exit(baseline)
        self.book = shipped() if book is None else book
        self.forecaster = self._forecaster()

    def verdict(self, *, spent_s: float, notes: Sequence[str] = ()) -> Verdict:
        """Judge every candidate and say what to do."""
        judged = [self._candidate(c) for c in self.candidates]
        word, recommended = overall(judged, self.baseline.name)
        baseline = self._baseline_facts()
        cost = self._cost(spent_s)
        headline, summary = words.tell(
            word=word, recommended=recommended, criterion=self.criterion, plan=self.plan_facts,
            baseline=baseline, candidates=judged, cost=cost,
        )  # fmt: skip
        return Verdict(
            verdict=word,
            recommended=recommended,
            criterion=self.criterion,
            headline=headline,
            summary=summary,
            plan=self.plan_facts,
            baseline=baseline,
            candidates=judged,
            rules=apply_rules(self._facts(judged)),
            cost=cost,
            notes=[*notes, *self._notes()],
        )

    def _forecaster(self) -> Forecaster | None:
        """Return what forecasts, where the data and the baseline allow it."""
        if (
            self.plateau is None
            or self.plan.unique_tokens is None
            or self.baseline_diverged is not None
        ):
            return None
        return Forecaster(
            book=self.book, plan=self.plan, baseline=self.baseline, parameters=self.parameters,
            tokens_per_step=self.tokens, plateau=self.plateau["val"], baseline_run=self.baseline_run,
            margin=self.margin,
        )  # fmt: skip

    # -- plan, baseline, cost --------------------------------------------------------------------------

    def _plan_facts(self) -> dict[str, Any]:
        plan, tokens = self.plan, self.plan.steps * self.tokens
        unique, counted = plan.unique_tokens, self.parameters.get("params_no_positions")
        whole = plan.recipe()
        s1_now = self.baseline.runs[0].series("s1")[1]
        return {
            "steps": plan.steps,
            "tokens": tokens,
            "unique_tokens": unique,
            "epochs": tokens / unique if unique else None,
            "tokens_per_parameter": unique / counted if unique and counted else None,
            "tokens_per_parameter_by_convention": {
                name: unique / n for name, n in self.parameters.items() if unique and n
            },
            "parameter_convention": "params_no_positions (all but learned positions, tied weights once)",
            "processed_tokens_per_parameter": tokens / counted if counted else None,
            **self.parameters,
            "schedule": plan.schedule,
            "lr": plan.lr,
            "warmup": plan.warmup,
            "calibration_steps": self.steps,
            "calibration_warmup": self.recipe["warmup"],
            "calibration_schedule": self.recipe["schedule"],
            "s1_share": float(s1_now[-1]) / (whole.s1_at(plan.steps) * self.baseline.lr / plan.lr) if len(s1_now) else None,
            "measured": self.measured,
            "assumed": plan.assumed,
            "tie_margin": self.margin,
            "seeds": [r.seed for r in self.baseline.runs],
        }  # fmt: skip

    def _exit(self, arm: Arms) -> int | None:
        """Return the step at which the slowest seed left the plateau; None unless all have."""
        if arm.diverged_at() is not None:
            return None
        if self.plateau is None:
            return arm.steps[0]  # no plateau to leave
        found = [
            plateau_exit_step(arm.steps, val.mean(axis=1).tolist(), self.plateau["val"])
            for val in arm.losses("val_loss")
        ]
        return None if None in found else max(found)

    def _baseline_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "arm": self.baseline.name,
            "lr": self.baseline.lr,
            "plateau": self.plateau,
        }
        phase = self._phase(self.baseline, baseline_exit=None)
        facts |= {
            "phase": phase.phase,
            "phase_reason": phase.reason,
            "plateau_exit_step": self.baseline_exit,
        }
        if self.baseline_diverged is None:
            val, train = self.baseline.curve("val_loss"), self.baseline.curve("train_loss")
            best = int(np.argmin(val))
            facts |= {
                "val_loss": float(val[-1]),
                "train_loss": float(train[-1]),
                "train_val_gap": float(val[-1] - train[-1]),
                "best_val_loss": float(val[best]),
                "best_step": self.baseline.steps[best],
            }
        return facts

    def _cost(self, spent_s: float) -> dict[str, Any]:
        step_s = self.baseline.mean_of("step_wall_time")
        at_stake = step_s * self.plan.steps if step_s else None
        return {
            "spent_s": spent_s,
            "at_stake_s": at_stake,
            "spent_share": spent_s / at_stake if at_stake else None,
            "baseline_step_s": step_s,
        }

    def _facts(self, judged: Sequence[CandidateVerdict]) -> Facts:
        baseline = self._baseline_facts()
        saturations = [c.saturation_2 for c in judged if c.saturation_2 is not None]
        return Facts(
            tokens_per_parameter=self.plan_facts["tokens_per_parameter"],
            unique_tokens=self.plan.unique_tokens,
            epochs=self.plan_facts["epochs"],
            saturation_2=max(saturations) if saturations else None,
            train_val_gap=baseline.get("train_val_gap"),
        )

    def _notes(self) -> list[str]:
        notes = []
        seeds = len(self.baseline.runs)
        if self.miniatures is not None:
            notes.append(
                "The plans in miniature have one seed and the plan's rate, and their errors are of the windows alone. "
                + " ".join(self.miniatures.notes)
            )
        if seeds == 1:
            notes.append(
                "One seed: the intervals cover the windows only and say nothing about another seed."
            )
        elif seeds < 5:
            notes.append(
                f"{seeds} seeds: where seeds differ more than windows do, a nominal 95 % interval covers less "
                f"({'about 61 %' if seeds == 2 else 'about 82 %' if seeds == 3 else 'under 88 %'} in a simulation)."
            )
        if self.plateau is None:
            notes.append(
                "The batches are no token windows: there is no unigram plateau, so stalls are not looked for."
            )
        return notes

    # -- one candidate ---------------------------------------------------------------------------------

    def _phase(self, arm: Arms, *, baseline_exit: int | None) -> Judgement:
        """Return the worst phase over the seeds."""
        diverged = arm.diverged_at()
        if diverged is not None:
            return Judgement("diverged", f"the loss left its range at step {diverged}")
        judged = [self._phase_of(run, arm, baseline_exit) for run in arm.runs]
        order = ("collapsed", "stalled", "fitting", "overfitting", "memorised", "generalising")
        worst = min(judged, key=lambda j: order.index(j.phase))
        same = sum(j.phase == worst.phase for j in judged)
        return Judgement(worst.phase, f"{worst.reason} ({same} of {len(judged)} seeds)")

    def _phase_of(self, run: ArmRun, arm: Arms, baseline_exit: int | None) -> Judgement:
        val = run.arrays["val_loss"].mean(axis=1).tolist()
        return judge_arm(
            steps=arm.steps,
            val_losses=val[: len(arm.steps)],
            plateau=self.plateau["val"] if self.plateau else None,
            planned_steps=self.plan.steps,
            baseline_exit=baseline_exit,
            alpha_drift_std=run.last("alpha_drift_std"),
            prediction_kl=run.last("prediction_kl"),
        )

    def _candidate(self, arm: Arms) -> CandidateVerdict:
        phase = self._phase(arm, baseline_exit=self.baseline_exit)
        comparable = phase.phase != "diverged" and self.baseline_diverged is None
        measured = (
            endpoints(arm, self.baseline)
            if comparable
            else {"fixed_step": None, "best_checkpoint": None}
        )
        # on the plateau both numbers say when the arm will leave it, not how fast it is
        moving = comparable and self._exit(arm) is not None
        found, even = (
            self._delay(arm) if moving else (clocks.Delay(None, None), clocks.BreakEven(None, None))
        )
        forecast = self._forecast(arm) if comparable else None
        counted = measured[self.criterion]
        shrunk = self._in_miniature(arm)
        word, why = self._word(arm, phase, counted, forecast, shrunk)
        return CandidateVerdict(
            arm=arm.name,
            op=arm.op,
            preset=arm.preset,
            verdict=word,
            why=why,
            delta_rel=counted and counted.delta_rel,
            interval=counted and counted.interval,
            endpoints={
                **measured,
                "matched_train_loss": self._matched(arm, found) if comparable else None,
            },
            lr=arm.lr,
            speed_ratio=found.speed_ratio,
            offset=found.offset,
            break_even_speed_ratio=even.speed_ratio,
            break_even_offset=even.offset,
            saturation_2=arm.mean_of("saturation@2"),
            stalled=phase.phase in ("stalled", "collapsed"),
            collapsed=phase.phase == "collapsed",
            phase=phase.phase,
            phase_reason=phase.reason,
            plateau_exit_step=self._exit(arm),
            step_time_ratio=self._ratio(arm, "step_time"),
            tokens_per_s_ratio=self._ratio(arm, "tokens_per_s"),
            peak_memory_ratio=self._ratio(arm, "peak_memory"),
            forecast=forecast and facts_of(forecast, self.book.cells, self.criterion),
            terms=[dataclasses.asdict(term) for term in forecast.terms] if forecast else [],
            miniature=shrunk,
            next=self._next(arm) if word == "undecided" else None,
            would_change=words.would_change(word, phase.phase, found, even, self.plan_facts),
        )

    def _ratio(self, arm: Arms, metric: str) -> float | None:
        ours, theirs = arm.mean_of(metric), self.baseline.mean_of(metric)
        return ours / theirs if ours and theirs and ours > 0 and theirs > 0 else None

    def _delay(self, arm: Arms) -> tuple[clocks.Delay, clocks.BreakEven]:
        s = self.baseline.clock()
        found = clocks.delay(
            s,
            self.baseline.curve("train_loss"),
            self.baseline.curve("val_loss"),
            arm.curve("train_loss"),
            arm.curve("val_loss"),
            arm.clock(),
        )
        return found, clocks.break_even(s, self.baseline.curve("val_loss"), found)

    def _matched(self, arm: Arms, found: clocks.Delay) -> dict[str, float] | None:
        if found.offset is None:
            return None
        loss = float(arm.curve("val_loss")[-1])
        return {"delta_rel": found.offset / (loss - found.offset), "candidate_loss": loss}

    def _forecast(self, arm: Arms) -> PlanForecast | None:
        """Carry the calibration forward, where there is something to go by."""
        if self.measured or self.forecaster is None:
            return None
        return self.forecaster.forecast(arm)

    def _in_miniature(self, arm: Arms) -> dict[str, Any] | None:
        """Return what the plan in miniature says of a candidate, with how often such a sign was right."""
        if self.miniatures is None:
            return None
        found, record = self.miniatures.facts(arm.name, self.criterion), self.book.miniature
        if found["winner"] is None:
            return {**found, "record": None, "decides": False}
        family = str(arm.runs[0].facts["asked"].get("size")).partition("-")[0]
        beyond = all(abs(size["delta_rel"]) > self.margin for size in found["sizes"])
        return {
            **found, "record": record.track(self.criterion, found["winner"]).facts,
            "decides": beyond and record.decides(self.criterion, found["winner"], family),
        }  # fmt: skip

    # -- the word --------------------------------------------------------------------------------------

    def _word(
        self,
        arm: Arms,
        phase: Judgement,
        counted: Comparison | None,
        forecast: PlanForecast | None,
        shrunk: Mapping[str, Any] | None,
    ) -> tuple[Word, str]:
        if phase.phase == "diverged" and self.baseline_diverged is not None:
            return "unsafe", (
                f"both arms diverged ({self.baseline.name} at step {self.baseline_diverged}, {arm.name}: "
                f"{phase.reason}): the plan itself is unstable, try a lower rate or a longer warm-up"
            )
        if phase.phase in ("diverged", "collapsed"):
            return "unsafe", f"{phase.phase}: {phase.reason}"
        if self.baseline_diverged is not None:
            if self.measured and phase.phase in ("generalising", "overfitting"):
                return (
                    "replace",
                    f"the baseline diverged at step {self.baseline_diverged}; this arm did not",
                )
            return (
                "undecided",
                f"the baseline diverged at step {self.baseline_diverged}: lower the rate first",
            )
        if self.measured:
            return self._measured_word(counted)
        word, why = self._forecast_word(forecast)
        if self._exit(arm) is None:
            unheeded = "; the plan in miniature is not heeded, since how a model starts changes with size" if shrunk else ""  # fmt: skip
            return word, f"{why}; {phase.phase}: {phase.reason}{unheeded}"
        return _beside_miniature(word, why, shrunk)

    def _measured_word(self, counted: Comparison) -> tuple[Word, str]:
        (low, high), margin, each = counted.interval, self.margin, counted.by_seed
        told = (
            f"measured {reasons.percent(counted.delta_rel)} ({reasons.interval(counted.interval)})"
        )
        if high < -margin and max(each) < -margin:
            return (
                "replace",
                f"{told}: better by more than the {100 * margin:.1f} % that count as a tie",
            )
        if low > -margin and min(each) > -margin:
            return (
                "keep",
                f"{told}: not better by more than the {100 * margin:.1f} % that count as a tie",
            )
        return (
            "undecided",
            f"{told}: the interval holds the tie margin of -{100 * margin:.1f} %; more seeds narrow it",
        )

    def _forecast_word(self, forecast: PlanForecast | None) -> tuple[Word, str]:
        if forecast is None:
            return "undecided", words.why_no_forecast(self.plan_facts)
        end = forecast.endpoints[self.criterion]
        better = end.delta_rel < -self.margin
        told = reasons.forecast(end, forecast)
        if forecast.nearness.where == "outside":
            if not end.apart(self.margin):
                return "undecided", f"{told}; {reasons.outside(forecast)}"
            return ("replace" if better else "keep"), f"{told}: the arms' own intervals do not meet"
        sure = max(end.probability, 1 - end.probability)
        if not (end.answered if self.confidence is None else sure > self._least()):
            return "undecided", f"{told}: not sure enough to answer"
        if end.probability > 0.5 and not better:
            return (
                "keep",
                f"{told}: not better by more than the {100 * self.margin:.1f} % that count as a tie",
            )
        return ("replace" if end.probability > 0.5 else "keep"), told

    def _least(self) -> float:
        """Return the least probability of an answer where several looks are taken: the one asked, or what pays for all."""
        return max(self.confidence or 0.0, self.book.sequential[self.criterion])

    def _next(self, arm: Arms) -> NextLook:
        steps = min(2 * self.steps, self.plan.steps)
        seeds = len(self.baseline.runs)
        if steps == self.steps:
            per_seed = self.steps * sum(
                a.mean_of("step_wall_time") or 0.0 for a in (arm, self.baseline)
            )
            return NextLook(
                steps=steps, cost_s=per_seed * seeds, what=f"{2 * seeds} seeds instead of {seeds}"
            )
        per_step = sum(a.mean_of("step_wall_time") or 0.0 for a in (arm, self.baseline))
        return NextLook(
            steps=steps, cost_s=per_step * steps * seeds, what=f"both arms to step {steps}"
        )


def _beside_miniature(word: Word, why: str, shrunk: Mapping[str, Any] | None) -> tuple[Word, str]:
    """Let the plan in miniature decide where the rule does not, and take an answer back that it contradicts."""
    if shrunk is None:
        return word, why
    why = f"{why}; {reasons.miniature(shrunk)}"
    if not shrunk["decides"]:
        return word, why
    says: Word = "replace" if shrunk["winner"] == "candidate" else "keep"
    if word in ("undecided", says):
        return says, why
    return "undecided", f"{why}: the two contradict each other"
