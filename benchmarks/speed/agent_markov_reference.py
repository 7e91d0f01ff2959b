"""References for the agent Markov model: a CAVI iteration in NumPy and SciPy, and the E-step of dynamax.

The iteration follows Unhelkar and Shah (2019), with the corrections listed in the model's module, and is independent of
the package. It has one transition matrix per time step, and scaled messages by one NumPy call per time step for all
traces. Counts are a sparse product, weights are fitted by L-BFGS-B in additive log-ratio coordinates, and constrained
rows one at a time by SLSQP, as in the paper. Traces have one length and no missing actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse
from scipy.special import digamma, gammaln, polygamma

__all__ = [
    "Counts",
    "Tables",
    "Traces",
    "bound",
    "draw_rows",
    "draw_walks",
    "dynamax_e_step",
    "fit_weights",
    "keeps_to",
    "local_step",
    "messages",
    "project_rows",
    "relative_error",
    "row_objective",
    "sweep",
]  # fmt: skip


class Traces(NamedTuple):
    """Traces (sequence, time), as indices of the carried rows."""

    state: np.ndarray
    action: np.ndarray
    pair: np.ndarray  # of all steps but the last


class Tables(NamedTuple):
    """Dirichlet concentrations of q, and the weights."""

    weights: np.ndarray  # (intent + 1,)
    initial: np.ndarray  # (intent + 1,)
    transition: np.ndarray  # (pair, intent, intent + 1)
    policy: np.ndarray  # (intent, state, action)


class Counts(NamedTuple):
    """Expected counts within the truncation."""

    initial: np.ndarray  # (intent,)
    transition: np.ndarray  # (pair, intent, intent)
    policy: np.ndarray  # (intent, state, action)


def expected_log(concentration: np.ndarray) -> np.ndarray:
    """E log p of Dirichlet rows (..., entry)."""
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


def local_step(tables: Tables, traces: Traces) -> tuple[float, Counts]:
    """Summed log normaliser of the traces, and the expected counts."""
    count = len(tables.weights) - 1
    log_initial, log_rows = (expected_log(part)[..., :count] for part in (tables.initial, tables.transition))
    return messages(log_initial, log_rows, expected_log(tables.policy), traces)


def messages(
    log_initial: np.ndarray, log_rows: np.ndarray, log_policy: np.ndarray, traces: Traces
) -> tuple[float, Counts]:
    """The same at given log potentials: (intent,), (pair, intent, intent) and (intent, state, action)."""
    count = len(log_initial)
    shift = log_rows.max((1, 2))
    rows = np.exp(log_rows - shift[:, None, None])
    steps = np.moveaxis(log_policy[:, traces.state, traces.action], 0, -1)
    top = steps.max(-1)
    likelihood = np.exp(steps - top[..., None])
    num_traces, num_steps = traces.state.shape
    forward, scale = np.empty((num_steps, num_traces, count)), np.empty((num_steps, num_traces))
    reached = np.exp(log_initial)
    for t in range(num_steps):
        joint = reached * likelihood[:, t]
        scale[t] = joint.sum(-1)
        forward[t] = joint / scale[t][:, None]
        if t + 1 < num_steps:
            reached = (forward[t][:, None] @ rows[traces.pair[:, t]])[:, 0]
    log_normalizer = np.log(scale).sum() + top.sum() + shift[traces.pair].sum()

    marginal = np.empty_like(forward)
    both = np.empty((num_traces, num_steps - 1, count, count))
    backward = np.ones((num_traces, count))
    marginal[-1] = forward[-1]
    for t in range(num_steps - 2, -1, -1):
        matrix = rows[traces.pair[:, t]]
        after = likelihood[:, t + 1] * backward / scale[t + 1][:, None]
        both[:, t] = forward[t][:, :, None] * matrix * after[:, None]
        backward = (matrix @ after[:, :, None])[..., 0]
        marginal[t] = forward[t] * backward
    transition = _sums(traces.pair, both, len(rows)).reshape(len(rows), count, count)
    num_states, num_actions = log_policy.shape[1:]
    place = traces.state * num_actions + traces.action
    policy = _sums(place, np.swapaxes(marginal, 0, 1), num_states * num_actions)
    policy = policy.T.reshape(count, num_states, num_actions)
    return float(log_normalizer), Counts(marginal[0].sum(0), transition, policy)


def _sums(place: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Values (sequence, time, ...) added up by their place."""
    flat = values.reshape(place.size, -1)
    ones = np.ones(place.size)
    return sparse.csr_array((ones, (place.ravel(), np.arange(place.size))), shape=(size, place.size)) @ flat


