"""Speed of the chain kernel: E-step and gradient of the log evidence, against packages that do the same.

Our E-step is ``expected_counts``: evidence, state marginals and summed pair statistics. Our gradient is
``value_and_grad`` of the summed ``log_normalizer``, which gives the same. Peers take probabilities where ours takes
logs.
TFP's ``posterior_marginals`` and numpyro's enumeration do less, and their rows say so. The last rows are cost a
step against the smallest size, which should not grow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array, lax

from benchmarks import report
from benchmarks.peers import why_skipped
from benchmarks.speed.timing import Contender, compare, peak_memory, speed_row
from ethogram.models.chains.markov_chain import expected_counts, log_normalizer

__all__ = ["SIZES", "measure"]

SIZES = {
    "small": (5000, 50, 5),
    "medium": (100, 1000, 10),
    "large": (1000, 200, 20),
    "long": (1, 100_000, 8),
    "wide": (64, 500, 64),
}
QUICK_SIZES = {"small": (500, 50, 5)}
E_STEP_TARGETS = {"small": 4.9, "medium": 2.2, "large": 3.5, "long": 1.3, "wide": 2.9}
GRADIENT_TARGETS = {"gradient: dynamax filter": 2.8, "gradient: logsumexp scan": 7.0}
GRADIENT_SIZES = ("medium", "large")
ENUMERATED = (50, 50, 5)
LINEAR_STEPS = (100_000, 1_000_000, 10_000_000)
STEPS, STATES = 100, 5
WRONG = {"float64": 1e-8, "float32": 1e-2}

Peer = Callable[[Array, Array, Array], Any]


class Problem(NamedTuple):
    """Probabilities and log likelihoods (sequence, time, state)."""

    initial: np.ndarray
    transition: np.ndarray
    log_likelihood: np.ndarray

    def logs(self, dtype: str) -> tuple[Array, ...]:
        parts = np.log(self.initial), np.log(self.transition), self.log_likelihood
        return tuple(jnp.asarray(part, dtype) for part in parts)

    def probabilities(self, dtype: str) -> tuple[Array, ...]:
        return tuple(jnp.asarray(part, dtype) for part in self)


def draw_problem(seed: int, shape: tuple[int, int, int]) -> Problem:
    """Random Dirichlet chain with Gaussian log likelihoods of standard deviation two."""
    num_states = shape[-1]
    random = np.random.default_rng(seed)
    return Problem(
        random.dirichlet(np.ones(num_states)),
        random.dirichlet(np.ones(num_states), size=num_states),
        2 * random.normal(size=shape),
    )


@jax.jit
def our_e_step(
    log_initial: Array, log_transition: Array, log_likelihood: Array
) -> tuple[Array, Array, Array]:
    counts = expected_counts(log_initial, log_transition, log_likelihood)
    return jnp.sum(counts.log_normalizer), counts.state, counts.transition


@jax.jit
def our_gradient(
    log_initial: Array, log_transition: Array, log_likelihood: Array
) -> tuple[Array, Array, Array]:
    def total(*potentials):
        return jnp.sum(log_normalizer(*potentials))

    value, (_, pairs, state) = jax.value_and_grad(total, argnums=(0, 1, 2))(
        log_initial, log_transition, log_likelihood
    )
    return value, state, pairs


def logsumexp_total(log_initial: Array, log_transition: Array, log_likelihood: Array) -> Array:
    """Summed log evidence by the textbook recursion, for autodiff."""

    def one(steps):
        def forward(alpha, step):
            return jax.nn.logsumexp(alpha[:, None] + log_transition, axis=0) + step, None

        last, _ = lax.scan(forward, log_initial + steps[0], steps[1:])
        return jax.nn.logsumexp(last)

    return jnp.sum(jax.vmap(one)(log_likelihood))


def logsumexp_gradient() -> Peer:
    gradient = jax.jit(jax.value_and_grad(logsumexp_total, argnums=(0, 1, 2)))

    def run(*logs):
        value, (_, pairs, state) = gradient(*logs)
        return value, state, pairs

    return run


def reference(problem: Problem) -> tuple[float, np.ndarray]:
    """Log evidence and state marginals in float64 log space, by NumPy."""
    log_transition = np.log(problem.transition)
    steps = np.swapaxes(problem.log_likelihood, 0, 1)
    alpha, beta = np.empty_like(steps), np.zeros_like(steps)
    alpha[0] = np.log(problem.initial) + steps[0]
    for t in range(1, len(steps)):
        alpha[t] = np.logaddexp.reduce(alpha[t - 1][:, :, None] + log_transition, axis=1) + steps[t]
    for t in range(len(steps) - 1, 0, -1):
        beta[t - 1] = np.logaddexp.reduce((steps[t] + beta[t])[:, None] + log_transition, axis=2)
    evidence = np.logaddexp.reduce(alpha[-1], axis=1)
    marginals = np.exp(alpha + beta - np.logaddexp.reduce(alpha + beta, axis=2, keepdims=True))
    return float(evidence.sum()), np.swapaxes(marginals, 0, 1)


def dynamax_smoother(name: str) -> Peer:
    from dynamax.hidden_markov_model import inference

    smoother = getattr(inference, name)

    def run(initial, transition, log_likelihood):
        posterior = jax.vmap(lambda steps: smoother(initial, transition, steps))(log_likelihood)
        pairs = jnp.sum(posterior.trans_probs, axis=0)
        return jnp.sum(posterior.marginal_loglik), posterior.smoothed_probs, pairs

    return jax.jit(run)


def dynamax_gradient() -> Peer:
    from dynamax.hidden_markov_model.inference import hmm_filter

    def total(initial, transition, log_likelihood):
        return jnp.sum(
            jax.vmap(lambda steps: hmm_filter(initial, transition, steps).marginal_loglik)(log_likelihood)
        )

    gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))

    def run(*probabilities):
        value, (_, pairs, state) = gradient(*probabilities)
        return value, state, pairs

    return run


def hmmlearn_e_step() -> Peer:
    from hmmlearn import _hmmc

    def run(initial, transition, log_likelihood):
        states, pairs, total = np.empty_like(log_likelihood), np.zeros_like(transition), 0.0
        for i, steps in enumerate(log_likelihood):
            top = steps.max(axis=1, keepdims=True)
            likelihood = np.exp(steps - top)
            evidence, forward, scaling = _hmmc.forward_scaling(initial, transition, likelihood)
            backward = _hmmc.backward_scaling(initial, transition, likelihood, scaling)
            joint = forward * backward
            states[i] = joint / joint.sum(axis=1, keepdims=True)
            pairs += _hmmc.compute_scaling_xi_sum(forward, transition, backward, likelihood)
            total += evidence + top.sum()
        return total, states, pairs

    return run


def tfp_marginals() -> Peer:
    from tensorflow_probability.substrates import jax as tfp

    def run(initial, transition, log_likelihood):
        num_states = len(initial)
        # Observations are the log likelihoods themselves, through a distribution that reads them off.
        chain = tfp.distributions.HiddenMarkovModel(
            tfp.distributions.Categorical(probs=initial),
            tfp.distributions.Categorical(probs=transition),
            _ReadOff(jnp.arange(num_states), num_states),
            num_steps=log_likelihood.shape[1],
        )
        return None, chain.posterior_marginals(log_likelihood).probs_parameter(), None

    class _ReadOff(tfp.distributions.Distribution):
        def __init__(self, state, num_states):
            self._state, self._num_states = state, num_states
            super().__init__(
                jnp.result_type(float), tfp.distributions.NOT_REPARAMETERIZED, False, True, name="ReadOff"
            )

        def _batch_shape(self):
            return tfp.tf2jax.TensorShape(self._state.shape)

        def _event_shape(self):
            return tfp.tf2jax.TensorShape([self._num_states])

        def _log_prob(self, value):
            return jnp.sum(jnp.where(jnp.eye(self._num_states, dtype=bool), value, 0), axis=-1)

    return jax.jit(run)


def normal_gradient(log_initial: Array, log_transition: Array, mean: Array, y: Array) -> Any:
    """Value and gradient of our log evidence, for steps y (sequence, time) ~ N(mean of the state, 1)."""

    def density(log_initial, log_transition, mean):
        each = dist.Normal(mean, 1.0).log_prob(y[..., None])
        return jnp.sum(log_normalizer(log_initial, log_transition, each))

    return jax.value_and_grad(density, argnums=(0, 1, 2))(log_initial, log_transition, mean)


def numpyro_gradient(log_initial: Array, log_transition: Array, mean: Array, y: Array) -> Any:
    """The same of the log density in which numpyro's own scan enumerates the states."""
    from numpyro.contrib.control_flow import scan
    from numpyro.contrib.funsor import config_enumerate, enum, log_density

    def density(log_initial, log_transition, mean):
        rows = jnp.concatenate([log_transition, log_initial[None]])

        def model():
            def step(state, now):
                with numpyro.plate("sequences", y.shape[0], dim=-1):
                    state = numpyro.sample("state", dist.Categorical(logits=rows[state]))
                    numpyro.sample("y", dist.Normal(mean[state], 1.0), obs=now)
                return state, None

            scan(step, jnp.full(y.shape[0], len(log_initial)), y.T)

        return log_density(enum(config_enumerate(model), first_available_dim=-2), (), {}, {})[0]

    return jax.value_and_grad(density, argnums=(0, 1, 2))(log_initial, log_transition, mean)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every size, then numpyro's enumeration on a smaller one, then linearity."""
    dtype = settings.dtype or "float64"
    rounds = settings.rounds or (3 if settings.quick else 9)
    sizes = QUICK_SIZES if settings.quick else SIZES
    if settings.size is not None:
        if settings.size not in sizes:
            raise SystemExit(f"--size: {settings.size!r} is none of {', '.join(sizes)}")
        sizes = {settings.size: sizes[settings.size]}
    rows = []
    with jax.enable_x64(dtype == "float64"):
        for size, shape in sizes.items():
            rows += measure_size(size, draw_problem(settings.seed, shape), dtype, rounds)
        if settings.size is None:
            rows += measure_enumeration(settings.seed, dtype, rounds)
            rows += measure_linearity(
                settings.seed, dtype, rounds, LINEAR_STEPS[: 2 if settings.quick else 3]
            )
    return rows


