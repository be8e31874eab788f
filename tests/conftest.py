"""What every test gets: one thread, its own seed, and signatures that are checked against what is passed."""

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

# Shapes and types in signatures are checked at every call. Before the first import of these parts.
CHECKED = ["triplepoint.ops", "triplepoint.metrics", "triplepoint.models", "triplepoint.objectives"]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")

# The same examples each time, however slow the machine is.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

# Two threads that wait for each other are slower than one, on models of this size.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    """Start every test from the same random state, whatever ran before it."""
    torch.manual_seed(0)
