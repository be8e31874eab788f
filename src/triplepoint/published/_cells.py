"""The cells of arXiv 2604.23434: one (model scale, amount of data), LayerNorm against DyT."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json

from triplepoint.errors import unknown_name

GROUPS = ("calibration", "stress", "llama", "left_out")
"""The paper's 12 GPT-2 cells, its 2 at 3.78B, its 3 Llama cells, and what it left out of all three."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison of the paper; per-seed values are keyed by seed, None where not shipped."""

    name: str
    """Scale and data, e.g. ``S1/1M``."""
    family: str
    """``gpt2`` or ``llama``."""
    group: str
    """One of :data:`GROUPS`."""
    scale: str
    """``S1`` to ``S5``; Llama scales are scales of their own."""
    scale_label: str
    """As the paper prints it, e.g. ``64M``."""
    params: int
    """All parameters but positional embeddings, the tied embedding once."""
    unique_tokens: int
    tokens_processed: int
    """Steps x effective batch x context: 5000 x 64 x 512."""
    baseline: str
    """``layernorm`` or ``rmsnorm``."""
    baseline_loss: dict[int, float] | None
    """Validation loss at the last evaluation, nats/token. Not the best one."""
    candidate_loss: dict[int, float] | None
    """The same with DyT, alpha 2, at every norm site."""
    delta_pct: float | None
    """Difference of the means as shipped, per cent; negative = DyT better at the fixed endpoint."""
    saturation_2: dict[int, float] | None
    """Fraction of ``|alpha x| > 2`` at the END of training; step 500 was never measured."""
    baseline_gap: dict[int, float] | None
    """Validation minus training loss of the baseline at step 5000, nats/token."""
    sources: dict[str, str]
    """Field -> file in the paper's repository, or how it was counted."""
    caveats: dict[str, str]
    """Field -> what to know before using it."""

    @property
    def epochs(self) -> float:
        """Tokens processed per unique token."""
        return self.tokens_processed / self.unique_tokens

    @property
    def tokens_per_parameter(self) -> float:
        """Unique tokens per parameter."""
        return self.unique_tokens / self.params

    @property
    def delta_rel(self) -> float | None:
        """``(mean candidate - mean baseline) / mean baseline`` as a fraction.

        From the losses where they are shipped, else the shipped delta, else None. It is the relative
        difference at a fixed endpoint, not at either arm's best checkpoint.
        """
        if self.baseline_loss is not None and self.candidate_loss is not None:
            return _mean(self.candidate_loss) / _mean(self.baseline_loss) - 1
        return None if self.delta_pct is None else self.delta_pct / 100

    @property
    def helps(self) -> bool | None:
        """Whether DyT was better at the fixed endpoint; None where no delta is known."""
        return None if self.delta_rel is None else self.delta_rel < 0

    def mean(self, field: str) -> float | None:
        """Mean over seeds of a per-seed field, e.g. ``saturation_2``; None where not shipped."""
        values = getattr(self, field)
        return None if values is None else _mean(values)


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)


PER_SEED = ("baseline_loss", "candidate_loss", "saturation_2", "baseline_gap")


@functools.cache
def _all_cells() -> tuple[Cell, ...]:
    file = importlib.resources.files("triplepoint.published").joinpath("cells.json")
    data = json.loads(file.read_text(encoding="utf-8"))
    return tuple(_cell(row, data["tokens_processed"]) for row in data["cells"])


def _cell(row: dict, tokens_processed: int) -> Cell:
    # JSON keys are strings, seeds are numbers
    seeds = {
        field: None if row[field] is None else {int(k): v for k, v in row[field].items()}
        for field in PER_SEED
    }
    return Cell(**{**row, **seeds}, tokens_processed=tokens_processed)


def load_cells(*groups: str) -> tuple[Cell, ...]:
    """Return the paper's cells of the given groups, of all groups where none is given.

    The seeds of a cell are *not* independent cells, and neither are cells of one scale.

    Args:
        groups: Names from ``calibration``, ``stress``, ``llama``, ``left_out``.

    Returns:
        Cells in the order of the paper's tables.

    Raises:
        UnknownNameError: If a group does not exist.

    References:
        Verma (2026), `When Does Removing LayerNorm Help?
        <https://arxiv.org/abs/2604.23434>`_; result files of its repository.

    Example:
        >>> len(load_cells("calibration")), len(load_cells("calibration", "stress"))
        (12, 14)
        >>> first = load_cells("calibration")[0]
        >>> first.name, round(first.epochs), round(100 * first.delta_rel, 1)
        ('S1/1M', 164, -27.3)
    """
    for group in groups:
        if group not in GROUPS:
            raise unknown_name("group of cells", group, GROUPS)
    return tuple(cell for cell in _all_cells() if not groups or cell.group in groups)
