"""The table of attentions, by the name that a configuration gives."""

from __future__ import annotations

from triplepoint.models.attention import AttentionShape, GatedAttention, SoftmaxAttention
from triplepoint.models.diff_attention import DiffAttentionV1, DiffAttentionV2, LeakyDiffAttention

ATTENTIONS: dict[str, type[SoftmaxAttention]] = {
    "sdpa": SoftmaxAttention,
    "gated": GatedAttention,
    "diff_v1": DiffAttentionV1,
    "diff_v2": DiffAttentionV2,
    "paper_v1_leaky": LeakyDiffAttention,
}
"""Name -> attention. ``paper_v1_leaky`` sees the future: for the replication of one study only."""


def weights_of(name: str, shape: AttentionShape) -> int:
    """Return the attention's weights as the feed-forward layer reckons with them.

    Those of ``sdpa`` for an attention that is not matched: the study that it replicates left it larger.
    """
    attention = ATTENTIONS[name]
    return (attention if attention.matched else SoftmaxAttention).weights(shape)
