"""What a swap changes besides the norms, and where each op's alpha starts: explicit, checked and recorded."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from triplepoint.errors import PlanError, unknown_name
from triplepoint.families import ROLES, NormSite
from triplepoint.ops import NormOp, Preset


@dataclasses.dataclass(frozen=True, slots=True)
class FamilyAlpha:
    """Where a published recipe starts alpha, dimensionless."""

    pre_attn: float
    """Before attention."""
    other: float
    """Everywhere else, the final norm included."""
    source: str

    def at(self, role: str) -> float:
        """Return the initial alpha of a site of this role."""
        return self.pre_attn if role == "pre_attn" else self.other


_DYT = "arXiv 2503.10622 and its repository"
_DERF = "arXiv 2512.10938 and its repository"
_HALF = FamilyAlpha(0.5, 0.5, f"{_DYT}; {_DERF}")

ALPHA_BY_FAMILY: dict[str, FamilyAlpha] = {
    **dict.fromkeys(["vit", "convnext", "mae", "dino", "dit", "wav2vec2", "hyenadna", "caduceus"], _HALF),
    "llama-7b": FamilyAlpha(0.8, 0.2, _DYT),
    "llama-13b": FamilyAlpha(0.6, 0.15, _DYT),
    "llama-34b": FamilyAlpha(0.2, 0.05, _DYT),
    "llama-70b": FamilyAlpha(0.2, 0.05, _DYT),
    "gpt2-124m": FamilyAlpha(1.0, 1.0, f"{_DERF}: the defaults of its GPT-2 configuration"),
    "bounded": FamilyAlpha(2.0, 2.0, "arXiv 2604.23434: every layer of GPT-2, Llama and ViT"),
    "x-transformers-dyt": FamilyAlpha(1.0, 1.0, "x-transformers, its default for DyT"),
    "x-transformers-derf": FamilyAlpha(0.5, 0.5, "x-transformers, its default for Derf"),
    "audio-autoencoder": FamilyAlpha(4.0, 4.0, "public configurations of stable-audio autoencoders"),
}  # fmt: skip
"""Family of models -> initial alpha. LLaMA's sizes are those of LLaMA 2: width 4096, 5120, 8192 and 8192."""

Alpha = float | str | Mapping[str, float] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwapPolicy:
    """What a swap changes besides the norms; None leaves it to the preset.

    Example:
        >>> SwapPolicy(alpha={"pre_attn": 0.8, "final": 0.2}, final_norm="keep").final_norm
        'keep'
    """

    embedding_scale: bool | None = None
    """Whether the input embeddings get one learnable scalar, born as sqrt(width)."""
    final_norm: Literal["swap", "keep"] = "swap"
    """Whether the norm before the head is swapped as well. Kept, it goes on fixing the scale of the logits."""
    alpha: Alpha = None
    """Initial alpha: one number for all, a family of :data:`ALPHA_BY_FAMILY`, or a number by role or by path
    (a path outranks a role; sites of neither keep the preset's)."""

    def __post_init__(self):
        if self.final_norm not in ("swap", "keep"):
            raise PlanError(
                f"final_norm is 'swap' or 'keep', got {self.final_norm!r}.\n"
                "To keep other norms as well, use where=."
            )
        if isinstance(self.alpha, str) and self.alpha not in ALPHA_BY_FAMILY:
            raise unknown_name("family of initial alphas", self.alpha, ALPHA_BY_FAMILY)
        given = self.alpha.values() if isinstance(self.alpha, Mapping) else [self.alpha]
        for alpha in given:
            if isinstance(alpha, bool | int | float) and not (math.isfinite(alpha) and alpha > 0):
                raise PlanError(
                    f"An initial alpha is a positive number, got {alpha}.\n"
                    "At 0 an op passes no gradient; the published values lie between 0.05 and 4."
                )


def alphas_of(
    op_class: type[NormOp], preset: Preset | None, policy: SwapPolicy, sites: list[NormSite]
) -> Callable[[NormSite], dict[str, Any]]:
    """Return a function of the site: the scalars that its op is born with.

    Raises:
        PlanError: If a policy sets the alpha of an op that has none, or of a site that there is not.
    """
    if policy.alpha is not None:
        _check(op_class, policy.alpha, sites)

    def born(site: NormSite) -> dict[str, Any]:
        alpha = asked(site)
        if alpha is None and preset is not None and preset.alpha is not None:
            alpha = preset.alpha(site.facts.dim, site.role)
        return {} if alpha is None else {"alpha": float(alpha)}

    def asked(site: NormSite) -> float | None:
        match policy.alpha:
            case Mapping():
                return policy.alpha.get(site.path, policy.alpha.get(site.role))
            case str():
                return ALPHA_BY_FAMILY[policy.alpha].at(site.role)
        return policy.alpha

    return born


def _check(op_class: type[NormOp], alpha: Alpha, sites: list[NormSite]) -> None:
    if "alpha" not in inspect.signature(op_class).parameters:
        raise PlanError(
            f"{op_class.__name__} has no alpha, and the policy sets one.\n"
            "Leave SwapPolicy.alpha at None, or swap to an op that has one: dyt, derf, hardtanh_alpha."
        )
    known = {*ROLES, *(site.path for site in sites)}
    if isinstance(alpha, Mapping) and (unknown := [key for key in alpha if key not in known]):
        raise PlanError(
            f"The policy sets alpha at {', '.join(map(repr, unknown))}: no role, and no norm of this model.\n"
            f"Roles: {', '.join(ROLES)}. Paths: as triplepoint.families.find_norms(model) lists them."
        )


def said_of(policy: SwapPolicy) -> list[str]:
    """Return the policies that outrank a preset, as a report's lines."""
    lines = ["final norm: kept"] if policy.final_norm == "keep" else []
    match policy.alpha:
        case None:
            pass
        case Mapping():
            lines.append("alpha: " + ", ".join(f"{k} {v:.4g}" for k, v in policy.alpha.items()))
        case str():
            rule = ALPHA_BY_FAMILY[policy.alpha]
            lines.append(
                f"alpha: {rule.pre_attn:g} before attention, {rule.other:g} elsewhere, as {policy.alpha} ({rule.source})"
            )
        case _:
            lines.append(f"alpha: {policy.alpha:g} at every site")
    return lines
