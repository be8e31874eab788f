"""What the configurations of all models check, and the width of the feed-forward layers."""

from __future__ import annotations

from triplepoint.errors import PlanError


def check_shape(config: object, *names: str) -> None:
    """Check that these fields are positive, that heads divide the width, and the dropout.

    Raises:
        PlanError: For the first field that is out of range.
    """
    for name in names:
        if getattr(config, name) < 1:
            raise PlanError(
                f"{name} must be at least 1, got {getattr(config, name)}.\n"
                f"Give a positive {name}, or choose a named size."
            )
    if config.width % config.heads:
        raise PlanError(
            f"{config.heads} heads do not divide the width {config.width}.\n"
            "Choose a width that is a multiple of the number of heads."
        )
    if not 0 <= config.dropout < 1:
        raise PlanError(f"dropout must lie in [0, 1), got {config.dropout}.\nTry 0.1.")


def check_length(seq: int, context: int) -> None:
    """Raise PlanError if ``seq`` tokens are more than the table of positions has."""
    if seq > context:
        raise PlanError(
            f"{seq} tokens do not fit the model's context of {context}.\n"
            "Give shorter sequences, or build the model with a longer context."
        )


def hidden_width(width: int, *, attention_weights: int, matrices: int) -> int:
    """Return how wide a feed-forward layer is so that its block has ``12 width^2`` weights, as GPT-2's has.

    What the attention does not use is the feed-forward layer's, so that every attention, grouped or not, and
    every feed-forward layer is compared at equal size. Rounded to a whole unit of ``matrices * width`` weights.

    Args:
        width: Of the residual stream.
        attention_weights: Weights of the attention's matrices.
        matrices: Matrices of the feed-forward layer: 2, or 3 with a gate.

    Raises:
        PlanError: If the attention leaves nothing.

    Example:
        >>> hidden_width(64, attention_weights=4 * 64 * 64, matrices=2)  # GPT-2's 4 * 64
        256
        >>> hidden_width(96, attention_weights=4 * 96 * 96, matrices=3)  # Llama's 2/3 * 4 * 96
        256
    """
    hidden = round((12 * width**2 - attention_weights) / (matrices * width))
    if hidden < 1:
        raise PlanError(
            f"An attention of {attention_weights} weights leaves nothing of the {12 * width**2} of a block.\n"
            "Choose a larger width, or fewer heads."
        )
    return hidden
