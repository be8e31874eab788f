"""What MODEL means: models that can be built again, in any process, from what a person typed."""

from triplepoint.blueprints._base import AS_IT_IS as AS_IT_IS
from triplepoint.blueprints._base import Blueprint as Blueprint
from triplepoint.blueprints._base import Shape as Shape
from triplepoint.blueprints.naming import blueprint_of as blueprint_of
from triplepoint.blueprints.saving import load as load
from triplepoint.blueprints.saving import save as save
from triplepoint.blueprints.shrinking import Shrunk as Shrunk
from triplepoint.blueprints.shrinking import shrink as shrink
