"""Variational Bayes of a role HMM in float64 NumPy, by enumeration of every path and textbook updates.

Parameters are kept as books print them (m, kappa, nu, Psi; concentrations); nothing here is shared with the
package. ``error=`` builds one of the misprints of Le, Yue, Carr, Lucey (2017) instead of what was meant:

==================== ====================================================================================
first_likelihood     eq. 9: F_1 = p0, so that q(z) never sees the first observation
expected_initial     p~0 = exp ln E p0, not exp E ln p0
initial_count        eq. 15 with F_1 mended: p~0 B_1 / Z, without the first likelihood
counts               eq. 4: each state counts every frame once, in place of its own frames
transition_from_one  eq. 7: transitions from t = 1, one before the first state
two_pi               densities without -D/2 ln 2 pi
usual_mixing         eq. 16 on (m, kappa, nu, Psi), not on natural coordinates
scalar_scale         eq. 6: b'E[t], one number for all coordinates of a row
==================== ====================================================================================
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from role_families import NIW, dirichlet_kl, dirichlet_multinomial, expected_log
from scipy.special import logsumexp

ERRORS = (
    "first_likelihood", "expected_initial", "initial_count", "counts",
    "transition_from_one", "two_pi", "usual_mixing", "scalar_scale",
)  # fmt: skip


class Problem(NamedTuple):
    """Sequences, and which of their frames were seen; hidden states exist wherever t < length."""

    x: np.ndarray  # (sequence, time, feature)
    observed: np.ndarray  # (sequence, time)
    lengths: np.ndarray  # (sequence,)
    group: np.ndarray  # (sequence,)
    states: np.ndarray | None = None  # (sequence, time), -1 where not known

    def only(self, rows) -> Problem:
        return Problem(*(None if part is None else part[rows] for part in self))


class Prior(NamedTuple):
    """Concentrations of the chain, usual parameters of the emission by state, and its family."""

    initial: np.ndarray
    transition: np.ndarray
    emission: dict[str, np.ndarray]
    family: Any


class Local(NamedTuple):
    """What the local step says: one entry per sequence."""

    log_normalizer: np.ndarray  # (sequence,)
    state: np.ndarray  # (sequence, time, state, component)
    pair: np.ndarray  # (sequence, time - 1, state, state)


def log_likelihood(q: Prior, problem: Problem, error=None):
    """(sequence, time, state, component): zero where nothing was seen, -inf off a known state."""
    num_states, count = len(q.initial), q.family.num_components or 1
    out = np.zeros((*problem.observed.shape, num_states, count))
    each = q.family.log_likelihood(q.emission, problem.x[problem.observed].astype(float), error)
    out[problem.observed] = each.reshape(-1, num_states, count)
    out[~problem.observed, :, 1:] = -np.inf  # no observation, no component: one that stands for all
    if problem.states is not None:
        for k in range(num_states):
            out[(problem.states >= 0) & (problem.states != k), k] = -np.inf
    return out


def local_step(q: Prior, problem: Problem, error=None) -> Local:
    """Every path of every sequence, its states and components, weighed and added up."""
    log_initial, log_transition = expected_log(q.initial), expected_log(q.transition)
    if error == "expected_initial":
        log_initial = np.log(q.initial / q.initial.sum())
    if error == "transition_from_one":
        log_initial = logsumexp(log_initial[:, None] + log_transition, axis=0)
    steps = log_likelihood(q, problem, error)
    num_sequences, num_steps, num_states, count = steps.shape
    total = np.zeros(num_sequences)
    state, pair = np.zeros(steps.shape), np.zeros((num_sequences, num_steps - 1, num_states, num_states))
    for s, length in enumerate(problem.lengths):
        if length == 0:
            continue
        paths = np.indices((num_states * count,) * length).reshape(length, -1)
        role, part = np.divmod(paths, count)
        weight = log_initial[role[0]]
        for t in range(length):
            if t > 0:
                weight = weight + log_transition[role[t - 1], role[t]]
            if t > 0 or error != "first_likelihood":
                weight = weight + steps[s, t, role[t], part[t]]
            elif count > 1:
                weight = weight + np.where(part[t] == 0, 0, -np.inf)
        total[s] = logsumexp(weight)
        share = np.exp(weight - total[s])
        for t in range(length):
            np.add.at(state[s, t], (role[t], part[t]), share)
            if t > 0:
                np.add.at(pair[s, t - 1], (role[t - 1], role[t]), share)
    return Local(total, state, pair)


def elbo(q: Prior, prior: Prior, problem: Problem, error=None):
    """Bound in nats right after the local step: sum of ln Z~ less every KL divergence."""
    chain = dirichlet_kl(q.initial, prior.initial) + dirichlet_kl(q.transition, prior.transition)
    local = local_step(q, problem, error).log_normalizer.sum()
    return local - chain - prior.family.kl(q.emission, prior.emission)


def chain_counts(q: Prior, problem: Problem, local: Local, error=None):
    """Initial (state,) and transition (state, state) counts."""
    started = problem.lengths > 0
    first = local.state[:, 0].sum(-1)[started]
    if error == "initial_count":
        first = first / np.exp(logsumexp(log_likelihood(q, problem)[:, 0], axis=-1))[started]
    return first.sum(0), local.pair.sum((0, 1))


def frame_weights(prior: Prior, problem: Problem, local: Local):
    """Weights of every seen frame in every state (and component)."""
    weight = local.state[problem.observed]
    return weight if prior.family.num_components else weight[..., 0]


def step(q: Prior, prior: Prior, problem: Problem, rho=1.0, scale=1.0, error=None) -> Prior:
    """One update: coordinate ascent where rho is 1, a natural-gradient step on scaled data elsewhere."""
    local = local_step(q, problem, error)
    first, pairs = chain_counts(q, problem, local, error)
    if error == "scalar_scale":
        first, pairs = first.sum() + 0 * first, pairs.sum(-1, keepdims=True) + 0 * pairs
    x = problem.x[problem.observed].astype(float)
    weight = scale * frame_weights(prior, problem, local)
    target = prior.family.update(prior.emission, x, weight, error)
    return Prior(
        (1 - rho) * q.initial + rho * (prior.initial + scale * first),
        np.where(
            prior.transition > 0, (1 - rho) * q.transition + rho * (prior.transition + scale * pairs), 0
        ),
        prior.family.mix(q.emission, target, rho, usual=error == "usual_mixing"),
        prior.family,
    )


class Evidence(NamedTuple):
    """Exact evidence of a tiny problem, and posterior means of the chain's parameters."""

    log_evidence: float
    initial: np.ndarray
    transition: np.ndarray