def measure_size(size: str, problem: Problem, dtype: str, rounds: int) -> list[dict[str, Any]]:
    logs, probabilities = problem.logs(dtype), problem.probabilities(dtype)
    host = tuple(np.asarray(part) for part in problem)
    target = E_STEP_TARGETS[size]
    builders = {
        "dynamax two-filter": (
            "dynamax.hidden_markov_model.inference",
            lambda: dynamax_smoother("hmm_two_filter_smoother"),
            probabilities,
            target,
        ),
        "dynamax smoother": (
            "dynamax.hidden_markov_model.inference",
            lambda: dynamax_smoother("hmm_smoother"),
            probabilities,
            target,
        ),
        "hmmlearn scaling": ("hmmlearn._hmmc", hmmlearn_e_step, host, target),
        "TFP marginals (no pairs)": (
            "tensorflow_probability.substrates.jax",
            tfp_marginals,
            probabilities,
            None,
        ),
        "gradient: dynamax filter": (
            "dynamax.hidden_markov_model.inference",
            dynamax_gradient,
            probabilities,
            None,
        ),
        "gradient: logsumexp scan": ("jax", logsumexp_gradient, logs, None),
    }
    own = {"e-step": Contender(our_e_step, logs), "gradient": Contender(our_gradient, logs)}
    contenders = dict(own)
    missing = {}
    for name, (module, build, arguments, _) in builders.items():
        why = why_skipped(module)
        if why is not None:
            missing[name] = why
            continue
        try:
            contender = Contender(build(), arguments)
            jax.block_until_ready(contender.function(*contender.arguments))
        except Exception as error:
            missing[name] = f"skipped: {type(error).__name__}: {str(error).splitlines()[0][:80]}"
        else:
            contenders[name] = contender
    evidence, marginals = reference(problem)
    timings = compare(contenders, rounds=rounds)
    results = {kind: one.function(*one.arguments)[:2] for kind, one in own.items()}
    error = {kind: largest_error(*result, evidence, marginals) for kind, result in results.items()}
    peak = {kind: peak_memory(one) for kind, one in own.items()}
    rows = []
    for name, (_, _, _, wanted) in builders.items():
        if size in GRADIENT_SIZES:
            wanted = GRADIENT_TARGETS.get(name, wanted)
        if name in missing:
            rows.append({"size": size, "peer": name, "dtype": dtype, "note": missing[name]})
            continue
        contender = contenders[name]
        value, state, _ = contender.function(*contender.arguments)
        kind = "gradient" if "gradient" in name else "e-step"
        rows.append(
            speed_row(
                size,
                name,
                dtype,
                timings[kind],
                timings[name],
                target=wanted,
                error=error[kind],
                peak_mb=peak[kind],
                peer_error=largest_error(value, None if kind == "gradient" else state, evidence, marginals),
                correct=error[kind] < WRONG[dtype],
            )
        )
    return rows


