r"""Rust's bus engines: a superintendent keeps or replaces an engine, month by month.

State: mileage since the last replacement in 90 bins of 5000 miles, the last of which is absorbing under keep. Keeping
advances it by 0, 1 or 2 bins; replacing restarts from bin 0. The structural model has operating costs
:math:`.001\,\theta x` in bin x, a replacement cost RC, a discount beta, and Gumbel shocks to the utilities of both
actions that only the superintendent observes:

.. math:: \bar V(x) = E \max_a \{u(x, a) + \epsilon_a + \beta\, E[\bar V(x') \mid x, a]\}

Rust (1987), "Optimal replacement of GMC bus engines: an empirical model of Harold Zurcher", Econometrica 55(5), table
IX. This is a soft-optimal (maximum-entropy) agent in the MDP of `mdp` with the `reward` of its costs. The data (origin
and licence: ``data/rust_bus/NOTICE``) have 4259 months of group 4 without a replacement; Rust counts the 33 with one as
increments of one bin too, and so do the counts here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int

from ethogram.domains.data import archive
from ethogram.models.arguments import (
    read_array,
    read_reals,
    require,
    require_integer,
    require_key,
    require_number,
    warn_user,
)
from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.trajectories import Metadata
from ethogram.models.mdps.demonstrations import count_log_likelihood
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import SoftPolicy
from ethogram.models.mdps.values import soft_values
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = [
    "ACTION_NAMES", "DISCOUNT", "INCREMENTS", "NUM_BINS", "Estimate", "Records", "count_increments", "decision_counts",
    "estimate", "free_costs", "increments_of", "load", "mdp", "reward", "simulate", "tabular",
]  # fmt: skip

NUM_BINS = 90
ACTION_NAMES = ("keep", "replace")
INCREMENTS = (1682, 2555, 55)
"""Months of group 4 in which mileage advanced by 0, 1 and 2 bins, as Rust counts them."""

DISCOUNT = 0.9999
COST = 0.001
START, GRADIENT_TOL = (8.0, 2.0), 1e-5
"""Costs at which the search for the largest likelihood begins, and nats by a unit of a cost at which it ends."""


class Records(NamedTuple):
    """Months of buses, in order within each bus.

    Attributes
    ----------
    group, bus : (month,) integers.
    month : (month,) number of the bus's month, from 0.
    mileage : (month,) miles since the last replacement.
    bin : (month,) mileage in bins of 5000 miles.
    replaced : (month,) booleans, the decision taken.
    """

    group: Int[np.ndarray, "month"]
    bus: Int[np.ndarray, "month"]
    month: Int[np.ndarray, "month"]
    mileage: Int[np.ndarray, "month"]
    bin: Int[np.ndarray, "month"]
    replaced: Bool[np.ndarray, "month"]


def load(group: int | None = None, *, first_month: bool = False) -> Records:
    """Records of one group of buses, 1 to 4, or of all.

    Parameters
    ----------
    first_month : whether the first month of each bus is kept; Rust drops it.

    Examples
    --------
    >>> months = load(4)
    >>> len(months.bin), int(months.replaced.sum())
    (4292, 33)
    """
    keys = ("group", "bus", "t", "mileage_since_replacement", "replace")
    groups, bus, month, mileage, replaced = archive.embedded("rust_bus", "rust_bus.npz", keys)
    if group is not None:
        group = require_integer("group", group, 1, 4)
    kept = (month > 0) | first_month
    kept &= True if group is None else groups == group
    groups, bus, month, mileage = (part[kept].astype(int) for part in (groups, bus, month, mileage))
    return Records(groups, bus, month, mileage, mileage // 5000, replaced[kept].astype(bool))


def mdp(increments: Any = INCREMENTS, *, discount: float | int = DISCOUNT) -> MDP:
    """The MDP of the 90 bins and two actions, with Rust's discount.

    Parameters
    ----------
    increments : counts or probabilities of increments of 0, 1, 2, ... bins; after a replacement from bin 0. For those
        of given records see `count_increments`.
    discount : gamma in [0, 1].

    Examples
    --------
    >>> print((100 * mdp().probability(5, [0, 0, 0, 1], [5, 6, 7, 1])).round())
    [39. 60.  1. 60.]
    """
    counts = read_array("increments", increments)
    if counts.dtype.kind not in "iuf" or counts.ndim != 1 or not 0 < len(counts) <= NUM_BINS:
        raise TypeError(
            f"increments is {increments!r}: pass numbers for 0, 1, 2, ... bins, at most {NUM_BINS}"
        )
    if not np.isfinite(counts).all() or (counts < 0).any() or not counts.sum() > 0:
        raise ValueError(f"increments is {increments!r}: pass nonnegative numbers with a positive sum")
    if not counts[1:].any():
        warn_user(
            f"increments is {increments!r}: mileage never advances; pass counts of increments of 0, 1, 2, ... bins"
        )
    keep, bins = np.zeros((NUM_BINS, NUM_BINS)), np.arange(NUM_BINS)
    for step, share in enumerate(counts / counts.sum()):
        np.add.at(keep, (bins, np.minimum(bins + step, NUM_BINS - 1)), share)
    table = np.stack([keep, np.broadcast_to(keep[0], keep.shape)], axis=1)
    return MDP.dense(table, discount=discount, action_names=ACTION_NAMES)


def reward(replacement_cost: Any, theta: Any) -> Float[Array, "bin action"]:
    r"""Rewards of keeping, :math:`-.001\,\theta x` in bin x, and of replacing, -RC; differentiable in both costs.

    Examples
    --------
    >>> print(reward(10.0, 2.0)[50])
    [ -0.1 -10. ]
    """
    costs = read_reals(replacement_cost=replacement_cost, theta=theta)
    for name, cost in zip(("replacement_cost", "theta"), costs, strict=True):
        if cost.ndim:
            raise ValueError(f"{name} has shape {cost.shape}: pass a number")
    replacing, running = costs
    bins = jnp.arange(NUM_BINS, dtype=running.dtype)
    return jnp.stack([-COST * running * bins, jnp.broadcast_to(-replacing, bins.shape)], axis=1)


def free_costs(discount: float | int = DISCOUNT, increments: Any = INCREMENTS) -> GPIRL:
    """A Gaussian process prior on the rewards of all 180 bin-action pairs, for nonparametric costs.

    The prior standard deviation of rewards is about ten, the size of a replacement cost; keeping has a feature from 0
    to 2 along the bins with a relevance of about .1, and almost no independent noise.

    Examples
    --------
    >>> free_costs().features.shape
    (90, 2, 2)
    """
    features = np.zeros((NUM_BINS, len(ACTION_NAMES), 2))
    features[:, 0, 0] = np.linspace(0, 2, NUM_BINS)
    features[:, 1, 1] = 1
    return GPIRL(
        mdp(increments, discount=discount),
        features,
        noise=1e-6,
        scale_prior=dist.LogNormal(np.log(100.0), 0.5),
        relevance_prior=dist.LogNormal(np.log(0.1), 1.0),
    )


def decision_counts(records: Records) -> Int[np.ndarray, "bin action"]:
    """Counts of keeping and replacing in every bin.

    Examples
    --------
    >>> decision_counts(load(4)).sum(0).tolist()
    [4259, 33]
    """
    outside = (records.bin < 0) | (records.bin >= NUM_BINS)
    require(~outside, "records.bin", records.bin, f": pass bins from 0 to {NUM_BINS - 1}")
    counts = np.zeros((NUM_BINS, len(ACTION_NAMES)), int)
    np.add.at(counts, (records.bin, records.replaced.astype(int)), 1)
    return counts


def count_increments(records: Records) -> tuple[int, ...]:
    """Counts of increments of 0, 1, 2, ... bins, over months without a replacement.

    Parameters
    ----------
    records : including the first month of each bus, as from ``load(group, first_month=True)``.

    Raises
    ------
    ValueError : no two months of a bus are consecutive, or mileage falls without a replacement.

    Examples
    --------
    >>> count_increments(load(4, first_month=True))
    (1682, 2522, 55)
    """
    follows = (np.diff(records.bus) == 0) & (np.diff(records.group) == 0) & (np.diff(records.month) == 1)
    steps = np.diff(records.bin)[follows & ~records.replaced[:-1]]
    if not len(steps):
        raise ValueError(
            "records has no two consecutive months of a bus without a replacement: pass a bus's history"
        )
    if steps.min() < 0:
        raise ValueError(
            f"records.bin falls by {-steps.min()} in a month without a replacement: mark the replacement"
        )
    return tuple(np.bincount(steps).tolist())


def increments_of(records: Records) -> tuple[int, ...]:
    """Counts of increments of the buses in the records: in all of their months where they are Rust's.

    As he does, months of his with a replacement count as one bin; records of group 0, which `simulate` makes, are
    counted without them.

    Examples
    --------
    >>> increments_of(load(4)) == INCREMENTS
    True
    """
    if not (records.group > 0).all():
        return count_increments(records)
    whole = load(first_month=True)
    buses = set(zip(records.group.tolist(), records.bus.tolist(), strict=True))
    kept = np.array([bus in buses for bus in zip(whole.group.tolist(), whole.bus.tolist(), strict=True)])
    whole = Records(*(part[kept] for part in whole))
    counts = np.array(count_increments(whole))
    counts[1] += whole.replaced.sum()
    return tuple(counts.tolist())


def tabular(records: Records) -> Decisions:
    """Decisions with transition probabilities as features, those of `increments_of` the records."""
    names = Metadata(name="bus engines", action_names=ACTION_NAMES)
    world = mdp(increments_of(records), discount=1.0)
    return Decisions.from_mdp(world, records.bin, records.replaced.astype(int), metadata=names)


class Estimate(NamedTuple):
    """Maximum likelihood estimates."""

    replacement_cost: float
    theta: float
    log_likelihood: float


def estimate(records: Records, *, increments: Any = None, discount: float | int = DISCOUNT) -> Estimate:
    """Maximum likelihood estimates of the costs under Gumbel shocks, by the gradient through the soft values.

    Parameters
    ----------
    increments : counts of increments of 0, 1, 2, ... bins; those of the buses in the records where None, by
        `increments_of`.
    discount : gamma in [0, 1).

    Raises
    ------
    ValueError : no engine was replaced, or all were: the likelihood has no maximum; or as `count_increments`.
    RuntimeError : the optimiser did not converge.
    """
    from scipy.optimize import minimize

    require_number("discount", discount, 0, below=1)
    number = int(records.replaced.sum())
    if number in (0, len(records.replaced)):
        raise ValueError(
            f"records have {number} replacements in {len(records.replaced)} months: pass months with and without"
        )
    with jax.enable_x64(True):
        world = mdp(increments_of(records) if increments is None else increments, discount=discount)
        counts = jax.device_put(decision_counts(records).astype(float))

        def loss(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, slope = _loss(costs, world, counts)
            return np.asarray(value), np.asarray(slope)

        found = minimize(loss, np.array(START), jac=True, method="BFGS", options={"gtol": GRADIENT_TOL})
    if not found.success:
        raise RuntimeError(f"the optimiser did not converge: {found.message}")
    return Estimate(float(found.x[0]), float(found.x[1]), float(-found.fun))


@quick_jit(calls=200)
@jax.value_and_grad
def _loss(costs: Array, world: MDP, counts: Array) -> Array:
    return -count_log_likelihood(soft_values(world, reward(*costs)).log_policy, counts)


def simulate(
    key: Array,
    replacement_cost: float | int,
    theta: float | int,
    *,
    num_buses: int = 37,
    num_months: int = 116,
    discount: float | int = DISCOUNT,
    increments: Any = INCREMENTS,
) -> Records:
    """Simulated records of a superintendent with these costs and Gumbel shocks, from new engines on; the group is 0.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    """
    require_key(key)
    require_integer("num_buses", num_buses, 1)
    with jax.enable_x64(True):
        world = mdp(increments, discount=discount)
        decides = SoftPolicy(
            world, reward(replacement_cost, theta), length=num_months, start=np.zeros(num_buses, int)
        )
        bins, replaced = np.moveaxis(np.asarray(decides.sample(key)), -1, 0).reshape(2, -1).astype(int)
    bus, months = (x.ravel() for x in np.mgrid[:num_buses, :num_months])
    return Records(np.zeros(bus.size, int), bus, months, 5000 * bins, bins, replaced == 1)
