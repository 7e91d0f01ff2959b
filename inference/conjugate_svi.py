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

import functools
import os
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference import storage
from ethogram.inference.mini_batches import in_group_order, plan_batches
from ethogram.inference.posterior import Posterior
from ethogram.inference.starts import start_blocks
from ethogram.inference.step_sizes import robbins_monro, step_size_at
from ethogram.models import trajectories
from ethogram.models.exponential_family import expected_statistics, natural_step, total_kl
from ethogram.models.trajectories import Metadata, Trajectories

__all__ = ["ConjugateResult", "ConjugateSVI"]

BLOCK = 10
"""Steps in one compiled call: progress, checkpoints and interrupts come between calls."""

MAX_WASTE = 0.3
"""Share of padding at which the data are cut into one more bucket, whose shape has to be compiled."""

SMALL_CELLS = 200_000
"""Padded data of fewer steps stay in one bucket: compiling a second shape costs more than it saves."""

PLAIN = Metadata()


class ConjugateResult(NamedTuple):
    """What a conjugate fit gives back: the best restart, and how all of them went.

    Attributes
    ----------
    posterior : of the restart with the highest final bound.
    elbo : (evaluation,) its bound in nats, on all data, at the steps ``evaluated``; the last is the posterior's.
    restart_elbos : (restart,) final bounds; ``-inf`` where a start made the data impossible.
    converged : whether the best restart met `tol`.
    step : steps done, those of earlier runs included.
    key : to go on with.
    evaluated : (evaluation,) steps at which bounds were taken.
    restart_traces : (restart, evaluation) bounds of all restarts.
    """

    posterior: Posterior
    elbo: np.ndarray
    restart_elbos: np.ndarray
    converged: bool
    step: int
    key: Array
    evaluated: np.ndarray
    restart_traces: np.ndarray


class _State(NamedTuple):
    """Everything a run needs to go on: what a checkpoint holds."""

    blocks: Any  # leading axis: restart
    step: int
    first_step: int
    active: Array  # (restart,) not yet converged
    latest: Array  # (restart,) latest bound
    evaluated: list[int]
    traces: list[np.ndarray]


class ConjugateSVI:
    """The conjugate engine for one model.

    Parameters
    ----------
    model : an object with ``prior()`` and ``log_normalizer(expected, batch)``, and optionally ``check(data)``,
        ``arrange(data)`` (data as a pytree whose arrays lead with the sequence axis, then time), and
        ``start_statistics(key, kind, batches)`` (statistics of a rough first labelling).

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
        tol: float = 1e-6,
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
        init : ``"mixed"`` takes the kinds ``"kmeans++"``, ``"sticky"``, ``"segments"`` and ``"prior"`` in
            turn; or one of them for all; or an earlier result, to go on from its posterior (one restart).
        tol : relative change of the bound between evaluations below which a restart has converged; with all
            data and step 1 it then rests. 0 never stops.
        evaluate_every : steps between bounds; None: every step of coordinate ascent, else once an epoch.
        checkpoint : a file that is written every `checkpoint_every` steps and on interruption; a run with the
            same arguments finds it and goes on, to the result of an uninterrupted run.

        Raises
        ------
        ValueError, TypeError
            For arguments or data that do not fit, a checkpoint of another model, data or settings, and data
            that are impossible under every start.
        """
        self._check_arguments(key, num_steps, restarts, tol, evaluate_every, checkpoint_every)
        trajectories.check(data)
        if data.num_sequences == 0:
            raise ValueError("data holds no sequences")
        if hasattr(self.model, "check"):
            self.model.check(data)
        key_start, key_plan, key_next = jax.random.split(key, 3)
        run = _Run(self.model, in_group_order(data), batch_size, step_size, evaluate_every, tol, key_plan)
        signature = None
        state = None
        if checkpoint is not None:
            settings = [batch_size, repr(step_size), restarts, run.evaluate_every, tol]
            settings.append(init if isinstance(init, str) else "result")
            parts = [self.model, jax.random.key_data(key), run.data._replace(metadata=PLAIN), settings]
            signature = storage.fingerprint(*parts)
            state = _read_checkpoint(checkpoint, signature)
        if state is None:
            state = run.start(key_start, restarts, init)
        state = run.advance(
            state,
            num_steps,
            progress_bar,
            lambda state: _write_checkpoint(checkpoint, signature, state),
            checkpoint_every,
        )
        result = _result(self.model, state, key_next)
        if run.ascent:
            _warn_of_falls(result.elbo)
        return result

    @staticmethod
    def _check_arguments(key, num_steps, restarts, tol, evaluate_every, checkpoint_every):
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise TypeError(f"key must come from jax.random.key, not {type(key).__name__}")
        counts = {"num_steps": num_steps, "restarts": restarts, "checkpoint_every": checkpoint_every}
        counts |= {} if evaluate_every is None else {"evaluate_every": evaluate_every}
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
                raise ValueError(f"{name} must be an integer of at least 1, not {count!r}")
        if not tol >= 0:
            raise ValueError(f"tol must be at least 0, not {tol}")


