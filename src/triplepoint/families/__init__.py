"""Where norms sit in a model: path, kind, role and depth of each."""

from triplepoint.families.roles import ROLES as ROLES
from triplepoint.families.sites import NormSite as NormSite
from triplepoint.families.sites import find_norms as find_norms
from triplepoint.families.sites import locations as locations
from triplepoint.families.wrappers import plain_path as plain_path
from triplepoint.families.wrappers import unwrapped as unwrapped
