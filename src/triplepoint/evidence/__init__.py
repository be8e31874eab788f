"""The screening benchmark: runs that were finished, what a screen may see of them, and how they ended."""

from triplepoint.evidence.cells import LOOKS as LOOKS
from triplepoint.evidence.cells import BenchmarkCell as BenchmarkCell
from triplepoint.evidence.cells import Setting as Setting
from triplepoint.evidence.cells import Trajectory as Trajectory
from triplepoint.evidence.cells import Truth as Truth
from triplepoint.evidence.loading import benchmark_from as benchmark_from
from triplepoint.evidence.truth import truth_of as truth_of