class _Run:
    """One fit: data on the device, settings, and the loop over compiled blocks of steps."""

    def __init__(self, model, data, batch_size, step_size, evaluate_every, tol, key_plan):
        self.model, self.data, self.batch_size, self.tol = model, data, batch_size, tol
        self.arrange = getattr(model, "arrange", lambda data: data)
        self.num_groups = len(np.unique(data.group))
        self.ascent = batch_size is None and step_size is None
        self.step_size = step_size if step_size is not None else (1.0 if self.ascent else robbins_monro())
        if batch_size is not None and (
            isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer)
        ):
            raise TypeError(f"batch_size must be an integer or None, not {batch_size!r}")
        if not self.ascent and batch_size is None and not callable(step_size) and step_size == 1:
            self.ascent = True
        epoch = 1 if batch_size is None else -(-self.num_groups // batch_size)
        self.evaluate_every = evaluate_every if evaluate_every is not None else (1 if self.ascent else epoch)
        self.entropy = [int(word) for word in np.asarray(jax.random.key_data(key_plan)).ravel()]
        self.prior = model.prior()
        stripped = data._replace(metadata=PLAIN)
        cells = data.num_sequences * int(np.max(data.lengths))
        self.max_waste = 0.999 if cells < SMALL_CELLS else MAX_WASTE
        self.buckets = [self._on_device(bucket) for bucket in stripped.buckets(self.max_waste, by="group")]
        self.everything = None if batch_size is None else self._on_device(stripped.trim(), spare=True)

    def _on_device(self, data, spare=False):
        """The model's own arrangement; with `spare`, one empty sequence more, for empty slots of a batch."""
        batch = jax.tree.map(jnp.asarray, self.arrange(data))
        if not spare:
            return batch
        return jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), batch)

    def start(self, key, restarts, init) -> _State:
        if isinstance(init, ConjugateResult):
            if jax.tree.structure(init.posterior.blocks) != jax.tree.structure(self.prior):
                raise ValueError("init is a result of another model: its blocks are not those of this one")
            blocks, restarts, step = jax.tree.map(lambda x: x[None], init.posterior.blocks), 1, init.step
        else:
            blocks, step = start_blocks(key, self.model, self.prior, self.buckets, restarts, init), 0
        nowhere = jnp.full(restarts, -jnp.inf)
        return _State(blocks, step, step, jnp.ones(restarts, bool), nowhere, [], [])

    def advance(self, state, num_steps, progress_bar, save, save_every) -> _State:
        from tqdm.auto import tqdm

        stop = state.first_step + num_steps
        saved = state.step
        bar = tqdm(
            total=num_steps, initial=state.step - state.first_step, disable=not progress_bar, desc="fit"
        )
        with bar:
            try:
                while state.step < stop and (not self.ascent or bool(jnp.any(state.active))):
                    before = state.step
                    until = min(stop, (state.step // save_every + 1) * save_every)
                    state = self._ascend(state, until) if self.ascent else self._stochastic(state, until)
                    bar.update(state.step - before)
                    if state.traces:
                        bar.set_postfix_str(f"ELBO {np.max(state.traces[-1]):.1f}", refresh=False)
                    if state.step - saved >= save_every:
                        save(state)
                        saved = state.step
            except KeyboardInterrupt:
                save(state)
                raise
        state = self._evaluate(state)
        save(state)
        return state

    def _ascend(self, state: _State, until: int) -> _State:
        limit = min(until - state.step, BLOCK)
        blocks, active, latest, trace, done = _ascent_block(
            self.model, state.blocks, self.prior, self.buckets, state.active, state.latest, limit, self.tol
        )
        done = int(done)
        trace = np.asarray(trace)[:done]
        if state.step == 0 and done:
            _refuse_impossible(trace[0])
        steps = range(state.step, state.step + done)
        kept = [i for i, step in enumerate(steps) if (step - state.first_step) % self.evaluate_every == 0]
        return state._replace(
            blocks=blocks,
            step=state.step + done,
            active=active,
            latest=latest,
            evaluated=state.evaluated + [steps[i] for i in kept],
            traces=state.traces + [trace[i] for i in kept],
        )

    def _stochastic(self, state: _State, until: int) -> _State:
        since = (state.step - state.first_step) % self.evaluate_every
        if since == 0 and (not state.evaluated or state.evaluated[-1] != state.step):
            state = self._evaluate(state)
        limit = min(until - state.step, BLOCK, self.evaluate_every - since)
        steps = np.arange(state.step, state.step + limit)
        rho = np.zeros(BLOCK)
        rho[:limit] = step_size_at(self.step_size, steps)
        if self.batch_size is None:
            blocks = _full_steps(self.model, state.blocks, self.prior, self.buckets, rho)
        else:
            plan = plan_batches(
                self.data, self.batch_size, state.step, state.step + limit, self.entropy, MAX_WASTE
            )
            rows = np.full((BLOCK, plan.rows.shape[1]), self.data.num_sequences)
            rows[:limit] = np.where(plan.rows < 0, self.data.num_sequences, plan.rows)
            width = np.zeros(BLOCK, int)
            width[:limit] = plan.width
            blocks = _stochastic_steps(
                self.model,
                state.blocks,
                self.prior,
                self.everything,
                rows,
                width,
                rho,
                plan.scale,
                plan.widths,
            )
        return state._replace(blocks=blocks, step=state.step + limit)

    def _evaluate(self, state: _State) -> _State:
        if self.ascent:  # the block that is compiled already; what it moves is dropped
            everyone = jnp.ones_like(state.active)
            _, _, elbo, _, _ = _ascent_block(
                self.model, state.blocks, self.prior, self.buckets, everyone, state.latest, 1, self.tol
            )
        else:
            elbo = _bounds(self.model, state.blocks, self.prior, self.buckets)
        values = np.asarray(elbo)
        if not state.evaluated:
            _refuse_impossible(values)
        active = state.active & ~_settled(elbo, state.latest, self.tol)
        if state.evaluated and state.evaluated[-1] == state.step:
            return state._replace(active=active, latest=elbo, traces=[*state.traces[:-1], values])
        return state._replace(
            active=active,
            latest=elbo,
            evaluated=[*state.evaluated, state.step],
            traces=[*state.traces, values],
        )


def _local_bound(model, expected, batches):
    return functools.reduce(jnp.add, [model.log_normalizer(expected, batch) for batch in batches])


def _bound_and_statistics(model, blocks, prior, batches):
    expected = expected_statistics(blocks)
    local, statistics = jax.value_and_grad(lambda e: _local_bound(model, e, batches))(expected)
    return local - total_kl(blocks, prior), statistics


def _settled(elbo, latest, tol):
    return (jnp.abs(elbo - latest) <= tol * jnp.abs(elbo)) | ~jnp.isfinite(elbo)


@jax.jit
def _ascent_block(model, blocks, prior, batches, active, latest, limit, tol):
    """Up to BLOCK sweeps of all restarts; those that have converged rest at what was evaluated."""
    sweep = jax.vmap(lambda one: _bound_and_statistics(model, one, prior, batches))
    update = jax.vmap(lambda one, statistics: natural_step(one, prior, statistics, 1.0, 1.0))

    def go_on(carry):
        done, _, active, _, _ = carry
        return (done < limit) & jnp.any(active)

    def body(carry):
        done, blocks, active, latest, trace = carry
        elbo, statistics = sweep(blocks)
        active = active & ~_settled(elbo, latest, tol)
        moved = update(blocks, statistics)
        blocks = jax.tree.map(lambda new, old: jnp.where(_lead(active, new), new, old), moved, blocks)
        return done + 1, blocks, active, elbo, trace.at[done].set(elbo)

    trace = jnp.zeros((BLOCK, *latest.shape), latest.dtype)
    done, blocks, active, latest, trace = lax.while_loop(go_on, body, (0, blocks, active, latest, trace))
    return blocks, active, latest, trace, done


def _lead(mask, like):
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))


