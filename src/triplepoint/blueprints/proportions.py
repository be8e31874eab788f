"""How a configuration follows its width: depth and the size of a head kept, all other widths in proportion."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proportions:
    """The fields of a configuration that have to do with its width, by their names there.

    Depth stays, and so does the size of a head as far as it goes: fewer heads rather than narrower ones, as models of one
    family grow and as width is varied in arXiv 2203.03466.
    """

    width: int
    """Features of a token."""
    heads: int = 1
    head_size: int
    """Features of a head; ``heads * head_size`` need not be the width."""
    kv_heads: int | None = None
    """Key/value heads; None where the configuration does not say."""
    names: Mapping[str, str]
    """``width heads head_size kv_heads`` -> the field of that name; what has none is not set."""
    others: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Field -> value of what else is proportional to the width, e.g. the feed-forward layer's."""

    def at(self, width: int) -> dict[str, int]:
        """Return the fields at another width.

        Heads are of the size that is nearest to the original's, as a ratio, of those that fit a whole number of times.

        Args:
            width: Features of a token.

        Example:
            >>> names = {"width": "width", "heads": "heads"}
            >>> own = Proportions(width=96, heads=3, head_size=32, names=names, others={"hidden": 256})
            >>> own.at(64)
            {'width': 64, 'heads': 2, 'hidden': 171}
            >>> own.at(24)["heads"]  # one of 24 is nearer to 32 than two of 12
            1
        """
        inner = max(1, round(width * self.heads * self.head_size / self.width))
        heads = min(_divisors(inner), key=lambda n: abs(math.log(inner / n / self.head_size)))
        found = {"width": width, "heads": heads, "head_size": inner // heads}
        if self.kv_heads is not None:
            wanted = heads * self.kv_heads / self.heads
            found["kv_heads"] = min(_divisors(heads), key=lambda n: abs(math.log(n / wanted)))
        scaled = {k: max(1, round(v * width / self.width)) for k, v in self.others.items()}
        return {self.names[k]: v for k, v in found.items() if k in self.names} | scaled


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
