"""One conjugate fit, by the algorithm of Hoffman, Blei, Wang, Paisley (2013), section 2, with checkpoints."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.conjugate.fit_state import FitState, resume_state, save_state
from ethogram.inference.conjugate.mini_batches import group_layout, group_order, in_group_order, plan_batches
from ethogram.inference.conjugate.move_rounds import SWEEPS, MoveSearch, first_search
from ethogram.inference.conjugate.moves import num_labels
from ethogram.inference.conjugate.nested_starts import FEWEST, HORIZON, ROOM, joined, nested_starts
from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch, padded_shape
from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult
from ethogram.inference.conjugate.projection import may_not_fall, warn_of_rows
from ethogram.inference.conjugate.search import best_restart, merge, move, moves_are_due, next_stage
from ethogram.inference.conjugate.side_by_side_moves import LONGEST
from ethogram.inference.conjugate.starts import continued_blocks, start_blocks
from ethogram.inference.conjugate.step_sizes import check_step_size, robbins_monro, step_size_at
from ethogram.inference.conjugate.steps import (
    BLOCK,
    ascent_block,
    bounds,
    float_type,
    full_steps,
    impossible_sequences,
    settled,
    size_of,
    stochastic_steps,
)
from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.conjugate_model import ConjugateModel, group_size, overrides
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import key_words

__all__ = ["Run", "warn_of_falls"]

MAX_WASTE = 0.3
"""Share of padding from which the data are split into one more bucket, whose shape has to be compiled."""

SMALL_CELLS = 200_000
"""Padded steps below which the data stay in one bucket: compiling a second shape costs more than it saves."""

POLISH = 0.01
"""Share of `tol` to which the best restart goes on after its moves: the ELBOs of equal fits then agree to `tol`."""

PLAIN = Metadata()


class Run:
    """One fit of a bound model; see `ConjugateSVI.run` for the arguments."""

    def __init__(
        self,
        model: ConjugateModel,
        data: Trajectories,
        key_plan: Array,
        batch_size: int | None,
        step_size: Any,
        evaluate_every: int | None,
        tol: float | int,
        moves: bool | str = False,
        init: Any = "mixed",
    ):
        self.order, data = group_order(data), in_group_order(data)
        self.model, self.data, self.batch_size, self.tol = model, data, batch_size, float(tol)
        check_step_size(step_size)
        whole = batch_size is None
        self.ascent = whole and (step_size is None or (not callable(step_size) and step_size == 1))
        self.step_size = step_size if step_size is not None else (1.0 if whole else robbins_monro())
        self.frames = float(model.informative_steps(data).sum())
        cells = data.num_sequences * int(np.max(data.lengths))
        self.costly = model.e_step.costly
        small = cells < SMALL_CELLS and not self.costly
        max_waste = 0.999 if small else MAX_WASTE
        self.layout = group_layout(data, max_waste)
        num_groups = len(self.layout.members)
        if batch_size is not None:
            require_integer("batch_size", batch_size, 1)
            if batch_size > num_groups:
                raise ValueError(
                    f"batch_size is {batch_size}, more than the {num_groups} groups of the data: None takes all"
                )
        epoch = 1 if batch_size is None else -(-num_groups // batch_size)
        self.evaluate_every = epoch if evaluate_every is None else evaluate_every
        self.entropy = key_words(key_plan)
        self.key_moves, self.key_starts = (jax.random.fold_in(key_plan, number) for number in (1, 2))
        self.prior = model.prior()
        self._narrow: dict[int, tuple[Any, Any]] = {}
        self.moves = self._takes_moves(moves)
        self.init = init
        self.nested = self._is_nested()
        stripped = data._replace(times=None, metadata=PLAIN)
        # Small data keep their shape: fits of data that are laid out alike share one compilation.
        buckets = [stripped.trim()] if small else stripped.buckets(max_waste, by="group")
        self.arranged = [self._arranged(bucket) for bucket in buckets]
        self.buckets = [self._padded(batch) for batch in self.arranged]
        self.everything = None
        if not whole:
            self.everything = self._padded(self._arranged(stripped.trim()), spare=1)
            if len(self.layout.widths) == 1:  # the padded length, whatever the length of the data
                self.layout = self.layout._replace(widths=(num_steps_of(self.everything),))

    def _takes_moves(self, moves: bool | str) -> bool | str:
        """Whether the fit searches by moves; ``"auto"``: where the number of states that are used is learned."""
        if moves == "auto":
            return "auto" if self.ascent and overrides(self.model, "relabelled") else False
        possible = self.ascent and bool(self.model.label_axes())
        if moves is True and not possible:
            raise ValueError(
                "moves=True needs coordinate ascent (all data, step_size None or 1) of a model with label_axes: "
                'AgentMarkov, or RoleHMM with exclusive=None; give moves="auto"'
            )
        return moves

    @functools.cached_property
    def num_labels(self) -> int:
        """How many states the model labels."""
        return num_labels(self.model, self.prior)

    def search_at_start(self, step: int, restarts: int, room: int = 0) -> MoveSearch | None:
        """The search of restarts that start at a step, in a model with that much room; None without moves."""
        if not self.moves:
            return None
        count, keeps = self.num_labels, self.model.moves_keep_number
        if not (self.nested and restarts > 1 and count >= FEWEST):
            return first_search(step, restarts, count, keeps)
        return first_search(step, restarts, min(room or ROOM, count), keeps)._replace(number=FEWEST)

    def model_of(self, search: MoveSearch | None) -> tuple[Any, Any]:
        """The model that the blocks of a search are of, and its prior: with room for few states in a nested one."""
        room = None if search is None else search.tried.shape[1]
        if room is None or room == self.num_labels:
            return self.model, self.prior
        if room not in self._narrow:
            model = self.model.narrowed(room)
            self._narrow[room] = model, model.prior()
        return self._narrow[room]

    def _is_nested(self) -> bool:
        """Whether restarts may use few states at first; what they hand on would be of other restarts."""
        return (
            self.moves == "auto"
            and self.tol > 0
            and not isinstance(self.init, ConjugateResult)
            and not overrides(self.model, "e_step")
            and self.model.prior_of_first(FEWEST) is not None
        )

    def _arranged(self, data):
        """Arranged data in the precision of the blocks."""
        dtype = float_type(self.prior)

        def put(x):  # NumPy casts, because JAX would compile a program for each shape
            x = np.asarray(x)
            return jax.device_put(x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x)

        return jax.tree.map(put, self.model.arrange(data))

    def _padded(self, batch, spare=0):
        """An arranged batch in its padded shape; `spare` empty sequences at least, for the empty slots."""
        num_sequences = len(jax.tree.leaves(batch)[0]) + spare
        size = group_size(batch)
        num_steps = num_steps_of(batch)
        shape = num_sequences, num_steps
        return pad_batch(batch, *(shape if self.costly else padded_shape(*shape, size)))

    def signature(self, key: Array, restarts: int, tol: float | int) -> str:
        """Digest of model, data, key and settings, by which a checkpoint knows its run."""
        settings = [self.batch_size, self.ascent, restarts, self.evaluate_every, tol]
        settings += [f"moves {self.moves}"] if self.moves else []
        origin = self.init.posterior.blocks if isinstance(self.init, ConjugateResult) else self.init
        data = self.data._replace(times=None, metadata=PLAIN)
        return storage.fingerprint(self.model, jax.random.key_data(key), data, settings, origin)

    def save(self, path: str | os.PathLike, signature: str, state: FitState) -> None:
        """Write the checkpoint of a state."""
        save_state(path, signature, state, None if self.ascent else self.step_size)

    def resume(self, path: str | os.PathLike, signature: str) -> FitState | None:
        """State in a checkpoint, None where there is none."""
        return resume_state(path, signature, self.model_of, self.step_size, self.search_at_start)

    def steps_needed(self, state: FitState) -> int:
        """The fewest steps of a fit that comes to a state: those done, and room for its rounds of moves."""
        return max(state.step - state.first_step, 0 if state.search is None else state.search.needs)

    def start(self, key: Array, restarts: int) -> FitState:
        """State before the first step."""
        step, search = 0, self.search_at_start(0, restarts)
        if isinstance(self.init, ConjugateResult):
            earlier = self.init.posterior
            self.model.check_continues(earlier.model)
            blocks = continued_blocks(self.model.widened(earlier.model, earlier.blocks), self.prior)
            restarts, step = 1, self.init.step
            search = self.search_at_start(step, restarts)
        elif search is not None and search.number:
            model, _ = self.model_of(search)
            # As many starts of one state as there are others: one of them is kept, and both share their programs.
            one, few = (self.nested_starts(model, restarts - 1, number) for number in (1, FEWEST))
            blocks = joined(jax.tree.map(lambda x: np.asarray(x)[:1], one), few)
        else:
            blocks = start_blocks(
                key, self.model, self.prior, self.arranged, restarts, self.init, self.buckets
            )
        nowhere = np.full(restarts, -np.inf, float_type(blocks))
        carried = [self.model.e_step.init(batch) for batch in self.buckets]
        carried = jax.tree.map(lambda x: jnp.broadcast_to(x, (restarts, *x.shape)), carried)
        return FitState(blocks, step, step, np.ones(restarts, bool), nowhere, [], [], carried, search)

    def nested_starts(self, model: Any, restarts: int, number: int) -> Any:
        """Initial q(theta) of restarts of a model, this one or one with less room, that use `number` states."""
        arguments = model, self.arranged, restarts, self.init, self.buckets, number
        return nested_starts(self.key_starts, *arguments)

    def advance(
        self,
        state: FitState,
        num_steps: int,
        progress_bar: bool,
        save: Callable[[FitState], None],
        save_every: int,
    ) -> FitState:
        """State after `num_steps` steps from its first step, or convergence, with a final evaluation."""
        from tqdm.auto import tqdm

        stop = state.first_step + num_steps
        saved = state.step
        done = state.step - state.first_step
        waiting = None  # a state from which a longer run makes a round of moves, where this one ends
        try:
            with tqdm(total=num_steps, initial=done, disable=not progress_bar, desc="fit") as bar:
                while state.step < stop:
                    before = state.step
                    due = moves_are_due(self, state)
                    end = before + (LONGEST if self.moves == "auto" else SWEEPS)
                    room = end <= stop
                    waiting = state if due and not room and waiting is None else waiting
                    if due and room:
                        state = merge(self, state) if self.moves == "auto" else move(self, state)
                        search = state.search._replace(needs=end - state.first_step)
                        state = state._replace(search=search)
                    elif self.ascent and not state.active.any():
                        later = next_stage(self, state) if waiting is None else None
                        if later is None:
                            break
                        state = later
                    else:
                        until = min(stop, (state.step // save_every + 1) * save_every)
                        state = self._ascend(state, until) if self.ascent else self._stochastic(state, until)
                    if waiting is None and state.step // save_every > saved // save_every:
                        save(state)
                        saved = state.step
                    bar.set_postfix_str(f"ELBO {np.max(state.traces[-1]):.1f}", refresh=False)
                    bar.update(state.step - before)
        except KeyboardInterrupt:
            save(state if waiting is None else waiting)
            raise
        # Saved before the last evaluation, which is off the schedule: a longer run continues from here.
        save(state if waiting is None else waiting)
        return self._evaluate(state)

    def with_trace(self, state: FitState, trace: np.ndarray) -> FitState:
        """State after the iterations before which the ELBOs were `trace` (iteration, restart)."""
        trace = _beside_the_best(state, trace)
        steps = range(state.step, state.step + len(trace))
        kept = [i for i, step in enumerate(steps) if (step - state.first_step) % self.evaluate_every == 0]
        return state._replace(
            step=state.step + len(trace),
            evaluated=state.evaluated + [steps[i] for i in kept],
            traces=state.traces + [trace[i] for i in kept],
        )

    def _ascend(self, state: FitState, until: int) -> FitState:
        limit = min(until - state.step, BLOCK)
        if state.search is not None:  # ends where moves may be due
            limit = min(limit, BLOCK - (state.step - state.search.since) % BLOCK)
        search: MoveSearch | None = state.search
        horizon = HORIZON if search is not None and search.number > 0 and not search.final else np.inf
        blocks, carried, active, latest, trace, done = self.iterate(state, state.active, limit, horizon)
        done = int(done)
        trace = np.asarray(trace)[:done]
        if not state.evaluated:
            self._refuse_impossible(trace[0], state)
        return self.with_trace(state, trace)._replace(
            blocks=blocks, carried=carried, active=np.asarray(active), latest=np.asarray(latest)
        )

    def iterate(self, state: FitState, active: Any, limit: int, horizon: float = np.inf) -> tuple[Any, ...]:
        carried = state.carried or [() for _ in self.buckets]
        model, prior = self.model_of(state.search)
        fixed = model, state.blocks, prior, self.buckets, carried
        tol, latest = self._compared(state)
        # Numbered from the first step of this run, which has nothing carried.
        return ascent_block(
            *fixed, active, latest, state.step - state.first_step, limit, tol, self.frames, horizon
        )

    def _compared(self, state: FitState) -> tuple[np.ndarray, np.ndarray]:
        """Tolerances (restart,), and the ELBOs (restart,) that the next ones are compared with."""
        latest = np.asarray(state.latest)
        tol = np.full(len(latest), self.tol, latest.dtype)
        if state.search is not None and state.search.final:
            best = np.arange(len(tol)) == best_restart(state)
            tol[best] = max(self.tol * POLISH, min(self.tol, 4 * float(np.finfo(tol.dtype).eps)))
            if state.step == state.search.since:  # the next ELBO is the same, and no sign of convergence
                latest = np.where(best & state.active, -np.inf, latest).astype(tol.dtype)
        return tol, latest

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
            batches = (self.everything, rows, width, sizes, plan.scale, self.layout.widths)
            blocks = stochastic_steps(self.model, state.blocks, self.prior, *batches)
        return state._replace(blocks=blocks, step=stop)

    def _evaluate(self, state: FitState) -> FitState:
        """ELBOs of all restarts, and whether they have converged."""
        if self.ascent:  # reuses the compiled block and drops its update
            everyone = np.ones_like(state.active)
            elbo = np.asarray(self.iterate(state, everyone, 1)[3])
            compared = (state.step - state.first_step) % self.model.e_step.period == 0
            active = state.active & np.isfinite(elbo) & ~(self._settled(elbo, state) & compared)
        else:
            elbo = np.asarray(bounds(self.model, state.blocks, self.prior, self.buckets))
            active = state.active
            if (state.step - state.first_step) % self.evaluate_every == 0:  # a shorter interval moves less
                active = ~self._settled(elbo, state)
        self._refuse_impossible(elbo, state)
        evaluated, traces = [*state.evaluated, state.step], [*state.traces, _beside_the_best(state, elbo)]
        return state._replace(active=active, latest=elbo, evaluated=evaluated, traces=traces)

    def _settled(self, elbo: np.ndarray, state: FitState) -> np.ndarray:
        tol, latest = self._compared(state)
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            return settled(elbo, latest, tol, self.frames)

    def _refuse_impossible(self, elbo: np.ndarray, state: FitState) -> None:
        if np.isfinite(elbo).any():
            return
        if np.isnan(elbo).any():
            raise ValueError(
                "the ELBO is NaN at every restart: look for infinite or huge values in the data and the prior"
            )
        batch = self._arranged(self.data._replace(times=None, metadata=PLAIN).trim())
        one = jax.tree.map(lambda x: x[0], state.blocks)
        found = self.order[impossible_sequences(self.model_of(state.search)[0], one, batch)]
        where = f", sequence {found.min()} first of {len(found)}" if found.size else ""
        raise ValueError(
            f"the data have probability zero under every initialisation{where}: "
            "a forbidden transition or symbol, or a known state, contradicts them"
        )

    def result(self, state: FitState, key: Array) -> ConjugateResult:
        """The best restart of a final state, with a warning where its ELBO fell or its rows were inflated."""
        final = np.asarray(state.latest, dtype=float)
        final = np.where(np.isnan(final), -np.inf, final)
        best = int(np.argmax(final))
        traces = np.stack(state.traces, axis=1)
        blocks = jax.tree.map(lambda x: np.asarray(x)[best], state.blocks)
        if self.ascent and may_not_fall(blocks):
            warn_of_falls(traces[best], self.frames)
        warn_of_rows(blocks)
        search: MoveSearch | None = state.search
        blocks = jax.device_put(self.model.widened(self.model_of(search)[0], blocks))
        cut_off = search is not None and self.moves == "auto" and not search.final
        return ConjugateResult(
            posterior=ConjugatePosterior(self.model, blocks),
            elbo=traces[best],
            restart_elbos=final,
            converged=not (cut_off or bool(state.active[best])),
            step=state.step,
            key=key,
            evaluated=np.asarray(state.evaluated),
            restart_traces=traces,
        )


def _beside_the_best(state: FitState, elbo: np.ndarray) -> np.ndarray:
    """ELBOs (..., restart), of nested restarts no lower than that of the best fit before, the first of them.

    Nor lower than it was: in a model with more room it loses what the smallest weights of the new states take from the
    rest, some 1e-6 nats.
    """
    if state.search is None or state.search.number <= FEWEST:
        return elbo
    return np.maximum(elbo, np.maximum(elbo[..., :1], state.traces[-1][0]))


def warn_of_falls(trace: np.ndarray, frames: float) -> None:
    """Warn where the ELBO of coordinate ascent fell by more than rounding explains."""
    allowed = 1e-5 if trace.dtype == np.float32 else 1e-9
    falls = -np.diff(trace) / size_of(np.maximum(np.abs(trace[1:]), np.abs(trace[:-1])), frames)
    if falls.size and falls.max() > allowed:
        warn_user(
            f"the ELBO decreased by {falls.max():.1e} (relative) at evaluation {int(falls.argmax()) + 1}, more than "
            "rounding explains: run in float64 (jax.enable_x64), or scale the features to unit spread",
            RuntimeWarning,
        )
