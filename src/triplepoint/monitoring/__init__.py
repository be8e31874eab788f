"""One live run: metrics of its norm sites, or the geometry of its grokking. Framework-free."""

from triplepoint.monitoring.grok import GrokMonitor as GrokMonitor
from triplepoint.monitoring.instrument import GrokInstrument as GrokInstrument
from triplepoint.monitoring.instrument import grok_objective as grok_objective
from triplepoint.monitoring.monitor import Monitor as Monitor
from triplepoint.monitoring.quantities import definitions as definitions
from triplepoint.monitoring.scope import Part as Part

__all__ = ["GrokInstrument", "GrokMonitor", "Monitor", "Part", "definitions", "grok_objective"]