@jax.jit
def _full_steps(model, blocks, prior, batches, rho):
    """BLOCK natural-gradient steps on all data; a step of size zero stays."""

    def step(blocks, rho):
        def one(block):
            _, statistics = _bound_and_statistics(model, block, prior, batches)
            return natural_step(block, prior, statistics, 1.0, rho)

        return jax.vmap(one)(blocks), None

    return lax.scan(step, blocks, jnp.asarray(rho, _dtype(blocks)))[0]


@functools.partial(jax.jit, static_argnames="widths")
def _stochastic_steps(model, blocks, prior, everything, rows, width, rho, scale, widths):
    """BLOCK natural-gradient steps on mini-batches of whole groups; a step of size zero stays."""
    num_steps = max(x.shape[1] for x in jax.tree.leaves(everything) if x.ndim > 1)

    def at_width(size):
        def take(rows):
            def cut(x):
                x = x[rows]
                return x[:, :size] if x.ndim > 1 and x.shape[1] == num_steps else x

            batch = jax.tree.map(cut, everything)

            def one(block):
                expected = expected_statistics(block)
                return jax.grad(lambda e: model.log_normalizer(e, batch))(expected)

            return lambda blocks: jax.vmap(one)(blocks)

        return lambda rows, blocks: take(rows)(blocks)

    branches = [at_width(size) for size in widths]

    def step(blocks, now):
        rows, width, rho = now
        statistics = lax.switch(width, branches, rows, blocks)
        move = jax.vmap(lambda block, one: natural_step(block, prior, one, scale, rho))
        moved = move(blocks, statistics)
        return jax.tree.map(lambda new, old: jnp.where(rho > 0, new, old), moved, blocks), None

    rho = jnp.asarray(rho, _dtype(blocks))
    return lax.scan(step, blocks, (rows, width, rho))[0]


