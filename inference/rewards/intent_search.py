"""Search for the rewards of several intents: starts, rounds of structured variational inference, and their end.

A round takes a natural-gradient step of every reward on the fractional counts of its intent, updates the chain with the
optimal q(z), and compares the ELBO with earlier ones on the same draws. All starts go some rounds, and the best of
them goes on until it has converged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import CURE, refuse_longer
from ethogram.inference.rewards.gaussian import RewardGaussian, natural_step, white_share_at
from ethogram.inference.rewards.intent_posterior import IntentFit, IntentPosterior
from ethogram.inference.rewards.intent_starts import start_step
from ethogram.inference.rewards.intent_steps import Blocks, intent_bounds, intent_sweeps, log_policies
from ethogram.inference.rewards.intent_stopping import (
    FIRST_STEPS,
    NOISE,
    UNTRIED,
    WINDOW,
    open_question,
    rises,
)
from ethogram.inference.rewards.natural_gradient import MOST_CHUNKS, RewardSearch, chunks_of
from ethogram.inference.rewards.natural_steps import (
    first_moments,
    hyper_change,
    standard_error,
    with_moved_hypers,
)
from ethogram.inference.rewards.reward_posterior import RewardPosterior
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.families.exponential_family import natural_step as conjugate_step

__all__ = ["IntentClimb", "IntentSearch", "IntentSearchState", "check_saved_intents"]

SIZES = (0.5, 0.25)
"""Sizes of the first natural-gradient steps, and of later ones while the ELBO increases."""

SHRINK, SMALLEST_FACTOR = 0.6, 0.05
"""Factor of the step size where a window of steps no longer increases the ELBO; lower limit of their product."""

SCREENED = 8
"""Rounds of every start; the one with the highest ELBO then goes on."""

SWEEPS = 3
"""Updates of the chain in a round."""


class IntentClimb(NamedTuple):
    """State of the search from one start."""

    q: RewardGaussian  # with intents for experts
    initial: Any  # concentrations of the chain
    transition: Any
    counts: Any  # (intent, state, action), fractional
    best: RewardGaussian
    best_initial: Any
    best_transition: Any
    trace: list[float]  # ELBOs on the fixed draws
    moments: list[Any]  # leaves of the optimiser state of the hyper-parameters
    key: Any  # of later steps
    step: int
    shrunk: int
    factor: float
    error: float
    reason: str


class IntentSearchState(NamedTuple):
    """State of a search: that from every start so far."""

    climbs: list[IntentClimb]


class IntentSearch(NamedTuple):
    """Model, data and settings of a search."""

    base: RewardSearch  # with the pooled counts, and the number of intents from `prior`
    data: ChainData
    prior: Blocks
    num_starts: int

    @property
    def num_intents(self) -> int:
        return len(self.prior["initial"].natural.concentration)

    def of_intents(self, counts: Any) -> RewardSearch:
        """The search of rewards at fixed counts (intent, state, action)."""
        return self.base._replace(counts=counts)

    def fixed_draws(self, key: Array) -> Any:
        """Standard normals of all ELBOs of the search."""
        shape = (self.num_intents, *self.base.counts.shape[1:])
        return self.of_intents(np.zeros(shape)).normals(key, self.base.num_evaluations)

    def begin(self, key: Array, number: int, log_hyper: np.ndarray, fixed: Any) -> IntentClimb:
        """Laplace's approximation of every reward on the counts of a start."""
        key_start, key_mode, key_steps = jax.random.split(jax.random.fold_in(key, number), 3)
        first = start_step(
            key_start, number, self.data, self.prior, self.num_intents, self.base.counts.shape[1:]
        )
        q = self.of_intents(first.counts).laplace(key_mode, log_hyper, False)[0]
        blocks = conjugate_step(self.prior, self.prior, first.chain, 1.0, 1.0)
        moments = first_moments(q)
        initial, transition = (blocks[name].natural.concentration for name in ("initial", "transition"))
        climb = IntentClimb(
            q, initial, transition, first.counts, q, initial, transition, [], moments, key_steps, 0, 0, 1.0,
            np.inf, UNTRIED,
        )  # fmt: skip
        return self.settle(climb, fixed)

    def settle(self, climb: IntentClimb, fixed: Any) -> IntentClimb:
        """The state with the chain updated at the rewards, the counts of the new q(z), and its ELBO."""
        model, blocks = self.base.model, _blocks(climb.initial, climb.transition)
        at_draws = log_policies(model, climb.q, fixed)
        blocks, step = intent_sweeps(at_draws, blocks, self.prior, self.data, SWEEPS)
        bounds = np.asarray(intent_bounds(model, climb.q, blocks, self.prior, step, at_draws, at_draws))
        now, chain = (
            float(bounds.mean()),
            [blocks[name].natural.concentration for name in ("initial", "transition")],
        )
        climb = climb._replace(initial=chain[0], transition=chain[1], counts=step.counts)
        if not climb.trace or now > max(climb.trace):
            climb = climb._replace(best=climb.q, best_initial=chain[0], best_transition=chain[1])
        return climb._replace(trace=[*climb.trace, now], error=standard_error(bounds))

    def round(self, climb: IntentClimb, fixed: Any, tol: float) -> IntentClimb:
        """The state after a natural-gradient step of every reward, one of the hyper-parameters, and `settle`."""
        search = self.of_intents(climb.counts)
        key, key_step = jax.random.split(climb.key)
        normals = search.normals(key_step, search.num_draws)
        size = SIZES[climb.step >= FIRST_STEPS] * climb.factor
        q, moments = natural_step(search.model, climb.q, climb.counts, normals, size, True), climb.moments
        if search.hyper != "fixed" and len(q.log_hyper):
            change, moments = hyper_change(search, q, normals, moments)
            if change is not None:
                q = with_moved_hypers(search.model, q, np.asarray(q.log_hyper) + climb.factor * change[0])
        climb = climb._replace(q=q, moments=moments, key=key, step=climb.step + 1)
        climb = self.settle(climb, fixed)
        climb = self.judged(climb, tol)
        if NOISE in climb.reason and (chunks := chunks_of(climb.error)) <= MOST_CHUNKS:
            fresh = self.fresh_bounds(climb, jax.random.split(jax.random.fold_in(key_step, 1), chunks), fixed)
            climb = self.judged(climb._replace(error=standard_error(fresh)), tol)
        waited = climb.step >= 2 * FIRST_STEPS and climb.step - climb.shrunk >= WINDOW
        if waited and not rises(climb.trace, tol):
            climb = climb._replace(shrunk=climb.step, factor=max(SHRINK * climb.factor, SMALLEST_FACTOR))
        return climb

    def judged(self, climb: IntentClimb, tol: float) -> IntentClimb:
        """The state with what speaks against convergence."""
        return climb._replace(reason=open_question(climb.trace, climb.step, climb.factor, climb.error, tol))

    def fresh_bounds(self, climb: IntentClimb, keys: Array, fixed: Any) -> np.ndarray:
        """ELBOs at antithetic draws of every key, of the q(z) that is optimal on the fixed draws."""
        model, blocks = self.base.model, _blocks(climb.initial, climb.transition)
        of_step = log_policies(model, climb.q, fixed)
        _, step = intent_sweeps(of_step, blocks, self.prior, self.data, 0)
        found = []
        for key in keys:
            fresh = log_policies(model, climb.q, self.fixed_draws(key))
            bounds = intent_bounds(model, climb.q, blocks, self.prior, step, of_step, fresh)
            found.append(np.asarray(bounds).reshape(2, -1))
        return np.concatenate(found, axis=1).ravel()

    def run(
        self,
        key: Array,
        key_fixed: Array,
        log_hyper: np.ndarray,
        state: IntentSearchState,
        num_steps: int,
        tol: float,
        progress_bar: bool,
        save: Callable[[IntentSearchState], None],
    ) -> tuple[IntentSearchState, int]:
        """Final state of all starts, and the number of the best; `save` is called after every round."""
        from tqdm import tqdm

        refuse_longer(max((climb.step for climb in state.climbs), default=0), num_steps)
        fixed, climbs = self.fixed_draws(key_fixed), list(state.climbs)
        first = min(SCREENED, num_steps) if self.num_starts > 1 else num_steps
        total = (self.num_starts - 1) * first + num_steps
        with tqdm(total=total, disable=not progress_bar, desc="rewards of intents") as bar:

            def go(number: int, most: int) -> None:
                if not climbs[number].reason:  # of an earlier call, whose tolerance may have been another
                    climbs[number] = self.judged(climbs[number], tol)
                while climbs[number].step < most and climbs[number].reason:
                    climbs[number] = self.round(climbs[number], fixed, tol)
                    save(IntentSearchState(climbs))
                    bar.update()
                    bar.set_postfix_str(f"ELBO {climbs[number].trace[-1]:.2f}", refresh=False)

            for number in range(self.num_starts):
                if number == len(climbs):
                    climbs.append(self.begin(key, number, log_hyper, fixed))
                go(number, first)
            best = int(np.nanargmax([climb.trace[: first + 1][-1] for climb in climbs]))
            go(best, num_steps)
        return IntentSearchState(climbs), best

    def end(self, key: Array, key_fixed: Array, state: IntentSearchState, best: int) -> IntentFit:
        """Result, with an ELBO on fresh draws: that of the q(z) which is optimal on the draws of the search."""
        climb, model = state.climbs[best], self.base.model
        blocks, q = _blocks(climb.best_initial, climb.best_transition), climb.best
        chunks = min(max(4, chunks_of(climb.error)), MOST_CHUNKS)
        chosen = climb._replace(q=q, initial=climb.best_initial, transition=climb.best_transition)
        bounds = self.fresh_bounds(chosen, jax.random.split(key, chunks), self.fixed_draws(key_fixed))
        parts = [np.asarray(x)[None] for x in (q.mean, q.root, q.log_hyper)]
        rewards = RewardPosterior(model, *parts, np.zeros(1))
        posterior = IntentPosterior(rewards, {name: _on_host(block) for name, block in blocks.items()})
        share = float(white_share_at(model, q.log_hyper))
        return IntentFit(
            posterior,
            float(bounds.mean()),
            standard_error(bounds),
            np.array(climb.trace),
            np.array([one.trace[-1] for one in state.climbs]),
            not climb.reason,
            climb.step,
            share,
            climb.reason,
            climb.error,
        )


def check_saved_intents(path: str, search: IntentSearch, state: IntentSearchState) -> None:
    """Raise a ValueError, which names the file, where the numbers of a checkpoint are damaged."""
    try:
        for climb in state.climbs:
            require_integer("step", climb.step, 0)
            require_key(climb.key, "key")
            shape = (search.num_intents, *search.base.counts.shape[1:])
            if np.shape(climb.counts) != shape or not np.isfinite(np.asarray(climb.counts)).all():
                raise ValueError(
                    f"counts has shape {np.shape(climb.counts)}, or is not finite: expected {shape}"
                )
            for q in (climb.q, climb.best):
                RewardPosterior(search.base.model, *(np.asarray(x)[None] for x in q[:3]), np.zeros(1))
            if np.isnan(climb.trace).any() or len(climb.trace) != climb.step + 1:
                raise ValueError("trace has NaN, or another length than the steps")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; {CURE}") from error


def _blocks(initial: Any, transition: Any) -> Blocks:
    return {"initial": Dirichlet.from_standard(initial), "transition": Dirichlet.from_standard(transition)}


def _on_host(block: Dirichlet) -> Dirichlet:
    return Dirichlet(jax.tree.map(np.asarray, block.natural))
