"""What holds for all tests of MDPs."""

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_ranks():
    """Arrays of different ranks are not broadcast against each other."""
    with jax.numpy_rank_promotion("raise"):
        yield
