"""Intervals, rank statistics and honest validation: what numbers can carry, not what they mean."""

from triplepoint.statistics.calibration import BrierParts as BrierParts
from triplepoint.statistics.calibration import CalibrationLine as CalibrationLine
from triplepoint.statistics.calibration import brier_parts as brier_parts
from triplepoint.statistics.calibration import brier_score as brier_score
from triplepoint.statistics.calibration import brier_skill as brier_skill
from triplepoint.statistics.calibration import calibration_slope as calibration_slope
from triplepoint.statistics.calibration import probability_cap as probability_cap
from triplepoint.statistics.calibration import spiegelhalter_z as spiegelhalter_z
from triplepoint.statistics.calibration import temperature as temperature
from triplepoint.statistics.contingency import fisher_exact as fisher_exact
from triplepoint.statistics.contingency import odds_ratio_interval as odds_ratio_interval
from triplepoint.statistics.correlation import spearman as spearman
from triplepoint.statistics.correlation import spearman_p as spearman_p
from triplepoint.statistics.logistic import Logistic as Logistic
from triplepoint.statistics.logistic import logistic_regression as logistic_regression
from triplepoint.statistics.monotone import isotonic as isotonic
from triplepoint.statistics.proportions import wilson as wilson
from triplepoint.statistics.ranks import EXACT_LIMIT as EXACT_LIMIT
from triplepoint.statistics.ranks import HeldOut as HeldOut
from triplepoint.statistics.ranks import auc as auc
from triplepoint.statistics.ranks import balanced_accuracy as balanced_accuracy
from triplepoint.statistics.ranks import balanced_accuracy_lower as balanced_accuracy_lower
from triplepoint.statistics.ranks import best_threshold as best_threshold
from triplepoint.statistics.ranks import leave_one_group_out as leave_one_group_out
from triplepoint.statistics.ranks import permutation_p as permutation_p
from triplepoint.statistics.resampling import (
    asymptotic_confidence_sequence as asymptotic_confidence_sequence,
)
from triplepoint.statistics.resampling import paired_interval as paired_interval
from triplepoint.statistics.resampling import paired_relative_interval as paired_relative_interval
from triplepoint.statistics.student import t_interval as t_interval
from triplepoint.statistics.student import t_quantile as t_quantile
from triplepoint.statistics.student import t_slope as t_slope
