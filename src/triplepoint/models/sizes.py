"""Named sizes, and how their parameters are counted."""

from __future__ import annotations

from torch import nn

from triplepoint.errors import unknown_name
from triplepoint.models.gpt2 import GPT2Config

_SHAPES = {  # name: width, layers, heads, context, vocab
    "gpt2-0.1m": (64, 2, 4, 128, 256),
    "gpt2-0.4m": (96, 3, 3, 128, 256),
    "gpt2-0.8m": (128, 4, 4, 128, 256),
    "gpt2-3m": (224, 5, 7, 128, 256),
    "gpt2-10m": (384, 6, 6, 128, 256),
    # the five of arXiv 2604.23434: vocabulary 50304 (GPT-2's, padded), context 512
    "gpt2-64m": (512, 12, 8, 512, 50304),
    "gpt2-124m": (768, 12, 12, 512, 50304),
    "gpt2-354m": (1024, 24, 16, 512, 50304),
    "gpt2-1.3b": (2048, 24, 32, 512, 50304),
    "gpt2-3.8b": (3072, 32, 32, 512, 50304),
}

SIZES = tuple(_SHAPES)
"""Names of the sizes, smallest first."""


def config_of(
    size: str, *, vocab: int | None = None, context: int | None = None, dropout: float = 0.0
) -> GPT2Config:
    """Return the configuration of a named size.

    Args:
        size: One of :data:`SIZES`.
        vocab: Vocabulary instead of the size's own (256 bytes up to 10m, 50304 above).
        context: Context instead of the size's own (128 tokens up to 10m, 512 above).
        dropout: Share of activations dropped, in [0, 1).

    Raises:
        UnknownNameError: If there is no such size; it suggests the nearest.
    """
    if size not in _SHAPES:
        raise unknown_name("size", size, SIZES)
    width, layers, heads, own_context, own_vocab = _SHAPES[size]
    return GPT2Config(
        width=width,
        layers=layers,
        heads=heads,
        vocab=own_vocab if vocab is None else vocab,
        context=own_context if context is None else context,
        dropout=dropout,
    )


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Count parameters under three conventions; tied weights count once.

    Returns:
        ``params_total``; ``params_no_positions`` (nanoGPT's and arXiv 2604.23434's: all but the learned
        positions); ``params_non_embedding`` (Kaplan's: neither positions nor token embeddings). Positions
        are the ``nn.Embedding`` modules named ``wpe`` or with ``position`` in their name.

    Example:
        >>> from triplepoint.models import GPT2
        >>> counts = parameter_counts(GPT2(config_of("gpt2-0.1m")))
        >>> counts["params_total"] - counts["params_no_positions"] == 128 * 64
        True
    """
    total = sum(p.numel() for p in model.parameters())
    tables = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    positions = sum(
        m.weight.numel() for n, m in tables.items() if n.endswith("wpe") or "position" in n.lower()
    )
    embeddings = sum(p.numel() for p in {id(m.weight): m.weight for m in tables.values()}.values())
    return {
        "params_total": total,
        "params_no_positions": total - positions,
        "params_non_embedding": total - embeddings,
    }
