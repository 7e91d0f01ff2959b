r"""Conjugate variational inference: coordinate ascent and stochastic natural gradients, by one engine.

A model that offers ``prior()``, a dict of conjugate blocks, and ``log_normalizer(expected, batch)``, the log
normaliser of its local part under expected log potentials, has the bound

.. math:: L(q) = b \sum_s \ln \tilde Z_s(E_q \ln \phi) - KL(q \,\|\, p),

whose statistics are the gradient of the first term. A step moves natural coordinates,
:math:`\eta \leftarrow \eta + \rho\,(\eta_0 + b\,t - \eta)`: with all data and :math:`\rho = 1` it is coordinate
ascent (CAVI), with mini-batches and decreasing :math:`\rho` it is stochastic variational inference.

Hoffman, Blei, Wang, Paisley (2013); Le, Yue, Carr, Lucey (2017), supplement, Algorithm 5, eq. 6 and 16-18 in
natural coordinates. The bound holds right after the local step, and is only ever reported there.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import FitState, check_path, read_checkpoint, write_checkpoint
from ethogram.inference.conjugate_result import ConjugateResult, best_restart, warn_of_falls
from ethogram.inference.conjugate_steps import (
    BLOCK,
    ascent_block,
    bounds,
    float_type,
    full_steps,
    settled,
    stochastic_steps,
)
from ethogram.inference.constrained import may_not_fall, warn_of_rows
from ethogram.inference.impossible_data import impossible_sequences
from ethogram.inference.mini_batches import group_layout, group_order, in_group_order, plan_batches
from ethogram.inference.starts import continued_blocks, start_blocks
from ethogram.inference.step_sizes import check_step_size, robbins_monro, step_size_at
from ethogram.models import trajectories
from ethogram.models.trajectories import Metadata, Trajectories

__all__ = ["ConjugateResult", "ConjugateSVI"]

MAX_WASTE = 0.3
"""Share of padding at which the data are cut into one more bucket, whose shape has to be compiled."""

SMALL_CELLS = 200_000
"""Padded data of fewer steps stay in one bucket: compiling a second shape costs more than it saves."""

MAX_PROBES = 100
"""Step sizes kept in a checkpoint at most, by which the schedule is known again."""

PLAIN = Metadata()


class ConjugateSVI:
    """The conjugate engine for one model.

    Parameters
    ----------
    model : an object with ``prior()`` and ``log_normalizer(expected, batch)``, and optionally ``check(data)``,
        ``arrange(data)`` (data as a pytree whose arrays lead with the sequence axis, then time),
        ``start_statistics(rng, kind, batches)`` (statistics of a rough first labelling, of the ``start_kinds``),
        ``bind(data)`` (the model with what it has to know of the data) and ``check_continues(earlier_model)``,
        and, where the blocks hang together, ``divergence(blocks)`` and ``update(blocks, statistics, scale,
        step_size)``.

    Examples
    --------
    >>> import jax
    >>> from ethogram.models.emissions import GaussianEmission
    >>> from ethogram.models.role_hmm import RoleHMM
    >>> model = RoleHMM(2, GaussianEmission(1, scale=1.0))
    >>> data = model.simulate(jax.random.key(0), num_groups=6, lengths=20).data
    >>> fit = ConjugateSVI(model).run(jax.random.key(1), data, 50, restarts=2, progress_bar=False)
    >>> fit.posterior.mean()["transition"].shape, bool(fit.elbo[-1] == fit.restart_elbos.max())
    ((2, 2), True)
    """

    def __init__(self, model: Any):
        for part in ("prior", "log_normalizer"):
            if not callable(getattr(model, part, None)):
                raise TypeError(f"{type(model).__name__} has no method {part}: it is not a conjugate model")
        self.model = model

    def run(
        self,
        key: Array,
        data: Trajectories,
        num_steps: int,
        *,
        batch_size: int | None = None,
        step_size: Any = None,
        restarts: int = 8,
        init: Any = "mixed",
        tol: float | int = 1e-6,
        evaluate_every: int | None = None,
        progress_bar: bool = True,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_every: int = 50,
    ) -> ConjugateResult:
        """Fit the model; the best of `restarts` starts by its bound on all data.

        Parameters
        ----------
        key : of ``jax.random.key``.
        data : trajectories; groups stay whole in mini-batches.
        num_steps : steps at most, beyond those of `init` where that is a result.
        batch_size : groups (whole demonstrations, all their agents) a step; None takes all data.
        step_size : rho in (0, 1], or a schedule step -> rho (any of optax, or `robbins_monro`). None: 1 with all
            data, which is coordinate ascent, else ``robbins_monro()``.
        restarts : starts run side by side in one compiled program.
        init : ``"mixed"`` takes the kinds ``"kmeans++"``, ``"sticky"`` and ``"segments"`` in turn; or one of
            them, or ``"prior"``, for all; or an earlier result, to go on from its posterior (one restart).
        tol : relative change of the bound between two evaluations (for coordinate ascent, two steps) up to
            which a restart counts as converged; in coordinate ascent it then rests. With 0 none ever does.
        evaluate_every : steps between bounds; None: every step of coordinate ascent, else once an epoch.
        checkpoint : a file that is written every `checkpoint_every` steps, on interruption and at the end; a
            run with the same arguments finds it and goes on, to the result of an uninterrupted run, and one
            with a larger `num_steps` goes on beyond it.

        Raises
        ------
        ValueError, TypeError
            For arguments or data that do not fit, a checkpoint of another model, data or settings, and data
            that are impossible under every start.
        """
        self._check_arguments(key, num_steps, restarts, tol, evaluate_every, checkpoint_every)
        trajectories.check(data)
        if hasattr(self.model, "check"):
            self.model.check(data)
        model = self.model.bind(data) if hasattr(self.model, "bind") else self.model
        key_start, key_plan, key_next = _three_keys(key)
        run = _Run(model, data, batch_size, step_size, evaluate_every, tol, key_plan)
        step_size_at(run.step_size, _first_and_last(init, num_steps))
        signature, state = "", None
        if checkpoint is not None:
            check_path(checkpoint)
            settings = [batch_size, run.ascent, restarts, run.evaluate_every, tol]
            origin = init.posterior.blocks if isinstance(init, ConjugateResult) else init
            parts = [
                model,
                jax.random.key_data(key),
                run.data._replace(metadata=PLAIN),
                settings,
                origin,
            ]
            signature = storage.fingerprint(*parts)
            state = read_checkpoint(checkpoint, signature, lambda steps: step_size_at(run.step_size, steps))
        if state is None:
            state = run.start(key_start, restarts, init)

        def save(state: FitState) -> None:
            if checkpoint is not None:
                write_checkpoint(checkpoint, signature, state, run.used_step_sizes(state))

        state = run.advance(state, num_steps, progress_bar, save, checkpoint_every)
        result = best_restart(model, state, key_next)
        if run.ascent and may_not_fall(result.posterior.blocks):
            warn_of_falls(result.elbo)
        warn_of_rows(result.posterior.blocks)
        return result

    @staticmethod
    def _check_arguments(key, num_steps, restarts, tol, evaluate_every, checkpoint_every):
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise TypeError(f"key must come from jax.random.key, not {type(key).__name__}")
        if key.shape:
            raise ValueError(f"key has shape {key.shape}: give one key, such as keys[0]")
        counts = {"num_steps": num_steps, "restarts": restarts, "checkpoint_every": checkpoint_every}
        counts |= {} if evaluate_every is None else {"evaluate_every": evaluate_every}
        for name, count in counts.items():
            _check_count(name, count)
        if not tol >= 0:
            raise ValueError(f"tol must be at least 0, not {tol}")


class _Run:
    """One fit: data on the device, settings, and the loop over compiled blocks of steps."""

    def __init__(self, model, data, batch_size, step_size, evaluate_every, tol, key_plan):
        self.order, data = group_order(data), in_group_order(data)
        self.model, self.data, self.batch_size, self.tol = model, data, batch_size, float(tol)
        self.arrange = getattr(model, "arrange", lambda data: data)
        check_step_size(step_size)
        whole = batch_size is None
        self.ascent = whole and (step_size is None or (not callable(step_size) and step_size == 1))
        self.step_size = step_size if step_size is not None else (1.0 if whole else robbins_monro())
        cells = data.num_sequences * int(np.max(data.lengths))
        max_waste = 0.999 if cells < SMALL_CELLS else MAX_WASTE
        self.layout = group_layout(data, max_waste)
        if not whole:
            _check_count("batch_size", batch_size)
            if batch_size > self.layout.num_groups:
                raise ValueError(
                    f"batch_size is {batch_size}, more than the {self.layout.num_groups} groups of the data: "
                    "None takes all"
                )
        epoch = 1 if whole else -(-self.layout.num_groups // batch_size)
        self.evaluate_every = epoch if evaluate_every is None else evaluate_every
        self.entropy = [int(word) for word in np.asarray(jax.random.key_data(key_plan)).ravel()]
        self.prior = model.prior()
        stripped = data._replace(metadata=PLAIN)
        # Small data keep the shape they came in: fits of data that are laid out alike are compiled once.
        small = data.observed.size < SMALL_CELLS
        buckets = [stripped] if small else stripped.buckets(max_waste, by="group")
        self.buckets = [self._on_device(bucket) for bucket in buckets]
        self.everything = None if whole else self._on_device(stripped.trim(), spare=True)

    def _on_device(self, data, spare=False):
        """The model's own arrangement, in its precision; with `spare`, one empty sequence more, for empty slots."""
        dtype = float_type(self.prior)

        def put(x):
            return jnp.asarray(x, dtype if jnp.issubdtype(x.dtype, jnp.floating) else None)

        batch = jax.tree.map(put, self.arrange(data))
        if not spare:
            return batch
        return jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), batch)

    def used_step_sizes(self, state: FitState) -> dict[int, float]:
        """Step sizes at some of the steps done, by step."""
        if self.ascent or state.step == state.first_step:
            return {}
        count = min(state.step - state.first_step, MAX_PROBES)
        steps = np.unique(np.linspace(state.first_step, state.step - 1, count).astype(int))
        return dict(zip(steps.tolist(), step_size_at(self.step_size, steps).tolist(), strict=True))

    def start(self, key, restarts, init) -> FitState:
        if isinstance(init, ConjugateResult):
            if hasattr(self.model, "check_continues"):
                self.model.check_continues(init.posterior.model)
            blocks, restarts, step = continued_blocks(init.posterior.blocks, self.prior), 1, init.step
        else:
            blocks, step = start_blocks(key, self.model, self.prior, self.buckets, restarts, init), 0
        nowhere = np.full(restarts, -np.inf, float_type(blocks))
        return FitState(blocks, step, step, np.ones(restarts, bool), nowhere, [], [])

    def advance(self, state, num_steps, progress_bar, save, save_every) -> FitState:
        from tqdm.auto import tqdm

        stop = state.first_step + num_steps
        saved = state.step
        done = state.step - state.first_step
        try:
            with tqdm(total=num_steps, initial=done, disable=not progress_bar, desc="fit") as bar:
                while state.step < stop and (not self.ascent or state.active.any()):
                    before = state.step
                    until = min(stop, (state.step // save_every + 1) * save_every)
                    state = self._ascend(state, until) if self.ascent else self._stochastic(state, until)
                    if state.step - saved >= save_every:
                        save(state)
                        saved = state.step
                    bar.set_postfix_str(f"ELBO {np.max(state.traces[-1]):.1f}", refresh=False)
                    bar.update(state.step - before)
        except KeyboardInterrupt:
            save(state)
            raise
        # Saved before the last bound is taken, which lies off the schedule: a longer run goes on from here.
        save(state)
        return self._evaluate(state)

    def _ascend(self, state: FitState, until: int) -> FitState:
        limit = min(until - state.step, BLOCK)
        blocks, active, latest, trace, done = ascent_block(
            self.model, state.blocks, self.prior, self.buckets, state.active, state.latest, limit, self.tol
        )
        done = int(done)
        trace = np.asarray(trace)[:done]
        if not state.evaluated:
            self._refuse_impossible(trace[0], state.blocks)
        steps = range(state.step, state.step + done)
        kept = [i for i, step in enumerate(steps) if (step - state.first_step) % self.evaluate_every == 0]
        return state._replace(
            blocks=blocks,
            step=state.step + done,
            active=np.asarray(active),
            latest=np.asarray(latest),
            evaluated=state.evaluated + [steps[i] for i in kept],
            traces=state.traces + [trace[i] for i in kept],
        )

    def _stochastic(self, state: FitState, until: int) -> FitState:
        since = (state.step - state.first_step) % self.evaluate_every
        if since == 0:
            state = self._evaluate(state)
        limit = min(until - state.step, BLOCK, self.evaluate_every - since)
        stop = state.step + limit
        sizes = np.zeros(BLOCK)
        sizes[:limit] = step_size_at(self.step_size, np.arange(state.step, stop))
        if self.batch_size is None:
            blocks = full_steps(self.model, state.blocks, self.prior, self.buckets, sizes)
        else:
            plan = plan_batches(self.layout, self.batch_size, state.step, stop, self.entropy)
            rows = np.full((BLOCK, plan.rows.shape[1]), self.data.num_sequences)
            rows[:limit] = np.where(plan.rows < 0, self.data.num_sequences, plan.rows)
            width = np.zeros(BLOCK, int)
            width[:limit] = plan.width
            blocks = stochastic_steps(
                self.model,
                state.blocks,
                self.prior,
                self.everything,
                rows,
                width,
                sizes,
                plan.scale,
                self.layout.widths,
            )
        return state._replace(blocks=blocks, step=stop)

    def _evaluate(self, state: FitState) -> FitState:
        """Bounds of all restarts where they stand, and whether they have settled."""
        if self.ascent:  # the block that is compiled already; what it moves is dropped
            everyone = np.ones_like(state.active)
            _, _, elbo, _, _ = ascent_block(
                self.model, state.blocks, self.prior, self.buckets, everyone, state.latest, 1, self.tol
            )
            elbo = np.asarray(elbo)
            active = state.active & np.isfinite(elbo) & ~self._settled(elbo, state)
        else:
            elbo, active = (
                np.asarray(bounds(self.model, state.blocks, self.prior, self.buckets)),
                state.active,
            )
            if (state.step - state.first_step) % self.evaluate_every == 0:  # fewer steps would move less
                active = ~self._settled(elbo, state)
        self._refuse_impossible(elbo, state.blocks)
        return state._replace(
            active=active,
            latest=elbo,
            evaluated=[*state.evaluated, state.step],
            traces=[*state.traces, elbo],
        )

    def _settled(self, elbo: np.ndarray, state: FitState) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # bounds of -inf have no difference
            return settled(elbo, state.latest, self.tol)

    def _refuse_impossible(self, elbo: np.ndarray, blocks: Any) -> None:
        if np.isfinite(elbo).any():
            return
        if np.isnan(elbo).any():
            raise ValueError(
                "the bound is NaN at every restart: look for infinite or huge values in the data and the prior"
            )
        batch = self._on_device(self.data._replace(metadata=PLAIN).trim())
        one = jax.tree.map(lambda x: x[0], blocks)
        found = self.order[impossible_sequences(self.model, one, batch)]
        where = f", sequence {found.min()} first of {len(found)}" if found.size else ""
        raise ValueError(
            f"the data are impossible under every start{where}: "
            "a forbidden transition or symbol, or a known state, contradicts them"
        )


@jax.jit
def _three_keys(key):
    return tuple(jax.random.split(key, 3))


def _first_and_last(init, num_steps: int) -> np.ndarray:
    first = init.step if isinstance(init, ConjugateResult) else 0
    return np.unique([first, first + num_steps - 1])


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {count!r}")
    if count < 1:
        raise ValueError(f"{name} must be at least 1, not {count}")
