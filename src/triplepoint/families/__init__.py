"""Where norms sit in a model: path, kind, role and depth of each."""

from triplepoint.families.sites import ROLES as ROLES
from triplepoint.families.sites import NormSite as NormSite
from triplepoint.families.sites import find_norms as find_norms
from triplepoint.families.sites import locations as locations
