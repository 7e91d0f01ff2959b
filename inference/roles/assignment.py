"""Roles of agents under a fit: optimal assignment, one role each, with its margin; role paths.

Le, Yue, Carr, Lucey (2017), Algorithm 4 and eq. 2, as corrected in `assign_roles`.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult, posterior_that_fits
from ethogram.inference.smoothed_draws import DRAWS, are_draws, average_over_draws
from ethogram.models.data.parts import gathered
from ethogram.models.data.selection import label_name
from ethogram.models.data.trajectories import Trajectories, group_labels, valid_steps
from ethogram.models.optimal_assignment import Assignment, checked_costs, ranked_assignment
from ethogram.models.printing import short_repr
from ethogram.models.roles.role_couplings import role_potentials
from ethogram.models.roles.role_groups import GroupedChains
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["InferredRoles", "assign_roles", "infer_roles", "role_log_likelihood"]


@short_repr
class InferredRoles(NamedTuple):
    """Roles step by step.

    Attributes
    ----------
    path : (sequence, time), the most likely path of roles, -1 beyond the length.
    probability : (sequence, time, role), of every role at every step; zero beyond the length.
    """

    path: Int[np.ndarray, "sequence time"]
    probability: Float[np.ndarray, "sequence time role"]


def assign_roles(posterior: ConjugatePosterior | ConjugateResult, data: Trajectories) -> Assignment:
    r"""Optimal assignment of the sequences of each group to distinct roles, with its cost and margin.

    The cost of agent a in role k is :math:`-\sum_t E_q \ln p(x_{a,t} \mid \phi_k)` over its observed steps.
    (The cost printed in the paper, the product of a likelihood and its logarithm, is not monotone.)

    Parameters
    ----------
    posterior : of a `RoleHMM`, or the result that holds it.
    data : trajectories; sequences without a group (None or -1) are groups of their own.

    Returns
    -------
    Assignment
        `role` (sequence,); `cost` and `margin` (group,), groups in ascending order of their number, those without
        one last; costs in nats.

    Raises
    ------
    ValueError
        If a group has more agents than there are roles, or known states leave no map.

    References
    ----------
    Le, Yue, Carr, Lucey (2017), Algorithm 4, with eq. 2 corrected.
    """
    cost = -np.asarray(role_log_likelihood(posterior, data), dtype=float)
    numbers, unit, counts = np.unique(group_labels(data), return_inverse=True, return_counts=True)
    if counts.max() > cost.shape[1]:
        raise ValueError(
            f"group {label_name(data, 'group', numbers[counts.argmax()])} has {counts.max()} agents, the model "
            f"num_roles={cost.shape[1]}: no one-to-one map exists; use infer_roles, or fit more roles"
        )
    role = np.empty(data.num_sequences, dtype=np.int32)
    total, margin = np.empty(len(counts)), np.empty(len(counts))
    for number in range(len(counts)):
        members = np.flatnonzero(unit == number)
        found = ranked_assignment(checked_costs(cost[members]))
        if found is None:
            raise ValueError(
                f"group {label_name(data, 'group', numbers[number])} has no feasible assignment: known states or "
                "symbols of probability 0 exclude all of them"
            )
        role[members], total[number], margin[number] = found
    return Assignment(role, total, margin)


def infer_roles(posterior: Any, data: Trajectories, *, model: Any = None) -> InferredRoles:
    r"""Most likely role paths, and the probability of every role at every step.

    Given q, both use its expected log potentials, as the local step of the fit does; `infer_intents` and held-out
    scores use posterior means of the parameters, under which probabilities differ a little.

    With ``exclusive="per_sequence"`` the path of an agent is its role in the optimal assignment, and the probabilities
    are the marginals of the matching. With ``exclusive="per_frame"`` the paths of a group are its most likely maps;
    where these are a mean field, the optimal assignment of every frame given the marginals of its neighbours.

    Given draws, the probabilities are means over draws of the smoothed marginals, and the path has the most probable
    role of each step. Labels may switch between draws and chains: each draw is relabelled to overlap most with the
    mean of those before it, so that roles are numbered as in the first draw.

    Parameters
    ----------
    posterior : of a `RoleHMM`, or the result that holds it; or draws: a `SampledPosterior`, numpyro's ``MCMC``
        after its run, or its ``get_samples()``, arrays (draw, ...) by site.
    data : trajectories that fit the model.
    model : of draws by site; an ``MCMC`` and a posterior hold theirs.
    """
    if are_draws(posterior):
        return roles_of_draws(posterior, data, model, RoleHMM)
    posterior = posterior_that_fits(posterior, data, RoleHMM, accepted=DRAWS)
    expected = posterior.expected_statistics()
    return gathered(data, lambda part: _decoded(posterior.model, expected, part), "states")


def _decoded(model: RoleHMM, expected: Any, data: Trajectories) -> InferredRoles:
    """Paths and probabilities of the roles of data that fit the model."""
    inside = np.asarray(valid_steps(data))
    groups = model.entries(data).sequences
    order = np.arange(data.num_sequences) if groups is None else groups.ravel()
    batch = model.arrange(padded_data(model, data.take(order)))
    found = [part[: len(inside), : inside.shape[1]] for part in model.coupling.decode(model, expected, batch)]
    path, probability = (np.empty_like(part) for part in found)
    path[order], probability[order] = found
    return InferredRoles(
        np.where(inside, path, -1).astype(np.int32), np.where(inside[..., None], probability, 0)
    )


def roles_of_draws(draws: Any, data: Trajectories, model: Any, kind: type) -> InferredRoles:
    """As `infer_roles` of draws, for any model of class `kind` whose distribution of the data smooths its states."""
    model, averaged = average_over_draws(draws, data, model, kind)
    inside = np.asarray(np.arange(np.shape(data.observed)[1]) < np.asarray(data.lengths)[:, None])
    probability = np.where(inside[..., None], averaged.state, 0)
    return InferredRoles(np.where(inside, probability.argmax(-1), -1).astype(np.int32), probability)


def role_log_likelihood(
    posterior: ConjugatePosterior | ConjugateResult, data: Trajectories
) -> Float[np.ndarray, "sequence role"]:
    r"""Expected log likelihood :math:`\sum_t E_q \ln p(x_{a,t} \mid \phi_k)` of each sequence in each role, in nats.

    Parameters
    ----------
    posterior : of a `RoleHMM`, or the result that holds it.
    data : trajectories that fit the model.
    """
    posterior = posterior_that_fits(posterior, data, RoleHMM)
    model, batch = posterior.model, posterior.model.arrange(data)
    chains = batch.chains if isinstance(batch, GroupedChains) else batch
    return np.asarray(role_potentials(model, posterior.expected_statistics(), chains))
