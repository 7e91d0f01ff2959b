"""One conjugate fit, by the algorithm of Hoffman, Blei, Wang, Paisley (2013), section 2, with checkpoints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, check_path, read_checkpoint, write_checkpoint
from ethogram.inference.conjugate.mini_batches import group_layout, group_order, in_group_order, plan_batches
from ethogram.inference.conjugate.move_rounds import (
    DONE,
    SWEEPS,
    MoveSearch,
    after_round,
    check_search,
    first_search,
    judge,
    propose,
)
from ethogram.inference.conjugate.moves import num_labels
from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch, padded_shape
from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult, check_blocks
from ethogram.inference.conjugate.projection import may_not_fall, warn_of_rows
from ethogram.inference.conjugate.side_by_side_moves import LONGEST, try_candidates
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
    stochastic_steps,
)
from ethogram.models.arguments import require_integer
from ethogram.models.conjugate_model import ConjugateModel, overrides
from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["FitState", "Run", "warn_of_falls"]

MAX_WASTE = 0.3
"""Share of padding from which the data are split into one more bucket, whose shape has to be compiled."""

SMALL_CELLS = 200_000
"""Padded steps below which the data stay in one bucket: compiling a second shape costs more than it saves."""

POLISH = 0.01
"""Share of `tol` to which the best restart goes on after its moves: the ELBOs of equal fits then agree to `tol`."""

MOVING = 3
"""Restarts that make moves by default, in order of their ELBOs."""

MAX_PROBES = 100
"""Step sizes recorded in a checkpoint at most, to recognise the schedule."""

PLAIN = Metadata()


class FitState(NamedTuple):
    """State of a fit between compiled calls; what a checkpoint holds."""

    blocks: Any  # q(theta) of every restart, on a leading axis
    step: int  # steps done, those of earlier runs included
    first_step: int  # steps done before this run (by the result it started from)
    active: Any  # (restart,) not converged
    latest: Any  # (restart,) latest ELBOs, in nats
    evaluated: list[int]  # steps at which `traces` were taken
    traces: list[np.ndarray]  # ELBOs (restart,) at each of them
    carried: Any = ()  # what local steps hand on, by batch, of every restart
    search: Any = None  # where the search by moves stands; None without moves


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
    ):
        self.order, data = group_order(data), in_group_order(data)
        self.model, self.data, self.batch_size, self.tol = model, data, batch_size, float(tol)
        check_step_size(step_size)
        whole = batch_size is None
        self.ascent = whole and (step_size is None or (not callable(step_size) and step_size == 1))
        self.step_size = step_size if step_size is not None else (1.0 if whole else robbins_monro())
        cells = data.num_sequences * int(np.max(data.lengths))
        self.costly = model.steps_are_costly(data)
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
        self.entropy = np.asarray(jax.random.key_data(key_plan)).ravel().tolist()
        self.key_moves = jax.random.fold_in(key_plan, 1)
        self.prior = model.prior()
        self.moves = self._takes_moves(moves)
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

    def _first_search(self, step: int, restarts: int) -> MoveSearch | None:
        if not self.moves:
            return None
        return first_search(step, restarts, num_labels(self.model, self.prior), self.model.moves_keep_number)

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
        size = self.model.joint_sequences(batch)
        num_steps = num_steps_of(batch)
        shape = (num_sequences, num_steps) if self.costly else padded_shape(num_sequences, num_steps, size)
        return pad_batch(batch, *shape)

    def signature(self, key: Array, restarts: int, init: Any, tol: float | int) -> str:
        """Digest of model, data, key and settings, by which a checkpoint knows its run."""
        settings = [self.batch_size, self.ascent, restarts, self.evaluate_every, tol]
        settings += [f"moves {self.moves}"] if self.moves else []
        origin = init.posterior.blocks if isinstance(init, ConjugateResult) else init
        data = self.data._replace(times=None, metadata=PLAIN)
        return storage.fingerprint(self.model, jax.random.key_data(key), data, settings, origin)

    def save(self, path: str | os.PathLike, signature: str, state: FitState) -> None:
        """Write the checkpoint of a state, with the step sizes at some of the steps done."""
        count = 0 if self.ascent else min(state.step - state.first_step, MAX_PROBES)
        steps = np.unique(np.linspace(state.first_step, state.step - 1, count).astype(int))
        write_checkpoint(
            path,
            signature,
            state._replace(evaluated=[], traces=[]),
            steps=steps,
            step_sizes=step_size_at(self.step_size, steps),
            traces=np.stack(state.traces) if state.traces else np.zeros((0, *np.shape(state.latest))),
            evaluated=np.array(state.evaluated, dtype=int),
        )

    def resume(self, path: str | os.PathLike, signature: str) -> FitState | None:
        """State in a checkpoint, None where there is none.

        A schedule is a function and cannot be compared: its step sizes at the steps done are.
        """
        check_path(path)
        content = read_checkpoint(path, signature, FitState, "steps", "step_sizes", "traces", "evaluated")
        if content is None:
            return None
        self._check_saved(os.fspath(path), content)
        steps, before = content["steps"], content["step_sizes"]
        now = step_size_at(self.step_size, steps)
        differs = np.flatnonzero(~np.isclose(now, before, rtol=1e-6, atol=0))
        if differs.size:
            at = differs[0]
            raise ValueError(
                f"{os.fspath(path)} is a checkpoint of a run whose step_size was {before[at]} at step {steps[at]}, "
                f"not {now[at]}: {CURE}"
            )
        return content["state"]._replace(
            evaluated=content["evaluated"].tolist(), traces=list(content["traces"])
        )

    def _check_saved(self, path: str, content: dict[str, Any]) -> None:
        """Raise ValueError, which names the file, where the numbers of a checkpoint are damaged."""
        state = content["state"]
        try:
            require_integer("state.step", state.step, 0)
            require_integer("state.first_step", state.first_step, 0, state.step)
            restarts = np.size(state.latest)
            counts = np.size(content["steps"]), np.size(content["evaluated"])
            for name, array, shape, kinds in (
                ("state.latest", state.latest, (restarts,), "f"),
                ("state.active", state.active, (restarts,), "b"),
                ("steps", content["steps"], counts[:1], "iu"),
                ("step_sizes", content["step_sizes"], counts[:1], "f"),
                ("evaluated", content["evaluated"], counts[1:], "iu"),
                ("traces", content["traces"], (counts[1], restarts), "f"),
            ):
                array = np.asarray(array)
                if array.shape != shape or array.dtype.kind not in kinds:
                    raise ValueError(
                        f"{name} is {array.dtype} of shape {array.shape}, expected shape {shape}"
                    )
            check_search(state.search, self._first_search(0, restarts))
            if np.isnan(content["step_sizes"]).any():
                raise ValueError("step_sizes has NaN, expected numbers")
            possible = np.asarray(state.latest) > -np.inf  # blocks of an impossible start may be anything
            if np.isnan(state.latest).any():
                raise ValueError("state.latest has NaN, expected ELBOs in nats")
            for at in np.flatnonzero(possible):
                one = jax.tree.map(lambda x, at=at: x[at], state.blocks)
                check_blocks(self.model, one, f"state.blocks, restart {at},")
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: {error}; {CURE}") from error

    def start(self, key: Array, restarts: int, init: Any) -> FitState:
        """State before the first step."""
        if isinstance(init, ConjugateResult):
            self.model.check_continues(init.posterior.model)
            blocks = self.model.widened(init.posterior.model, init.posterior.blocks)
            blocks, restarts, step = continued_blocks(blocks, self.prior), 1, init.step
        else:
            blocks, step = (
                start_blocks(key, self.model, self.prior, self.arranged, restarts, init, self.buckets),
                0,
            )
        nowhere = np.full(restarts, -np.inf, float_type(blocks))
        carried = [self.model.carried(batch) for batch in self.buckets]
        carried = jax.tree.map(lambda x: jnp.broadcast_to(x, (restarts, *x.shape)), carried)
        search = self._first_search(step, restarts)
        return FitState(blocks, step, step, np.ones(restarts, bool), nowhere, [], [], carried, search)

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
                    due = self._moves_are_due(state)
                    if due and before + (LONGEST if self.moves == "auto" else SWEEPS) <= stop:
                        state = self._merge(state) if self.moves == "auto" else self._move(state)
                    elif self.ascent and not state.active.any():
                        break
                    else:
                        waiting = state if due and waiting is None else waiting
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

    def _moves_are_due(self, state: FitState) -> bool:
        """Whether a round of moves is next: asked at steps that do not depend on where checkpoints are written."""
        search: MoveSearch | None = state.search
        if search is None:
            return False
        if self.moves == "auto":  # in order of their ELBOs, once they have settled
            next_one = _next_to_move(state)
            if next_one is None or state.active[next_one]:
                return False
        elif not search.is_due(state.active):
            return False
        return not state.active.any() or (state.step - search.since) % BLOCK == 0

    def _merge(self, state: FitState) -> FitState:
        """State after merges and deletions of one restart were tried."""
        moving = _next_to_move(state)
        assert moving is not None

        def sweep(blocks, active, latest, done, limit):
            return self._iterate(
                state._replace(blocks=blocks, step=state.step + done, latest=latest), active, limit
            )

        found = try_candidates(sweep, self.model, state.blocks, state.latest, moving)
        phase, active = state.search.phase.copy(), np.array(state.active)
        phase[moving] = phase[moving] if found.kept else DONE
        active[moving] = found.active if found.kept else moving == _best(state)
        state = self._with_trace(state, found.trace)
        search = state.search._replace(round=state.search.round + 1, since=state.step, phase=phase)
        return state._replace(blocks=found.blocks, active=active, latest=found.latest, search=search)

    def _move(self, state: FitState) -> FitState:
        """State after one round of moves."""
        search = state.search._replace(ready=state.search.ready_after(state.active))
        fixed = self.model, self.prior, self.buckets, self.key_moves
        search, moves = propose(*fixed, state.blocks, state.latest, search)
        if not moves.chosen.any():
            return state._replace(search=search)

        def sweep(blocks, active, latest, done):
            return self._iterate(
                state._replace(blocks=blocks, step=state.step + done, latest=latest), active, BLOCK
            )

        kept, blocks, active, latest, trace = judge(sweep, moves, state.blocks, state.active, state.latest)
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            gained = latest - state.latest > SWEEPS * self.tol * np.abs(latest)
        state = self._with_trace(state, trace)
        search = after_round(search, moves, kept, gained, state.step, self.model.moves_keep_number)
        return state._replace(blocks=blocks, active=active, latest=latest, search=search)

    def _with_trace(self, state: FitState, trace: np.ndarray) -> FitState:
        """State after the iterations before which the ELBOs were `trace` (iteration, restart)."""
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
        blocks, carried, active, latest, trace, done = self._iterate(state, state.active, limit)
        done = int(done)
        trace = np.asarray(trace)[:done]
        if not state.evaluated:
            self._refuse_impossible(trace[0], state.blocks)
        return self._with_trace(state, trace)._replace(
            blocks=blocks, carried=carried, active=np.asarray(active), latest=np.asarray(latest)
        )

    def _iterate(self, state: FitState, active: Any, limit: int) -> tuple[Any, ...]:
        carried = state.carried or [() for _ in self.buckets]
        fixed = self.model, state.blocks, self.prior, self.buckets, carried
        tol, latest = np.full(len(active), self.tol, state.latest.dtype), state.latest
        if self.moves == "auto" and state.search is not None:
            done = (state.search.phase == DONE) & (np.arange(len(tol)) == _best(state))
            tol[done] = max(self.tol * POLISH, min(self.tol, 4 * float(np.finfo(tol.dtype).eps)))
            if state.step == state.search.since:  # their next ELBO is the same, and no sign of convergence
                latest = np.where(done & active, -np.inf, latest).astype(tol.dtype)
        # Numbered from the first step of this run, which has nothing carried.
        return ascent_block(*fixed, active, latest, state.step - state.first_step, limit, tol)

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
            elbo = np.asarray(self._iterate(state, everyone, 1)[3])
            compared = (state.step - state.first_step) % self.model.settle_every == 0
            active = state.active & np.isfinite(elbo) & ~(self._settled(elbo, state) & compared)
        else:
            elbo = np.asarray(bounds(self.model, state.blocks, self.prior, self.buckets))
            active = state.active
            if (state.step - state.first_step) % self.evaluate_every == 0:  # a shorter interval moves less
                active = ~self._settled(elbo, state)
        self._refuse_impossible(elbo, state.blocks)
        evaluated, traces = [*state.evaluated, state.step], [*state.traces, elbo]
        return state._replace(active=active, latest=elbo, evaluated=evaluated, traces=traces)

    def _settled(self, elbo: np.ndarray, state: FitState) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            return settled(elbo, state.latest, self.tol)

    def _refuse_impossible(self, elbo: np.ndarray, blocks: Any) -> None:
        if np.isfinite(elbo).any():
            return
        if np.isnan(elbo).any():
            raise ValueError(
                "the ELBO is NaN at every restart: look for infinite or huge values in the data and the prior"
            )
        batch = self._arranged(self.data._replace(times=None, metadata=PLAIN).trim())
        one = jax.tree.map(lambda x: x[0], blocks)
        found = self.order[impossible_sequences(self.model, one, batch)]
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
        blocks = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[best]), state.blocks)
        if self.ascent and may_not_fall(blocks):
            warn_of_falls(traces[best])
        warn_of_rows(blocks)
        return ConjugateResult(
            posterior=ConjugatePosterior(self.model, blocks),
            elbo=traces[best],
            restart_elbos=final,
            converged=not bool(state.active[best]),
            step=state.step,
            key=key,
            evaluated=np.asarray(state.evaluated),
            restart_traces=traces,
        )


def warn_of_falls(trace: np.ndarray) -> None:
    """Warn where the ELBO of coordinate ascent fell by more than rounding explains."""
    allowed = 1e-5 if trace.dtype == np.float32 else 1e-9
    falls = -np.diff(trace) / np.maximum(np.maximum(np.abs(trace[1:]), np.abs(trace[:-1])), 1)
    if falls.size and falls.max() > allowed:
        warnings.warn(
            f"the ELBO decreased by {falls.max():.1e} (relative) at evaluation {int(falls.argmax()) + 1}, more than "
            "rounding explains: run in float64 (jax.enable_x64), or scale the features to unit spread",
            RuntimeWarning,
            stacklevel=4,
        )


def _next_to_move(state: FitState) -> int | None:
    """The restart of largest ELBO that may try moves; None where the best ones have."""
    order = np.argsort(-np.where(np.isfinite(state.latest), state.latest, -np.inf), kind="stable")[:MOVING]
    left = [int(at) for at in order if np.isfinite(state.latest[at]) and state.search.phase[at] < DONE]
    return left[0] if left else None


def _best(state: FitState) -> int:
    """The restart of largest ELBO."""
    return int(np.argmax(np.where(np.isnan(state.latest), -np.inf, state.latest)))
