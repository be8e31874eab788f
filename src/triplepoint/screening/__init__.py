"""Paired calibrations -> a verdict with its record."""

from triplepoint.screening.miniature_evidence import Miniature as Miniature
from triplepoint.screening.miniature_evidence import MiniatureEvidence as MiniatureEvidence
from triplepoint.screening.miniatures import miniatures_of as miniatures_of
from triplepoint.screening.modules import screen as screen
from triplepoint.screening.named import screen_model as screen_model
from triplepoint.screening.plans import ASSUMED_FACTOR as ASSUMED_FACTOR
from triplepoint.screening.plans import CRITERIA as CRITERIA
from triplepoint.screening.plans import Arm as Arm
from triplepoint.screening.plans import Plan as Plan
from triplepoint.screening.verdicts import CandidateVerdict as CandidateVerdict
from triplepoint.screening.verdicts import Verdict as Verdict