def bound(log_normalizer: float, tables: Tables, alpha: float, gamma: float, rho: float) -> float:
    """The ELBO in nats, under the density of the sticks; `log_normalizer` is of the same tables."""
    prior = alpha * tables.weights
    value = log_normalizer - _divergence(tables.initial, prior) - _divergence(tables.transition, prior)
    value -= _divergence(tables.policy, np.full(tables.policy.shape[-1], rho))
    return float(value + _log_density(tables.weights, gamma))


def _divergence(rows: np.ndarray, prior: np.ndarray) -> float:
    """Summed KL divergence of Dirichlet rows from one prior row."""
    own = gammaln(rows.sum(-1)) - gammaln(rows).sum(-1)
    away = ((rows - prior) * expected_log(rows)).sum(-1)
    return float((own - gammaln(prior.sum()) + gammaln(prior).sum() + away).sum())


def _log_density(weights: np.ndarray, gamma: float) -> float:
    return float((gamma - 1) * np.log(weights[-1]))


def sweep(
    tables: Tables, traces: Traces, alpha: float, gamma: float, rho: float, bounded: np.ndarray | None = None
) -> tuple[float, Tables]:
    """The ELBO before an iteration, and the tables after it; bounded rows are left free, to be projected.

    `bounded` (pair * intent,) bool: rows that q holds elsewhere than at prior plus counts.
    """
    log_normalizer, counts = local_step(tables, traces)
    value = bound(log_normalizer, tables, alpha, gamma, rho)
    size = len(tables.weights)
    rows = counts.transition.reshape(-1, size - 1)
    bounded = np.zeros(len(rows), bool) if bounded is None else bounded
    held = expected_log(tables.transition.reshape(-1, size)[bounded])
    free = np.concatenate([counts.initial[None], rows[~bounded]])
    weights = fit_weights(tables.weights, alpha, gamma, free, held)
    after = [_with_rest(part) + alpha * weights for part in (counts.initial, counts.transition)]
    return value, Tables(weights, *after, rho + counts.policy)


