"""The screening benchmark: runs that were finished, what a screen may see of them, and how they ended."""

from triplepoint.evidence.abstaining import loosest_threshold as loosest_threshold
from triplepoint.evidence.abstaining import sequential_threshold as sequential_threshold
from triplepoint.evidence.abstaining import wrong_answer_bound as wrong_answer_bound
from triplepoint.evidence.cells import ENDPOINTS as ENDPOINTS
from triplepoint.evidence.cells import LOOKS as LOOKS
from triplepoint.evidence.cells import BenchmarkCell as BenchmarkCell
from triplepoint.evidence.cells import Endpoint as Endpoint
from triplepoint.evidence.cells import Setting as Setting
from triplepoint.evidence.cells import Trajectory as Trajectory
from triplepoint.evidence.cells import Truth as Truth
from triplepoint.evidence.cells import is_regularised as is_regularised
from triplepoint.evidence.folds import By as By
from triplepoint.evidence.folds import Fitted as Fitted
from triplepoint.evidence.folds import Held as Held
from triplepoint.evidence.folds import Prediction as Prediction
from triplepoint.evidence.folds import Rule as Rule
from triplepoint.evidence.folds import held_out as held_out
from triplepoint.evidence.loading import benchmark as benchmark
from triplepoint.evidence.loading import benchmark_from as benchmark_from
from triplepoint.evidence.loading import truth_from as truth_from
from triplepoint.evidence.scoring import Score as Score
from triplepoint.evidence.scoring import risk_coverage as risk_coverage
from triplepoint.evidence.scoring import score as score
from triplepoint.evidence.truth import truth_of as truth_of
