"""Which entries of a numpyro model's observed sites count, under masks and in several plates."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask

from ethogram.inference.export.observed_sites import counted_entries, observed_sites

DRAWS = {"centre": np.zeros(2)}


def two_sites(data):
    """Of six entries, the first site lacks 0 and 1, the second 1 and 5."""
    centre = numpyro.sample("centre", dist.Normal())
    with numpyro.plate("entry", 6):
        with mask(mask=jnp.arange(6) > 1):
            numpyro.sample("first", dist.Normal(centre, 1), obs=data)
        with mask(mask=~jnp.isin(jnp.arange(6), jnp.array([1, 5]))):
            numpyro.sample(
                "second", dist.Normal(centre, jnp.ones((6, 2))).to_event(1), obs=data[:, None] + jnp.ones(2)
            )


def two_plates(data):
    """A row of which nothing counts, and single entries elsewhere."""
    centre = numpyro.sample("centre", dist.Normal())
    counts = jnp.array([[True, False, True], [False, False, False], [True, True, True]])
    with numpyro.plate("row", 3, dim=-2), numpyro.plate("column", 3, dim=-1), mask(mask=counts):
        numpyro.sample("first", dist.Normal(centre, 1), obs=jnp.zeros((3, 3)))


def event_of_masked(data):
    """A mask within an event leaves no entry out, unless it leaves all of it out."""
    centre = numpyro.sample("centre", dist.Normal())
    counts = jnp.array([[True, False], [False, False], [True, True]])
    with numpyro.plate("row", 3):
        numpyro.sample(
            "first", dist.Normal(centre, jnp.ones((3, 2))).mask(counts).to_event(1), obs=jnp.zeros((3, 2))
        )


def without_mask(data):
    """Everything counts."""
    centre = numpyro.sample("centre", dist.Normal())
    with numpyro.plate("entry", 6):
        numpyro.sample("first", dist.Normal(centre, 1), obs=data)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (two_sites, {"entry": [0, 2, 3, 4, 5]}),
        (two_plates, {"row": [0, 2]}),
        (event_of_masked, {"row": [0, 2]}),
        (without_mask, {}),
    ],
)
def test_entries_that_count_at_some_site(model, expected):
    found = counted_entries(observed_sites(model, DRAWS, jnp.zeros(6)))
    assert {plate: numbers.tolist() for plate, numbers in found.items()} == expected
