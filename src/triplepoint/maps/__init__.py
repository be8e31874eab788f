"""Sweeps of cells -> one table of what a change does, by size, data and whatever else is an axis."""

from triplepoint.maps.folders import MapResult as MapResult
from triplepoint.maps.pairs import ENDPOINTS as ENDPOINTS
from triplepoint.maps.plans import MapPlan as MapPlan
from triplepoint.maps.running import News as News
from triplepoint.maps.running import run_map as run_map
from triplepoint.maps.status import status_of as status_of
from triplepoint.maps.table import COLUMNS as COLUMNS
