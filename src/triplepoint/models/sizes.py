"""Named sizes, how they are built, and how their parameters are counted."""

from __future__ import annotations

from torch import nn

from triplepoint.errors import PlanError, unknown_name
from triplepoint.models.gpt2 import GPT2, GPT2Config
from triplepoint.models.llama import Llama, LlamaConfig
from triplepoint.models.vit import ViT, ViTConfig

Config = GPT2Config | LlamaConfig | ViTConfig
"""Shape of any of the reference models."""

_SMALL = {  # name: width, layers, heads
    "0.1m": (64, 2, 4),
    "0.4m": (96, 3, 3),
    "0.8m": (128, 4, 4),
    "3m": (224, 5, 7),
    "10m": (384, 6, 6),
}
_LARGE = {  # the five of arXiv 2604.23434
    "64m": (512, 12, 8),
    "124m": (768, 12, 12),
    "354m": (1024, 24, 16),
    "1.3b": (2048, 24, 32),
    "3.8b": (3072, 32, 32),
}
_TEXT = {  # name: shape, context, vocab: bytes, or GPT-2's vocabulary, padded
    **{name: (shape, 128, 256) for name, shape in _SMALL.items()},
    **{name: (shape, 512, 50304) for name, shape in _LARGE.items()},
}
_CIFAR = {"image": 32, "patch": 4, "channels": 3}
_IMAGES = {  # name: shape, images: digits, or the published study's one size for CIFAR-10
    **{name: (shape, {}) for name, shape in _SMALL.items() if name != "10m"},
    "4.8m": ((256, 6, 4), _CIFAR),
    "10m": (_SMALL["10m"], {}),
}

SIZES = (
    *(f"gpt2-{name}" for name in _TEXT),
    *(f"llama-{name}" for name in _TEXT),
    *(f"vit-{name}" for name in _IMAGES),
)
"""Names of the sizes, by family, smallest first."""

_MODELS: dict[type, type[nn.Module]] = {GPT2Config: GPT2, LlamaConfig: Llama, ViTConfig: ViT}


def config_of(
    size: str, *, vocab: int | None = None, context: int | None = None, dropout: float = 0.0
) -> Config:
    """Return the configuration of a named size.

    A number stands for the same width, layers and heads in every family. The Llama style sizes group their
    queries by the smallest factor of the heads (2, 3 or 7), tie the head, and have as many weights per block as
    the GPT-2 style ones. For another shape: ``dataclasses.replace(config_of("llama-0.4m"), ffn="gelu")``.

    Args:
        size: One of :data:`SIZES`.
        vocab: Vocabulary instead of the size's own (256 bytes up to 10m, 50304 above).
        context: Context instead of the size's own (128 tokens up to 10m, 512 above).
        dropout: Share of activations dropped, in [0, 1).

    Raises:
        UnknownNameError: If there is no such size; it suggests the nearest.
        PlanError: If a number is out of range, or given to a size that has no such thing.
    """
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    family, _, name = size.partition("-")
    if family == "vit":
        if vocab is not None or context is not None:
            raise PlanError(
                f"{size} reads images: it has no vocabulary and no context.\n"
                "Leave them out, or choose a gpt2 or llama size."
            )
        (width, layers, heads), images = _IMAGES[name]
        return ViTConfig(width=width, layers=layers, heads=heads, dropout=dropout, **images)
    (width, layers, heads), own_context, own_vocab = _TEXT[name]
    shape = {
        "width": width,
        "layers": layers,
        "heads": heads,
        "vocab": own_vocab if vocab is None else vocab,
        "context": own_context if context is None else context,
        "dropout": dropout,
    }
    if family == "gpt2":
        return GPT2Config(**shape)
    grouped = next(f for f in range(2, heads + 1) if heads % f == 0)
    return LlamaConfig(**shape, kv_heads=heads // grouped)


def model_of(config: Config) -> nn.Module:
    """Build the model of a configuration, newly initialised from torch's random state.

    Example:
        >>> type(model_of(config_of("llama-0.1m"))).__name__
        'Llama'
    """
    return _MODELS[type(config)](config)


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Count parameters under three conventions; tied weights count once.

    Returns:
        ``params_total``; ``params_no_positions`` (nanoGPT's and arXiv 2604.23434's: all but the learned
        positions); ``params_non_embedding`` (Kaplan's: neither positions nor token embeddings). Positions
        are the ``nn.Embedding`` modules named ``wpe`` or with ``position`` in their name, and parameters
        named ``pos_embed``.

    Example:
        >>> from triplepoint.models import GPT2
        >>> counts = parameter_counts(GPT2(config_of("gpt2-0.1m")))
        >>> counts["params_total"] - counts["params_no_positions"] == 128 * 64
        True
    """
    total = sum(p.numel() for p in model.parameters())
    tables = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    patches = sum(p.numel() for n, p in model.named_parameters() if n.endswith("pos_embed"))
    positions = patches + sum(
        m.weight.numel() for n, m in tables.items() if n.endswith("wpe") or "position" in n.lower()
    )
    embeddings = patches + sum(
        p.numel() for p in {id(m.weight): m.weight for m in tables.values()}.values()
    )
    return {
        "params_total": total,
        "params_no_positions": total - positions,
        "params_non_embedding": total - embeddings,
    }
