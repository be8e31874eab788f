"""The undoing of a swap."""

from __future__ import annotations

from torch import nn

from triplepoint.ops import NormOp
from triplepoint.surgery.origins import carry_affine, first_origin, follow
from triplepoint.surgery.swapping import put_in_place
from triplepoint.surgery.wrapping import inner_model


def unswap_norms(model: nn.Module, keep_affine: bool = False) -> int:
    """Put the original norms and embeddings back, with their original values.

    They come back where their replacement is by now: in its mode, device and dtype, frozen where it is. A norm that was
    on the meta device had no values; it takes its op's gain and shift.

    Args:
        model: A model that :func:`swap_norms` changed, or a copy of one; changed in place.
        keep_affine: Whether to carry the gain and shift that were trained since back into the norms. A norm that
            stores its gain's distance from 1 (Gemma) gets that.

    Returns:
        How many modules were restored; 0 for a model that was not swapped.

    Raises:
        ModelError: If the model is distributed already.
    """
    model = inner_model(model, "unswap_norms")
    swapped = [m for m in model.modules() if "_replaced" in m.__dict__]
    for module in swapped:
        origin = first_origin(module)
        follow(module, origin)
        if keep_affine and isinstance(module, NormOp):
            carry_affine(module, origin)
    put_in_place(model, [(module, first_origin(module).module) for module in swapped])
    return len(swapped)
