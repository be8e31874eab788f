"""What a check found, as a value and in words."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckReport:
    """How one law fared."""

    law: str
    ok: bool | None
    """Whether it holds; None where it does not apply, then ``note`` says why."""
    max_change: float = 0.0
    """Largest absolute change of an output that must not change, in the output's own unit (logits)."""
    limit: float = 0.0
    """Largest change that counts as rounding, in the same unit."""
    output_std: float = 0.0
    """Standard deviation of the model's output, to measure the change by."""
    first_violation: str | None = None
    """Path of the module that breaks the law; None where it holds."""
    done: str = ""
    """What was done: the first contrast that broke the law, or the first of all."""
    note: str = ""

    def __str__(self) -> str:
        if self.ok is None:
            return f"{self.law}: does not apply ({self.note})"
        share = (
            f", {self.max_change / self.output_std:.2g} of its spread" if self.output_std else ""
        )
        text = (
            f"{self.law}: holds; {self.done} changes the output by at most {self.max_change:.2g}"
            if self.ok
            else f"{self.law}: broken; {self.done} changes the output by up to {self.max_change:.2g}{share}; "
            f"first in {self.first_violation}"
        )
        return f"{text} ({self.note})" if self.note else text
