r"""Posterior of the rewards between which an agent switches, by structured variational inference.

q factorises into paths of intents, their chain, and the rewards, :math:`q(z)\, q(\pi, T) \prod_k q(w_k)`:

.. math:: L = \ln \sum_z \exp\big(E[\ln \pi_{z_1}] + \sum_t E[\ln T_{z_t z_{t+1}}]
              + \sum_t E[\ln \pi_{z_t}(a_t \mid s_t)]\big) - KL(q(\pi, T) \| p) - \sum_k KL(q(w_k) \| N(0, I))

The optimal q(z) is by forward-backward; the gradient of the first term has the statistics of the chain and the
fractional counts :math:`n_k(s, a) = \sum_t q(z_t = k) [s_t = s, a_t = a]`, on which every reward takes the
natural-gradient steps of `gaussian_vi`, and q is judged as there. Expectations under q(w) are means over antithetic
draws. At a fixed q(z) they enter the bound linearly, so that on fresh draws its estimate is unbiased.

Starts are segments of demonstrations, clustered by their actions as by k-means++ (Arthur and Vassilvitskii 2007), with
the log likelihood of a segment's actions under the table of actions of a cluster in place of distances; then
expectation maximisation with tables of actions. All go some steps, and the one with the highest ELBO goes on.

Ghahramani and Jordan (1997), "Factorial hidden Markov models", section 3.3, for structured approximations; Hoffman,
Blei, Wang and Paisley (2013), eq. 15, for the chain.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference import storage
from ethogram.inference.checkpoint import Checkpoint, refuse_longer
from ethogram.inference.rewards import gaussian_vi, hyper_parameters
from ethogram.inference.rewards.blas_threads import one_blas_thread
from ethogram.inference.rewards.fit_reward import (
    FEW_POINTS,
    MAX_CHUNKS,
    SHARED,
    check_settings,
    finished,
    initial_hypers,
    white_shares,
)
from ethogram.inference.rewards.gaussian_vi import BaseDraws
from ethogram.inference.rewards.laplace import CALLS, Gaussian, laplace
from ethogram.inference.rewards.node_fits import Progress, SearchState, Settings, node_fits
from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior, as_double
from ethogram.inference.rewards.search_status import Status
from ethogram.inference.rewards.vi_steps import VIState, init, run_steps, standard_error
from ethogram.models.arguments import require_key, require_one_of
from ethogram.models.chains.conjugate_chain import ChainData, ChainEmission, conjugate_log_normalizer
from ethogram.models.data.state_action_steps import AgentSteps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import (
    Dirichlet,
    expected_statistics,
    natural_step,
    total_kl,
)
from ethogram.models.mdps.demonstrations import read_demonstrations
from ethogram.models.model_object import model_object
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.switching import SwitchingGPIRL, chain_prior

__all__ = ["SwitchingGaussian", "fit_switching"]

HYPERS = ("point", "fixed")
"""Treatments of the hyper-parameters."""

SCREENING_STEPS = 8
"""Steps of every start; the one with the highest ELBO then goes on."""

SWEEPS = 3
"""Updates of the chain in a step."""

SEGMENTS = (20, 10, 40)
"""Frames of a segment, of one start after the other."""

CLUSTERINGS, TABLE_STEPS = 10, 60
"""Rounds of clustering, and steps of expectation maximisation with tables of actions."""

SMOOTHING = 5.0
"""Pseudo-counts, of the pooled actions, of a table of actions that starts an intent."""

Blocks = dict[str, Dirichlet]


class SwitchingGaussian(NamedTuple):
    """q(w) of each reward, concentrations of the chain, and the counts under the optimal q(z)."""

    mean: Float[Any, "intent w"]
    root: Float[Any, "intent w w"]
    initial: Float[Any, "intent"]
    transition: Float[Any, "intent next_intent"]
    counts: Float[Any, "intent state action"]

    @property
    def chain(self) -> Blocks:
        """Dirichlet blocks ``initial`` and ``transition``."""
        return {name: Dirichlet.from_standard(getattr(self, name)) for name in ("initial", "transition")}


class SwitchingState(NamedTuple):
    """State of a search: of every start so far, and of the search from the best."""

    starts: list[VIState]
    search: SearchState


class SwitchingTask(NamedTuple):
    """Model, data and settings of a search."""

    model: SwitchingGPIRL
    prior: Blocks
    data: ChainData
    fixed: BaseDraws  # on which ELBOs are compared
    key: Array  # of the steps
    settings: Settings
    tol: float  # at a value of the hyper-parameters

    def settled(self, log_hyper: Any, rewards: Any, chain: Any) -> tuple[SwitchingGaussian, np.ndarray]:
        """The Gaussians with the chain updated at the rewards, and its ELBO at each of the fixed draws."""
        given = (
            self.model.base,
            log_hyper,
            Gaussian(*rewards),
            tuple(chain),
            self.prior,
            self.data,
            self.fixed,
        )
        at_draws, chain, counts = jax.tree.map(np.asarray, _elbo(*given, None, SWEEPS))
        return SwitchingGaussian(rewards[0], rewards[1], chain[0], chain[1], counts), at_draws

    def maximize(
        self,
        log_hyper: Any,
        q: Any,
        state: VIState | None,
        callback: Callable[[VIState], None],
        num_steps: int,
    ) -> VIState:
        """The state where a search at these hyper-parameters has converged, from a state or from q."""
        base, settings = self.model.base, self.settings

        def move(state, step_size):
            generator = numpy_generator(self.key, state.steps)
            draws = gaussian_vi.base_draws(generator, base, len(state.q.mean), settings.num_draws)
            rewards = gaussian_vi.natural_step(base, state.q.counts, log_hyper, state.q, draws, step_size)
            return self.settled(log_hyper, rewards, state.q[2:4])

        if state is None:
            state = init(*self.settled(log_hyper, q[:2], q[2:4]))
        return run_steps(state, move, num_steps=num_steps, tol=self.tol, callback=callback)

    def transport(self, q: SwitchingGaussian, log_hyper: Any, new: Any) -> SwitchingGaussian:
        """The Gaussians at other logarithms of hyper-parameters, its chain held."""
        moved = gaussian_vi.transport(self.model.base, Gaussian(*q[:2]), log_hyper, new)
        return q._replace(mean=moved.mean, root=moved.root)

    def moved(self, log_hyper: Any, q: SwitchingGaussian, new: np.ndarray) -> tuple[float, np.ndarray]:
        """ELBO, apart from what only q(z) has, at other hyper-parameters, q(z) held, and its gradient."""
        rewards = Gaussian(*q[:2])
        return gaussian_vi.moved_elbo(self.model.base, q.counts, self.fixed, log_hyper, rewards, new)

    def fresh_elbos(self, key: Array, log_hyper: Any, q: SwitchingGaussian, chunks: int) -> np.ndarray:
        """ELBOs at antithetic draws, of the q(z) that is optimal on the fixed ones."""
        generator, count, pairs = numpy_generator(key), self.settings.num_evaluations, []
        given = (
            self.model.base,
            log_hyper,
            Gaussian(*q[:2]),
            tuple(q[2:4]),
            self.prior,
            self.data,
            self.fixed,
        )
        for _ in range(chunks):
            fresh = gaussian_vi.base_draws(generator, self.model.base, len(q.mean), count)
            pairs.append(np.asarray(_elbo(*given, fresh, 0)[0]).reshape(2, -1))
        return np.concatenate(pairs, axis=1).ravel()


def fit_switching(
    key: Array,
    model: SwitchingGPIRL,
    demonstrations: Trajectories,
    *,
    hyper: str = "point",
    start: Any = None,
    num_steps: int = 300,
    num_draws: int = 12,
    num_evaluations: int = 128,
    num_restarts: int = 3,
    tol: float = 0.05,
    checkpoint: str | os.PathLike | None = None,
    progress_bar: bool = True,
) -> RewardFit:
    """Posterior of the rewards between which an agent switches, and of the chain of its intents.

    Intents are in the order of their expected numbers of steps, the largest first: one that is not used is the last.

    Parameters
    ----------
    key : typed PRNG key.
    model : a `SwitchingGPIRL`.
    demonstrations : `Trajectories` with states and actions, without subjects.
    hyper : treatment of the hyper-parameters that have priors: ``"point"``, at the mode of the ELBO and their prior, or
        ``"fixed"`` at their initial values.
    start, num_steps, num_draws, num_evaluations, tol, checkpoint : as of :func:`~ethogram.rewards.fit_reward`; a step
        moves every reward, and then the chain.
    num_restarts : starts besides the first.

    Returns
    -------
    A `RewardFit`, whose posterior has a chain. ``restart_elbos`` has the ELBO of each start after some steps.

    Warns
    -----
    UserWarning
        The search has not converged, or most of the prior variance of rewards is noise, as of `fit_reward`.

    Examples
    --------
    >>> from ethogram.models.mdps import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = SwitchingGPIRL(GPIRL(corridor, [[0.0], [1.0], [2.0]], scale_prior=5.0, relevance_prior=1.0), 2)
    >>> data = model.simulate(jax.random.key(0), num_trajectories=20, length=10).data
    >>> fit = fit_switching(jax.random.key(1), model, data, num_restarts=0, tol=1.0, progress_bar=False)
    >>> fit.posterior.mean()["reward"].shape, fit.converged
    ((2, 3), True)
    """
    if not isinstance(model, SwitchingGPIRL):
        raise TypeError(
            f"model is {type(model).__name__}: give a SwitchingGPIRL, or use fit_reward for a GPIRL"
        )
    require_key(key)
    require_one_of("hyper", hyper, HYPERS)
    settings = Settings(hyper, num_steps, num_draws, num_evaluations, num_restarts, tol)
    check_settings("natural_gradient", settings)
    model.check(demonstrations)
    if demonstrations is None:
        raise TypeError("demonstrations is None: give Trajectories with states and actions")
    steps = read_demonstrations(model.mdp, demonstrations, model.base.check_transitions)
    small = model.base.num_white <= FEW_POINTS
    threads = one_blas_thread() if small else contextlib.nullcontext()
    with jax.enable_x64(True), threads, Checkpoint(checkpoint) as store:
        found = _fit(key, as_double(model), steps, start, settings, store, progress_bar)
    return finished(found, model, settings)


def _fit(
    key: Array,
    model: SwitchingGPIRL,
    steps: AgentSteps,
    start: Any,
    settings: Settings,
    store: Checkpoint,
    progress_bar: bool,
) -> RewardFit:
    """The fit in double precision."""
    key_hyper, key_fixed, key_starts, key_steps, key_fresh = jax.random.split(key, 5)
    base, held = model.base, settings.hyper == "fixed"
    known = steps.inside & (steps.action >= 0)
    pooled = np.zeros((1, model.mdp.num_states, model.mdp.num_actions))
    np.add.at(pooled[0], (steps.state[known], steps.action[known]), 1)
    log_hyper = initial_hypers(key_hyper, base, pooled, start, settings)
    active = np.zeros(0, int) if held else np.arange(len(log_hyper))
    fixed = gaussian_vi.base_draws(
        numpy_generator(key_fixed), base, model.num_intents, settings.num_evaluations
    )
    tol = SHARED * settings.tol if len(active) else settings.tol
    data = chain_data(steps, model.mdp.num_actions)
    task = SwitchingTask(model, chain_prior(model), data, fixed, key_steps, settings, tol)

    def signature() -> str:
        taken = settings._replace(num_steps=0, tol=0.0) if held else settings
        arrays = [steps.state, steps.action, np.asarray(steps.inside)]
        return storage.fingerprint(model, arrays, jax.random.key_data(key), list(taken), start)

    def check(path: str, state: SwitchingState) -> None:
        running = [] if state.search.running is None else [state.search.running]
        refuse_longer(max((one.steps for one in [*state.starts, *running]), default=0), settings.num_steps)

    state = store.resumed(signature, SwitchingState, check, lambda: SwitchingState([], SearchState([], None)))
    starts = screened(key_starts, task, log_hyper, state, store.save)
    best = starts[int(np.argmax([np.nan_to_num(one.trace[-1], nan=-np.inf) for one in starts]))]

    def maximize(place, q, state, callback):
        first = best if place is log_hyper else None
        return task.maximize(place, q, first if state is None else state, callback, settings.num_steps)

    def save_search(search: SearchState, done: int) -> None:
        store.save(SwitchingState(starts, search), done)

    with Progress(progress_bar, save_search, state.search, single=held) as progress:
        first = (log_hyper, best.q)
        fit_at = node_fits(first, task.transport, maximize, progress)
        mode = hyper_parameters.find_mode(fit_at, task.moved, log_hyper, active, 2 * settings.tol)
        fit = fit_at(mode.log_hyper)
    error = standard_error(task.settled(fit.log_hyper, fit.q[:2], fit.q[2:4])[1])
    fresh = task.fresh_elbos(key_fresh, fit.log_hyper, fit.q, MAX_CHUNKS)
    order = np.argsort(-fit.q.counts.sum((1, 2)), kind="stable")
    transition = fit.q.transition[order][:, order]
    q = SwitchingGaussian(*(x[order] for x in fit.q))._replace(transition=transition)
    nan, chain = float("nan"), jax.tree.map(np.asarray, q.chain)
    return RewardFit(
        RewardPosterior(model, q.mean[None], q.root[None], fit.log_hyper[None], np.zeros(1), chain=chain),
        float(fresh.mean()),
        standard_error(fresh),
        nan,
        np.array([best.trace[0], *mode.trace] if len(active) else fit.trace),
        nan,
        Status(fit.status) if mode.converged else Status.HYPER_MODE_NOT_FOUND,
        progress.steps,
        float(white_shares(base, fit.log_hyper)),
        error,
        np.array([one.trace[-1] for one in starts]),
    )


def screened(
    key: Array,
    task: SwitchingTask,
    log_hyper: np.ndarray,
    state: SwitchingState,
    save: Callable[[SwitchingState, int], None],
) -> list[VIState]:
    """States of all starts after some steps; those of a checkpoint go on. A single start takes none here."""
    found: list[VIState] = []
    screening = min(SCREENING_STEPS, task.settings.num_steps) if task.settings.num_restarts else 0
    for number in range(1 + task.settings.num_restarts):

        def save_start(one: VIState, before: tuple[VIState, ...] = tuple(found)) -> None:
            save(SwitchingState([*before, one], state.search), one.steps)

        known = state.starts[number] if number < len(state.starts) else None
        q = None if known else first_q(jax.random.fold_in(key, number), number, task, log_hyper)
        found.append(task.maximize(log_hyper, q, known, save_start, screening))
    return found


@model_object
class PolicyTable(ChainEmission):
    """State-action pairs as symbols, whose expected log probabilities under each intent are a block of their own."""

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        """Expected log probability (symbol, intent)."""
        return expected["policy"]


class LocalStep(NamedTuple):
    """The optimal q(z): the log normaliser, and the statistics of the data under it."""

    log_normalizer: Array
    chain: dict[str, Any]  # statistics of the blocks of the chain
    counts: Array  # (intent, state, action), fractional


def chain_data(steps: AgentSteps, num_actions: int) -> ChainData:
    """State-action pairs of checked demonstrations as symbols."""
    known = steps.inside & (steps.action >= 0)
    symbol = np.where(known, steps.state * num_actions + steps.action, 0)
    return ChainData(jnp.asarray(symbol), jnp.asarray(known), jnp.asarray(steps.inside.sum(1)))


def local_step(log_policy: Array, blocks: Blocks, data: ChainData) -> LocalStep:
    """The optimal q(z) at expected log probabilities (intent, state, action) of actions and the blocks of the chain."""
    # Actions that are not available do not occur.
    table = jnp.where(jnp.isfinite(log_policy), log_policy, 0).reshape(len(log_policy), -1).T
    expected = expected_statistics(blocks) | {"policy": table}
    value, found = jax.value_and_grad(lambda e: conjugate_log_normalizer(PolicyTable(), e, data))(expected)
    counts = found.pop("policy").T.reshape(log_policy.shape)
    return LocalStep(value, found, counts)


def _work(base: GPIRL, *_: Any) -> int:
    return CALLS * base.mdp.num_states


@quick_jit(calls=_work, static_argnums=8)
def _elbo(
    base: GPIRL, log_hyper: Array, q: Gaussian, chain: tuple[Array, Array], prior: Blocks, data: ChainData,
    fixed: BaseDraws, fresh: BaseDraws | None, num_sweeps: int,
) -> tuple[Array, tuple[Array, Array], Array]:  # fmt: skip
    """ELBO at each draw, concentrations of the chain after some updates, and counts under the optimal q(z).

    q(z) is optimal on the `fixed` draws, and the ELBO is of the `fresh` ones where there are some.
    """

    def log_policies(draws):
        rewards, rationality = gaussian_vi.rewards_at(base, log_hyper, q, draws)
        return base.agent(rewards, rationality).log_policy

    on_fixed = log_policies(fixed)
    table = jnp.mean(on_fixed, 0)

    def update(_, blocks):
        return natural_step(blocks, prior, local_step(table, blocks, data).chain, 1.0, 1.0)

    blocks = dict(zip(("initial", "transition"), map(Dirichlet.from_standard, chain), strict=True))
    blocks = lax.fori_loop(0, num_sweeps, update, blocks)
    step = local_step(table, blocks, data)
    change = (on_fixed if fresh is None else log_policies(fresh)) - jnp.where(step.counts > 0, table, 0)
    expected = jnp.sum(step.counts * jnp.where(step.counts > 0, change, 0), (-3, -2, -1))
    expected += gaussian_vi.log_ratio(q, fixed if fresh is None else fresh)
    rest = total_kl(blocks, prior) - hyper_parameters.log_prior(base, log_hyper)
    concentrations = tuple(blocks[name].natural.concentration for name in ("initial", "transition"))
    return step.log_normalizer + expected - rest, concentrations, step.counts


def first_q(key: Array, number: int, task: SwitchingTask, log_hyper: np.ndarray) -> SwitchingGaussian:
    """Laplace's approximation of every reward on the counts of the start of this number."""
    model, rng = task.model, numpy_generator(key)
    shape = (model.mdp.num_states, model.mdp.num_actions)
    of_segments = segment_counts(task.data, SEGMENTS[number % len(SEGMENTS)], rng, shape[0] * shape[1])
    labels = clustered(rng, of_segments.reshape(-1, *shape), model.num_intents)
    counts = np.stack([of_segments[labels == label].sum(0) for label in range(model.num_intents)])
    counts, blocks = _from_tables(counts.reshape(-1, *shape), task.prior, task.data)
    counts = np.asarray(counts)
    rewards = laplace(model.base, counts, log_hyper).q
    initial, transition = (
        np.asarray(blocks[name].natural.concentration) for name in ("initial", "transition")
    )
    return SwitchingGaussian(*rewards, initial, transition, counts)