def _with_rest(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([counts, np.zeros_like(counts[..., :1])], axis=-1)


def fit_weights(
    start: np.ndarray, alpha: float, gamma: float, counts: np.ndarray, held: np.ndarray | None = None
) -> np.ndarray:
    """Weights that maximise the ELBO with q of the free rows profiled out.

    Parameters
    ----------
    counts : (row, intent) of the rows that are free.
    held : (row, intent + 1) expected logs of the rows that are not.
    """
    counts = np.append(counts, np.zeros((len(counts), 1)), axis=1)
    total = np.zeros(len(start)) if held is None else held.sum(0)
    num_held = 0 if held is None else len(held)

    def loss(ratios):
        logs = np.append(ratios, 0.0)
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        prior = alpha * weights
        after = prior + counts
        value = _log_density(weights, gamma) + (gammaln(after).sum(0) - len(counts) * gammaln(prior)).sum()
        value += (prior * total - num_held * gammaln(prior)).sum()
        slope = digamma(after).sum(0) - (len(counts) + num_held) * digamma(prior) + total
        slope = alpha * slope
        slope[-1] += (gamma - 1) / weights[-1]
        return -value, -(weights * (slope - weights @ slope))[:-1]

    ratios = np.log(start[:-1] / start[-1])
    found = optimize.minimize(loss, ratios, jac=True, method="L-BFGS-B", bounds=[(-18, 18)] * len(ratios))
    logs = np.append(found.x, 0.0)
    return np.exp(logs - np.logaddexp.reduce(logs))


def row_objective(row: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Log B(eta) - KL(Dir(row) || Dir(eta)) of rows (..., entry), by the definition."""
    away = ((row - free) * expected_log(row)).sum(-1)
    return gammaln(row).sum(-1) - gammaln(row.sum(-1)) - away


def project_row(free: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """One row with bounds on its means, by SLSQP in logs with exact derivatives, from the unconstrained row."""
    given = lower >= upper
    least, most = ~given & (lower > 0), ~given & (upper < 1)

    def loss(logs):
        row = np.exp(logs)
        away = free - row
        slope = polygamma(1, row) * away - polygamma(1, row.sum()) * away.sum()
        return -row_objective(row, free), -slope * row

    limits = []
    for kind, chosen, side, sign in (
        ("eq", given, lower, 1),
        ("ineq", least, lower, 1),
        ("ineq", most, upper, -1),
    ):
        if chosen.any():
            place, share = np.flatnonzero(chosen), side[chosen]
            limits.append(
                {
                    "type": kind,
                    "fun": lambda y, p=place, s=share, g=sign: g * (np.exp(y[p]) - s * np.exp(y).sum()),
                    "jac": lambda y, p=place, s=share, g=sign: (
                        g * (np.eye(len(y))[p] * np.exp(y) - s[:, None] * np.exp(y))
                    ),
                }
            )
    with np.errstate(all="ignore"):
        found = optimize.minimize(
            loss,
            np.log(free),
            jac=True,
            method="SLSQP",
            constraints=limits,
            options={"ftol": 1e-12, "maxiter": 300},
        )
        return np.exp(found.x)


def project_rows(free: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Rows, one after the other."""
    return np.stack([project_row(*row) for row in zip(free, lower, upper, strict=True)])


def keeps_to(rows: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Mask of the rows whose means obey their bounds and whose sum has not diverged."""
    mean = rows / rows.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (np.maximum(lower - mean, mean - upper).max(-1) < 1e-9) & (rows.max(-1) < 1e8)


def draw_rows(
    seed: int, count: int, kinds: tuple[str, ...], size: int = 11
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Typical rows with bounds on one to three means: "equal", "least", "most" or "between"."""
    rng = np.random.default_rng(seed)
    free = 3 * rng.dirichlet(np.ones(size), count) + rng.gamma(0.2, 20, (count, size))
    lower, upper = np.zeros((count, size)), np.ones((count, size))
    for row in range(count):
        entries = rng.choice(size, rng.integers(1, 4), replace=False)
        shares = rng.uniform(0.05, 0.95) * rng.dirichlet(np.ones(len(entries) + 1))[:-1] + 1e-3
        for entry, mean in zip(entries, shares, strict=True):
            kind = kinds[rng.integers(len(kinds))]
            if kind != "most":
                lower[row, entry] = mean
            if kind == "equal":
                upper[row, entry] = mean
            elif kind in ("most", "between"):
                upper[row, entry] = min(1.5 * mean, 0.99)
    return free, lower, upper


def draw_walks(
    seed: int, num_states: int, num_actions: int, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """States and actions of walks on a ring: stay, go ahead, go back, or leap to anywhere."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(num_actions, size=shape)
    leaps = rng.integers(num_states, size=shape)
    moves = np.where(actions < 3, np.array([0, 1, -1, 0])[np.minimum(actions, 3)], leaps)
    before = np.cumsum(moves, axis=1) - moves
    return (rng.integers(num_states, size=(shape[0], 1)) + before) % num_states, actions


def relative_error(found: tuple[Any, ...], truth: tuple[float, Counts]) -> float:
    """Largest difference of log normaliser and counts from the reference, relative to the largest of each."""
    gaps = [abs(float(found[0]) - truth[0]) / abs(truth[0])]
    for one, other in zip(found[1:], truth[1], strict=True):
        gaps.append(float(np.max(np.abs(np.asarray(one) - other)) / other.max()))
    return max(gaps)


def dynamax_e_step(name: str) -> Callable[..., Any]:
    """Log normaliser and counts by a smoother of dynamax in one jitted function, with a matrix for every step."""
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import inference

    smoother = getattr(inference, name)

    def run(initial, transition, policy, pair, state, action):
        steps = jnp.moveaxis(jnp.log(policy)[:, state, action], 0, -1)
        each = jax.vmap(lambda rows, one: smoother(initial, transition[rows], one))(pair, steps)
        rows = jnp.zeros_like(transition).at[pair].add(each.trans_probs)
        acts = jnp.zeros_like(jnp.moveaxis(policy, 0, -1)).at[state, action].add(each.smoothed_probs)
        return jnp.sum(each.marginal_loglik), jnp.sum(each.initial_probs, 0), rows, jnp.moveaxis(acts, -1, 0)

    return jax.jit(run)