@jax.jit
def _bounds(model, blocks, prior, batches):
    """Bound of every restart on all data."""

    def bound(one):
        return _local_bound(model, expected_statistics(one), batches) - total_kl(one, prior)

    return jax.vmap(bound)(blocks)


def _dtype(blocks):
    return jnp.result_type(*(x for x in jax.tree.leaves(blocks) if jnp.issubdtype(x.dtype, jnp.floating)))


def _refuse_impossible(elbo: np.ndarray) -> None:
    if np.isnan(elbo).all():
        raise ValueError(
            "the bound is NaN at every start: look for infinite or huge values in the data and the prior"
        )
    if (elbo == -np.inf).all():
        raise ValueError(
            "the data are impossible under every start: a forbidden transition or a known state contradicts them"
        )


def _write_checkpoint(path, signature, state: _State) -> None:
    if path is not None:
        storage.write(path, {"signature": signature, "state": state._asdict()})


def _read_checkpoint(path, signature) -> _State | None:
    if not os.path.exists(path):
        return None
    content = storage.read(path)
    if not isinstance(content, dict) or "state" not in content:
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of a fit: choose another file")
    if content["signature"] != signature:
        raise ValueError(
            f"{os.fspath(path)} is a checkpoint of another model, data, key or settings: "
            "remove it, or choose another file"
        )
    return _State(**content["state"])


def _result(model, state: _State, key) -> ConjugateResult:
    final = np.asarray(state.latest, dtype=float)
    final = np.where(np.isnan(final), -np.inf, final)
    best = int(np.argmax(final))
    traces = np.stack(state.traces, axis=1)
    posterior = Posterior(model, jax.tree.map(lambda x: x[best], state.blocks))
    converged = not bool(state.active[best])
    evaluated = np.asarray(state.evaluated)
    return ConjugateResult(posterior, traces[best], final, converged, state.step, key, evaluated, traces)


def _warn_of_falls(trace: np.ndarray) -> None:
    """Coordinate ascent never falls, but for rounding."""
    allowed = 1e-5 if trace.dtype == np.float32 else 1e-9
    falls = -np.diff(trace) / np.abs(trace[1:])
    if falls.size and falls.max() > allowed:
        warnings.warn(
            f"the bound fell by {falls.max():.1e} of its size at evaluation {int(falls.argmax()) + 1}, more than "
            "rounding explains: run in float64 (jax.enable_x64), or scale the features to unit spread",
            RuntimeWarning,
            stacklevel=3,
        )
