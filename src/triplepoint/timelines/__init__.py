"""Whole curves of one run -> its phase at every step as it could be told then, and what they say afterwards."""

from triplepoint.timelines.curves import Curve as Curve
from triplepoint.timelines.curves import Curves as Curves
from triplepoint.timelines.curves import named as named
from triplepoint.timelines.spans import Span as Span
from triplepoint.timelines.spans import phase_over as phase_over
from triplepoint.timelines.summary import Summary as Summary
from triplepoint.timelines.summary import summarise as summarise

__all__ = ["Curve", "Curves", "Span", "Summary", "named", "phase_over", "summarise"]
