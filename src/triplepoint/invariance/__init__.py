"""Laws that a model's output must obey: change what must not matter, and compare."""

from triplepoint.invariance.laws import LAWS as LAWS
from triplepoint.invariance.laws import check as check
from triplepoint.invariance.laws import check_causality as check_causality
from triplepoint.invariance.reports import CheckReport as CheckReport
