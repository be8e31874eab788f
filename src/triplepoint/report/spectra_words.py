"""What an inspection comes to, in a word and a few sentences: counts and ranges, and no judgement of the training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from triplepoint.report import formats as as_
from triplepoint.report.spectra_rows import MatrixRow, Sheet, spectral_norm

CAUTION = (
    "How good a model is cannot be read off these numbers: exponents fall and rise again while models improve."
)  # fmt: skip


def headline(sheets: Sequence[Sheet]) -> tuple[str, str, str]:
    """Return (word, sentence, tone) of a run; the tone is the page's, ``unsafe`` where weights are not finite."""
    if not sheets or not sheets[-1].rows:
        return "Nothing measured", "No tensor of this checkpoint is a matrix of weights.", "none"
    bad = bad_rows(sheets[-1])
    if bad:
        rows = sum(bad.values())
        few = as_.listed(list(bad)[:3]) + (" and others" if len(bad) > 3 else "")
        word = f"{as_.count(rows)} {'row is' if rows == 1 else 'rows are'} not finite"
        return word, f"In {few} entries are inf or nan. {_state(sheets[-1])}", "unsafe"
    if sheets[0].arm is not None and len(sheets) == 2:
        return "Before and after", _change(*sheets, when=("before", "after")), "none"
    if len(sheets) > 1:
        first, last = (as_.count(s.step) for s in (sheets[0], sheets[-1]))
        when = (f"at step {first}", f"at step {last}")
        return f"Steps {first} to {last}", _change(sheets[0], sheets[-1], when=when), "none"
    return _word(sheets[0]), _state(sheets[0]), "none"


def bad_rows(sheet: Sheet) -> dict[str, float]:
    """Return name -> rows that are not finite, where there are any."""
    found = {row.name: row.values.get("non_finite_rows") for row in sheet.rows}
    return {name: rows for name, rows in found.items() if rows}


def _word(sheet: Sheet) -> str:
    judged = [row for row in sheet.rows if row.heavy is not None]
    if not judged:
        return f"{_matrices(len(sheet.rows))} measured"
    heavy = len(sheet.heavy())
    return f"{heavy} of {_matrices(len(judged))} {'is' if 1 in (heavy, len(judged)) else 'are'} heavy-tailed"


def _matrices(number: int) -> str:
    return f"{as_.count(number)} {'matrix' if number == 1 else 'matrices'}"


def _state(sheet: Sheet) -> str:
    """Say what was found in one checkpoint."""
    parts = [*_tails(sheet), *_ranks(sheet), _skips(sheet)]
    return " ".join(filter(None, parts))


def _tails(sheet: Sheet) -> list[str]:
    heavy, found = sheet.heavy(), []
    exponents = [row.values["tail_exponent"] for row in heavy if "tail_exponent" in row.values]
    if exponents:
        ends = {f"{min(exponents):.2f}", f"{max(exponents):.2f}"}
        found.append(
            "Heavy-tailed means: beyond the same entries in random order. "
            f"{'Their exponents go' if len(ends) > 1 else 'The exponent is'} "
            f"{f'from {min(exponents):.2f} to {max(exponents):.2f}' if len(ends) > 1 else ends.pop()}."
        )
    refused = [r for r in sheet.rows if "tail_exponent" in r.reasons]
    if refused:
        found.append(
            f"{as_.count(len(refused))} {'has' if len(refused) == 1 else 'have'} no exponent, for reasons given below."
        )
    spiked = sum(bool(row.values.get("spikes")) for row in sheet.rows)
    if spiked:
        found.append(
            f"{as_.count(spiked)} {'has' if spiked == 1 else 'have'} spikes above the noise bulk."
        )
    return found


def _ranks(sheet: Sheet) -> list[str]:
    ranked = [row for row in sheet.rows if row.share("stable_rank") is not None]
    if not ranked:
        return []
    low = min(ranked, key=lambda row: row.share("stable_rank") or 0.0)
    value = low.values["stable_rank"]
    return [f"Lowest stable rank for its size: {value:.1f} of {min(low.shape)}, in {low.name}."]


def _skips(sheet: Sheet) -> str:
    skipped = len(sheet.skipped)
    if not skipped:
        return ""
    return f"{as_.count(skipped)} {'tensor is' if skipped == 1 else 'tensors are'} no matrix of weights; reasons below."


def _change(before: Sheet, after: Sheet, *, when: tuple[str, str]) -> str:
    """Say what differs between two checkpoints, over the matrices that both have."""
    pairs = common(before, after)
    if pairs and all(a.values == b.values for a, b in pairs):
        return f"Nothing that was measured differs, in any of the {_matrices(len(pairs))} that both have."
    parts = []
    if any(a.heavy is not None for _, a in pairs):
        old, new = (sum(bool(pair[side].heavy) for pair in pairs) for side in (0, 1))
        parts.append(f"Heavy-tailed: {old} {when[0]}, {new} {when[1]}, of {_matrices(len(pairs))}.")
    for metric, name in (("stable_rank", "stable rank"), ("effective_rank", "effective rank")):
        if medians := _medians(pairs, metric):
            parts.append(f"Median {name}: {medians[0]:.1f} {when[0]}, {medians[1]:.1f} {when[1]}.")
    most = max(pairs, key=_norm_change, default=None)
    if most and _norm_change(most) > 0:
        old, new = (spectral_norm(row) for row in most)
        parts.append(
            f"The largest singular value moved most in {most[0].name}: {old:#.3g} to {new:#.3g}."
        )
    return " ".join(parts) or f"{_matrices(len(pairs))} in both."


def common(before: Sheet, after: Sheet) -> list[tuple[MatrixRow, MatrixRow]]:
    """Return the matrices that have the same name and shape in both."""
    old = {(row.name, row.shape): row for row in before.rows}
    return [(old[r.name, r.shape], r) for r in after.rows if (r.name, r.shape) in old]


def _medians(
    pairs: Sequence[tuple[MatrixRow, MatrixRow]], metric: str
) -> tuple[float, float] | None:
    both = [(a.values[metric], b.values[metric]) for a, b in pairs if metric in a.values and metric in b.values]  # fmt: skip
    if not both:
        return None
    old, new = zip(*both, strict=True)
    return statistics.median(old), statistics.median(new)


def _norm_change(pair: tuple[MatrixRow, MatrixRow]) -> float:
    old, new = (row.values.get("log_spectral_norm") for row in pair)
    return abs(new - old) if as_.known(old) and as_.known(new) else 0.0
