"""The matrices of an inspection as rows, the most notable first; told to pages and terminals alike."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from triplepoint.records import Record
from triplepoint.report.formats import MINUS, count, known
from triplepoint.report.spectra_roles import depths_of, role_of

ORDER = (
    "Most notable first: rows that are not finite; tails heavier than those of the same entries in random order; "
    "spikes above the noise bulk; the rest. Within each, the lowest stable rank for its size first."
)
"""How rows are ordered, in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One matrix of one checkpoint."""

    name: str
    kind: str
    role: str
    depth: int
    """As :func:`~triplepoint.report.spectra_roles.depths_of` has it."""
    shape: tuple[int, int]
    values: Mapping[str, float]
    """Metric -> value."""
    intervals: Mapping[str, tuple[float, float]]
    reasons: Mapping[str, str]
    """Metric -> why it has no value; of ``heavy_tailed``, which condition decided."""
    fit: Mapping[str, float]
    """What the picture draws; also where ``tail_exponent`` is not among the metrics asked for."""
    below_range: int
    """Eigenvalues too small for the picture."""

    @property
    def heavy(self) -> bool | None:
        """Whether the tail is heavier than its null's; None where that was not asked for."""
        value = self.values.get("heavy_tailed")
        return None if value is None else bool(value)

    def share(self, metric: str) -> float | None:
        """Return a rank as a share of the smaller side, the largest that it can be."""
        value = self.values.get(metric)
        return value / min(self.shape) if known(value) else None

    def notability(self) -> tuple[int, float]:
        """Return the key of :data:`ORDER`, smallest first."""
        marks = (self.values.get("non_finite_rows"), self.heavy, self.values.get("spikes"))
        group = next((place for place, mark in enumerate(marks) if mark), len(marks))
        share = self.share("stable_rank")
        return group, 1.0 if share is None else share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sheet:
    """One inspected checkpoint."""

    number: int
    """Its place among the inspections of the run."""
    name: str
    step: int | None
    arm: str | None
    rows: Sequence[MatrixRow]
    """In the order of the checkpoint."""
    skipped: Sequence[Mapping]
    left_out: Sequence[str]

    def notable(self) -> list[MatrixRow]:
        """Return the rows, the most notable first."""
        return sorted(self.rows, key=MatrixRow.notability)

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric, of the matrices that have one."""
        found = (row.values.get(metric) for row in self.rows)
        return [value for value in found if known(value)]

    def heavy(self) -> list[MatrixRow]:
        """Return the rows whose tail is heavier than its null's."""
        return [row for row in self.rows if row.heavy]

    def skip_counts(self) -> list[tuple[str, int]]:
        """Return (reason, tensors), the most frequent first."""
        return Counter(self.skip_reasons()).most_common()

    def skip_reasons(self) -> list[str]:
        """Return the reason of each skipped tensor, without the names that it mentions: like reasons are one."""
        return [_reason(skipped["reason"]) for skipped in self.skipped]


def _reason(text: str) -> str:
    head, told, _ = text.partition("the same tensor as ")
    if told:
        return "the same tensor as another, measured under that name"
    head, told, _ = text.partition(" of ") if text.startswith("a scale") else (text, "", "")
    return f"{head} of another tensor" if told else text


def sheets_of(manifest: Mapping, records: Iterable[Record]) -> list[Sheet]:
    """Return the inspected checkpoints of a run, in their order.

    Args:
        manifest: What ``manifest.json`` holds.
        records: The run's records, those of activations among them.
    """
    by: dict[tuple, list[Record]] = {}
    for record in records:
        by.setdefault((record.arm, record.step, record.site), []).append(record)
    return [_sheet(n, told, by) for n, told in enumerate(manifest.get("inspections") or [])]


def _sheet(number: int, told: Mapping, by: Mapping[tuple, Sequence[Record]]) -> Sheet:
    matrices = told.get("matrices") or []
    depths = depths_of([m["name"] for m in matrices], [m["kind"] for m in matrices])
    key = told.get("arm"), told.get("step")
    return Sheet(
        number=number,
        name=str(told.get("name")),
        step=told.get("step"),
        arm=told.get("arm"),
        rows=[_row(m, d, by.get((*key, m["name"]), ())) for m, d in zip(matrices, depths, strict=True)],
        skipped=told.get("skipped") or [],
        left_out=told.get("left_out") or [],
    )  # fmt: skip


def _row(told: Mapping, depth: int, records: Sequence[Record]) -> MatrixRow:
    rows, columns = told["shape"]
    return MatrixRow(
        name=told["name"],
        kind=told["kind"],
        role=role_of(told["name"], told["kind"]),
        depth=depth,
        shape=(rows, columns),
        values={r.metric: r.value for r in records if known(r.value)},
        intervals={r.metric: (r.low, r.high) for r in records if known(r.low) and known(r.high)},
        reasons=told.get("reasons") or {},
        fit=told.get("fit") or {},
        below_range=told.get("below_range") or 0,
    )


def exponent_cell(row: MatrixRow) -> tuple[str, str]:
    """Return an exponent, and in small print its interval; or a dash, and why there is none.

    Example:
        >>> row = MatrixRow(name="w", kind="matrix", role="other", depth=-1, shape=(60, 60), values={}, intervals={},
        ...     reasons={"tail_exponent": "the best tail has 31 eigenvalues, fewer than 50"}, fit={}, below_range=0)
        >>> exponent_cell(row)[1]
        'tail of 31 < 50'
    """
    value = row.values.get("tail_exponent")
    if not known(value):
        return "\N{EN DASH}", refusal(row.reasons.get("tail_exponent", ""))
    low, high = row.intervals.get("tail_exponent", (None, None))
    return f"{value:.2f}", f"{low:.2f} to {high:.2f}" if known(low) else ""


def refusal(reason: str) -> str:
    """Return the reason for a refused exponent in few words.

    Example:
        >>> refusal("32 positive eigenvalues, fewer than 50")
        '32 eigenvalues < 50'
    """
    words = reason.replace(",", "").split()
    if reason.startswith("the best tail has ") and "fewer than" in reason:
        return f"tail of {words[4]} < {words[-1]}"
    if "positive eigenvalues, fewer than" in reason:
        return f"{words[0]} eigenvalues < {words[-1]}"
    return "all equal: no tail" if "equal to 4 digits" in reason else reason


def shown(metric: str, value: float | None) -> str:
    """Return a value as tables show it."""
    if not known(value):
        return "\N{EN DASH}"
    if metric in ("spikes", "tail_size", "non_finite_rows"):
        return count(value)
    if metric == "spectral_norm":
        return f"{value:#.3g}".removesuffix(".")
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return text.replace("-", MINUS)


def spectral_norm(row: MatrixRow) -> float | None:
    """Return the largest singular value, recorded as the logarithm of its square."""
    log = row.values.get("log_spectral_norm")
    return 10 ** (log / 2) if known(log) else None