def largest_error(value: Any, state: Any, evidence: float, marginals: np.ndarray) -> float:
    """The larger of the relative error of the evidence and the absolute error of the marginals."""
    errors = []
    if value is not None:
        errors.append(abs(float(value) - evidence) / abs(evidence))
    if state is not None:
        errors.append(float(np.max(np.abs(np.asarray(state) - marginals))))
    return max(errors)


def measure_enumeration(seed: int, dtype: str, rounds: int) -> list[dict[str, Any]]:
    """Gradient with respect to chain and means of a Gaussian chain, beside numpyro's enumeration."""
    name = "gradient: numpyro enumeration"
    why = why_skipped("funsor")
    if why is not None:
        return [{"size": "tiny", "peer": name, "dtype": dtype, "note": why}]
    num_sequences, num_steps, num_states = ENUMERATED
    mean, y = np.arange(num_states) * 1.0, np.random.default_rng(seed).normal(size=(num_sequences, num_steps))
    each = -0.5 * (y[..., None] - mean) ** 2 - 0.5 * np.log(2 * np.pi)
    problem = draw_problem(seed, ENUMERATED)._replace(log_likelihood=each)
    evidence, _ = reference(problem)
    data = (*problem.logs(dtype)[:2], jnp.asarray(mean, dtype), jnp.asarray(y, dtype))
    contenders = {
        "ours": Contender(jax.jit(normal_gradient), data),
        "peer": Contender(jax.jit(numpyro_gradient), data),
    }
    timings = compare(contenders, rounds=rounds)
    error, peer_error = (
        abs(float(one.function(*data)[0]) - evidence) / abs(evidence) for one in contenders.values()
    )
    more = {"error": error, "peer_error": peer_error, "correct": error < WRONG[dtype]}
    return [speed_row("tiny", name, dtype, timings["ours"], timings["peer"], **more)]


def measure_linearity(seed: int, dtype: str, rounds: int, totals: tuple[int, ...]) -> list[dict[str, Any]]:
    """Cost a step at each total number of steps, as a ratio to the smallest: 0.8 to 1.2 is linear."""
    contenders = {}
    for total in totals:
        problem = draw_problem(seed, (total // STEPS, STEPS, STATES))
        contenders[f"{total:.0e} steps"] = Contender(our_e_step, problem.logs(dtype))
    timings = compare(contenders, rounds=rounds)
    names = list(contenders)
    rows = []
    for name, total in zip(names[1:], totals[1:], strict=True):
        scaled = timings[names[0]]._replace(cpu=timings[names[0]].cpu * total / totals[0])
        row = speed_row(name, f"linear from {names[0]}", dtype, timings[name], scaled, target=1 / 1.2)
        rows.append(row)
    return rows


if __name__ == "__main__":
    raise SystemExit(
        report.run(
            "chain", __doc__, measure, speed=True, peers=("dynamax", "hmmlearn", "tfp-nightly", "funsor")
        )
    )
