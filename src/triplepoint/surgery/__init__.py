"""Replace the norms of a model by an op, say exactly what was done, and undo it."""

from triplepoint.surgery.choosing import Where as Where
from triplepoint.surgery.choosing import roles as roles
from triplepoint.surgery.converters import convert_ln_to_derf as convert_ln_to_derf
from triplepoint.surgery.converters import convert_ln_to_dyt as convert_ln_to_dyt
from triplepoint.surgery.converters import convert_rmsnorm_to_derf as convert_rmsnorm_to_derf
from triplepoint.surgery.converters import convert_rmsnorm_to_dyt as convert_rmsnorm_to_dyt
from triplepoint.surgery.embeddings import ScaledEmbedding as ScaledEmbedding
from triplepoint.surgery.importing import SOURCES as SOURCES
from triplepoint.surgery.importing import convert_state_dict as convert_state_dict
from triplepoint.surgery.optimisers import check_optimizer as check_optimizer
from triplepoint.surgery.optimisers import orphans_of as orphans_of
from triplepoint.surgery.origins import original_of as original_of
from triplepoint.surgery.policies import ALPHA_BY_FAMILY as ALPHA_BY_FAMILY
from triplepoint.surgery.policies import FamilyAlpha as FamilyAlpha
from triplepoint.surgery.policies import SwapPolicy as SwapPolicy
from triplepoint.surgery.reports import SwapItem as SwapItem
from triplepoint.surgery.reports import SwapReport as SwapReport
from triplepoint.surgery.restoring import unswap_norms as unswap_norms
from triplepoint.surgery.sidecars import completed as completed
from triplepoint.surgery.sidecars import rebuild as rebuild
from triplepoint.surgery.sidecars import sidecar_of as sidecar_of
from triplepoint.surgery.swapping import swap_norms as swap_norms