@quick_jit(calls=TABLE_STEPS)
def _from_tables(counts: Array, prior: Blocks, data: ChainData) -> tuple[Array, Blocks]:
    """Counts and chain of intents with tables of actions for policies, by expectation maximisation."""
    pooled = jnp.sum(counts, 0)
    pooled = (pooled + 1) / jnp.sum(pooled + 1, -1, keepdims=True)

    def update(_, now):
        counts, blocks = now
        smoothed = counts + SMOOTHING * pooled
        table = jnp.log(smoothed) - jnp.log(jnp.sum(smoothed, -1, keepdims=True))
        step = local_step(table, blocks, data)
        return step.counts, natural_step(blocks, prior, step.chain, 1.0, 1.0)

    return lax.fori_loop(0, TABLE_STEPS, update, (counts, prior))


def segment_counts(data: ChainData, length: int, rng: np.random.Generator, num_symbols: int) -> np.ndarray:
    """Counts (segment, symbol) of segments of demonstrations, the first of which begins before the first step."""
    symbol, known = np.asarray(data.observations), np.asarray(data.observed)
    place = (np.arange(symbol.shape[1]) + rng.integers(length)) // length
    segment = np.arange(len(symbol))[:, None] * (place[-1] + 1) + place
    _, row = np.unique(segment[known], return_inverse=True)
    counts = np.zeros((row.max() + 1, num_symbols))
    np.add.at(counts, (row, symbol[known]), 1)
    return counts


def clustered(rng: np.random.Generator, counts: np.ndarray, num_clusters: int) -> np.ndarray:
    """Cluster (segment,) of counts (segment, state, action)."""
    pooled = counts.sum(0) + 1
    pooled /= pooled.sum(-1, keepdims=True)
    flat = counts.reshape(len(counts), -1)

    def scores(of_cluster):
        smoothed = of_cluster + pooled
        return flat @ np.log(smoothed / smoothed.sum(-1, keepdims=True)).ravel()

    table = scores(counts[rng.integers(len(counts))])[:, None]
    common = flat @ np.log(pooled).ravel()
    for _ in range(num_clusters - 1):
        # A segment is far from all clusters where the pooled table is better than the best of theirs.
        apart = np.maximum(common - table.max(1), 0) + 1e-9
        table = np.column_stack([table, scores(counts[rng.choice(len(counts), p=apart / apart.sum())])])
    labels = table.argmax(1)
    for _ in range(CLUSTERINGS):
        table = np.column_stack([scores(counts[labels == one].sum(0)) for one in range(num_clusters)])
        before, labels = labels, table.argmax(1)
        if (labels == before).all():
            break
    return labels
