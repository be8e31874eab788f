"""Whether a model can be trained to predict the next token: asked of models of one's own before their first step."""

from __future__ import annotations

from torch import Tensor, nn

from triplepoint.errors import ModelError
from triplepoint.invariance import check_causality

LEAK = 1e-4
"""Share of the output's standard deviation: rounding, as of experts that gather tokens, stays below some 1e-6."""
REMEDY = "screen and train need a decoder; for anything else: triplepoint.screen(build, batches, loss_fn=...) in Python."


def refuse_no_decoder(model: nn.Module, name: str, tokens: Tensor) -> None:
    """Refuse a model that takes no tokens alone, gives no logits for each, or sees the tokens that it is to predict.

    The latter's loss would fall towards 0 whatever it learns.

    Args:
        model: Left as it was.
        name: For the message.
        tokens: Ids ``[batch, seq]`` of the data.

    Raises:
        ModelError: If it is none.
    """
    try:
        report = check_causality(model, tokens)
    except ModelError as error:
        first = str(error).split("\n")[0]
        raise ModelError(f"{name} cannot be trained on tokens: {first}\n{REMEDY}") from error
    if report.max_change > LEAK * report.output_std:
        raise ModelError(
            f"{name} sees the tokens that it is to predict: an output changes with later ones, first at "
            f"{report.first_violation or 'the model'}.\n{REMEDY}"
        )