def exact_evidence(prior: Prior, problem: Problem) -> Evidence:
    """All labellings of all frames of all sequences, parameters integrated out."""
    num_states, count = len(prior.initial), prior.family.num_components or 1
    places = [(s, t) for s, length in enumerate(problem.lengths) for t in range(length)]
    seen = [problem.observed[place] for place in places]
    choices = [range(num_states * count) if here else range(0, num_states * count, count) for here in seen]
    labels = np.array(list(itertools.product(*choices)))
    role, part = np.divmod(labels, count)
    initial, transition = np.zeros((len(labels), num_states)), np.zeros((len(labels), num_states, num_states))
    rows = np.arange(len(labels))
    for n, (_, t) in enumerate(places):
        if t == 0:
            np.add.at(initial, (rows, role[:, n]), 1)
        else:
            np.add.at(transition, (rows, role[:, n - 1], role[:, n]), 1)
    weight = dirichlet_multinomial(initial, prior.initial)
    weight = weight + dirichlet_multinomial(transition, prior.transition).sum(-1)
    frames = np.array([problem.x[place] for place, here in zip(places, seen, strict=True) if here], float)
    weight = weight + _emission_marginals(prior, frames, role[:, seen], part[:, seen])
    total = logsumexp(weight)
    share = np.exp(weight - total)
    means = [
        np.tensordot(share, (counts + start) / (counts + start).sum(-1, keepdims=True), 1)
        for counts, start in ((initial, prior.initial), (transition, prior.transition))
    ]
    return Evidence(total, *means)


def _emission_marginals(prior, frames, role, part):
    """Log marginal of the frames under each labelling (labelling,), each set of frames worked out once."""
    family, known = prior.family, {}
    total = np.zeros(len(role))
    if family.num_components:
        counts = np.zeros((len(role), len(prior.initial), family.num_components))
        for n in range(role.shape[1]):
            np.add.at(counts, (np.arange(len(role)), role[:, n], part[:, n]), 1)
        total += dirichlet_multinomial(counts, prior.emission["concentration"]).sum(-1)
        gaussians = {name: prior.emission[name] for name in NIW}
        slots = [((k, m), (role == k) & (part == m)) for k, m in np.ndindex(counts.shape[1:])]
    else:
        gaussians = prior.emission
        slots = [(k, role == k) for k in range(len(prior.initial))]
    for k, members in slots:
        for row, chosen in enumerate(members):
            name = (k, chosen.tobytes())
            if name not in known:
                known[name] = family.log_marginal(gaussians, k, frames[chosen])
            total[row] += known[name]
    return total


def exclusive_local(q: Prior, problem: Problem):
    """Log normaliser (group,) and role marginals (sequence, role): one role per agent, maps uniform."""
    potentials = logsumexp(log_likelihood(q, problem), axis=-1).sum(1)
    num_roles = potentials.shape[1]
    total, marginals = [], np.zeros(potentials.shape)
    for group in np.unique(problem.group):
        members = np.flatnonzero(problem.group == group)
        maps = np.array(list(itertools.permutations(range(num_roles), len(members))))
        weight = potentials[members, maps].sum(1)
        total.append(logsumexp(weight) - np.log(len(maps)))
        share = np.exp(weight - logsumexp(weight))
        for place, agent in enumerate(members):
            np.add.at(marginals[agent], maps[:, place], share)
    return np.array(total), marginals


def exclusive_evidence(prior: Prior, problem: Problem):
    """Log evidence of all groups: every combination of maps, parameters integrated out."""
    num_roles, groups = len(prior.initial), np.unique(problem.group)
    members = [np.flatnonzero(problem.group == group) for group in groups]
    maps = [list(itertools.permutations(range(num_roles), len(agents))) for agents in members]
    roles = np.zeros((np.prod([len(one) for one in maps]), len(problem.group)), int)
    for row, chosen in enumerate(itertools.product(*maps)):
        for agents, one in zip(members, chosen, strict=True):
            roles[row, agents] = one
    sequence = np.nonzero(problem.observed)[0]
    frames = problem.x[problem.observed].astype(float)
    role = roles[:, sequence]
    weight = _emission_marginals(prior, frames, role, np.zeros_like(role))
    return logsumexp(weight) - np.log(len(roles))
