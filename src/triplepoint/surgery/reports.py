"""What a swap did, site by site."""

from __future__ import annotations

import dataclasses

NOT_CHOSEN = "not chosen by where="
FINAL_KEPT = "the final norm, kept by policy"
ASKED = frozenset({NOT_CHOSEN, FINAL_KEPT})
"""Reasons that the caller gave: no failure of the swap, also where it is strict."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapItem:
    """One norm of the model, swapped or not."""

    path: str
    kind: str
    role: str
    reason: str | None = None
    """Why it was skipped; None where it was swapped."""
    warning: str | None = None
    """What is unusual about a swapped site."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapReport:
    """What :func:`~triplepoint.surgery.swap_norms` did."""

    op: str
    preset: str | None
    swapped: list[SwapItem]
    skipped: list[SwapItem]
    policies: list[str]
    """What was changed besides the norms, in words."""

    def __str__(self) -> str:
        lines = [f"{self.op}: {len(self.swapped)} norms swapped, {len(self.skipped)} skipped"]
        lines += [
            f"  swapped {i.path} ({i.role})" + (f": {i.warning}" if i.warning else "")
            for i in self.swapped
        ]
        lines += [f"  skipped {i.path} ({i.kind}): {i.reason}" for i in self.skipped]
        return "\n".join(lines + [f"  {policy}" for policy in self.policies])


def warning_at(role: str) -> str | None:
    """Return what is unusual about swapping a norm of this role; None where nothing is.

    Example:
        >>> warning_at("qk")
        'a query/key norm: it bounds attention logits, which a bounded op does differently'
        >>> warning_at("pre_mlp")
    """
    if role in ("post_attn", "post_mlp"):
        return "a post-norm site: the published ops were tested before attention and MLP only"
    if role == "qk":
        return "a query/key norm: it bounds attention logits, which a bounded op does differently"
    return None
