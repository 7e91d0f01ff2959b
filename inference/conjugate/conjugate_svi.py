r"""Conjugate variational inference: coordinate ascent (CAVI) and stochastic natural gradients (SVI).

A model with conjugate blocks ``prior()`` and ``log_normalizer(expected, batch)``, the log normaliser of its local
part under expected log potentials, has the ELBO

.. math:: L(q) = b \sum_s \ln \tilde Z_s(E_q \ln \phi) - KL(q \,\|\, p).

The gradient of the first term is the expected statistics t. A step updates the natural parameters,
:math:`\eta \leftarrow \eta + \rho\,(\eta_0 + b\,t - \eta)`: with all data and :math:`\rho = 1` it is a CAVI
iteration, with mini-batches and a decreasing :math:`\rho` a step of SVI.

Hoffman, Blei, Wang, Paisley (2013), "Stochastic variational inference", eq. 26-28; Le, Yue, Carr, Lucey (2017),
supplement, Algorithm 5, with eq. 6 and 16-18 in natural parameters. The ELBO is evaluated right after the local step,
where this form of it is exact.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

from ethogram.inference import storage
from ethogram.inference.checkpoint import Checkpoint
from ethogram.inference.conjugate.ascent import Ascent, one_of
from ethogram.inference.conjugate.journal import Journal, Pages
from ethogram.inference.conjugate.mini_batches import group_order, in_group_order
from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult
from ethogram.inference.conjugate.problem import (
    Problem,
    arranged,
    make_problem,
    placed,
    problem_of_starts,
    sampled_problem,
    stripped,
)
from ethogram.inference.conjugate.search import Settled, edit_search, grow_search, restart_search
from ethogram.inference.conjugate.spread import check_mesh, spread
from ethogram.inference.conjugate.starts import continued_blocks, start_blocks
from ethogram.inference.conjugate.step_sizes import check_step_size, robbins_monro, step_size_at
from ethogram.inference.conjugate.steps import impossible_sequences, size_of
from ethogram.inference.conjugate.stochastic import plan_steps, stochastic_search
from ethogram.models.arguments import require_integer, require_key, require_number, require_one_of, warn_user
from ethogram.models.conjugate_model import ConjugateModel, check_data, require_informative
from ethogram.models.data.parts import in_parts, is_large
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.projection import may_not_fall, warn_of_rows
from ethogram.models.keys import folded_key, split_key
from ethogram.models.memory_bound import require_room

__all__ = ["ConjugateSVI", "check_settings", "chosen_search", "result_of", "warn_of_falls"]


class ConjugateSVI:
    """Conjugate variational inference of one model.

    Parameters
    ----------
    model : a :class:`~ethogram.models.conjugate_model.ConjugateModel`, whose hooks the engine calls.
    mesh : of one axis of devices, as ``jax.make_mesh((4,), ("data",))`` makes it, over which sequences are spread;
        None computes on the default device.

    Raises
    ------
    TypeError, ValueError
        If `model` does not inherit from ConjugateModel, or `mesh` is no mesh of one axis.

    Examples
    --------
    >>> import jax
    >>> from ethogram.models.emissions import GaussianEmission
    >>> from ethogram.models.roles import RoleHMM
    >>> model = RoleHMM(2, GaussianEmission(1, scale=1.0))
    >>> data = model.simulate(jax.random.key(0), num_groups=6, lengths=20).data
    >>> fit = ConjugateSVI(model).run(jax.random.key(1), data, 50, restarts=2, progress_bar=False)
    >>> fit.posterior.mean()["transition"].shape, bool(fit.elbo[-1] == fit.restart_elbos.max())
    ((2, 2), True)
    """

    def __init__(self, model: Any, mesh: Mesh | None = None):
        if not isinstance(model, ConjugateModel):
            raise TypeError(
                f"model is {type(model).__name__}, not a ConjugateModel: inherit from "
                "ethogram.ConjugateModel and define prior and log_normalizer"
            )
        check_mesh(mesh)
        self.model, self.mesh = model, mesh

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
        search: str = "auto",
        evaluate_every: int | None = None,
        progress_bar: bool = True,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_every: int = 50,
    ) -> ConjugateResult:
        """Fit the model from several starts and return the one with the highest ELBO on all data.

        Parameters
        ----------
        key : a typed key, as ``jax.random.key`` makes it.
        data : trajectories; groups stay whole in mini-batches.
        num_steps : maximum number of steps, after those of `init` where that is a result.
        batch_size : groups (whole demonstrations, all their agents) per step; None takes all data.
        step_size : rho in (0, 1], or a schedule step -> rho (any of optax, or `robbins_monro`). None: 1 with all
            data, which is coordinate ascent, else ``robbins_monro()``.
        restarts : number of starts; one after another on a CPU, side by side on an accelerator.
        init : ``"mixed"`` cycles through the model's ``start_kinds`` (of a RoleHMM ``"kmeans++"``, ``"sticky"`` and
            ``"segments"``); or one of them, or ``"prior"``, for all; or an earlier result, to continue from its
            posterior (one restart), which may have fewer intents.
        tol : a restart has converged once its ELBO changes between two evaluations (of coordinate ascent: two
            iterations) by at most `tol` times its size, or times the number of frames where that is larger, since
            units of features may bring an ELBO near zero. Coordinate ascent then stops updating it. 0 switches this
            off.
        search : ``"restarts"`` takes the best of the restarts. ``"edits"`` goes on from the best three: labels of their
            steps are edited, two states merged, one deleted or one split, and an edit is kept where it raises the ELBO;
            its iterations count as steps. ``"auto"``: edits where the number of states that are used is learned
            (`AgentMarkov`), whose restarts use two states at first and one more each time until the best fit leaves two
            unused; restarts otherwise.
        evaluate_every : steps between evaluations of the ELBO; None: every CAVI iteration, else once an epoch.
        checkpoint : file written every `checkpoint_every` steps and every minute, by signals and at the end. A run with
            the same arguments resumes from it and returns what an uninterrupted run returns; a larger `num_steps`
            extends it, a smaller one than its steps is an error. Where it cannot be written, a warning says so and the
            fit goes on.

        Raises
        ------
        ValueError, TypeError
            For invalid arguments or data, data without an observed step, a checkpoint of another model, data or
            settings, and data to which every restart assigns probability zero.
        """
        from tqdm.auto import tqdm

        require_key(key)
        require_integer("checkpoint_every", checkpoint_every, 1)
        check_settings(num_steps, restarts, tol, search, evaluate_every)
        check_step_size(step_size)
        check_data(self.model, data)
        frames = require_informative(self.model, data)
        key_start, key_plan, key_next = split_key(key, 3)
        earlier = init if isinstance(init, ConjugateResult) else None
        like = {} if earlier is None else {"like": earlier.posterior.model}
        first = 0 if earlier is None else earlier.step
        ascends = batch_size is None and (step_size is None or (not callable(step_size) and step_size == 1))
        if self.mesh is not None and not ascends:
            raise ValueError("mesh spreads all data over devices, by coordinate ascent: leave batch_size out")
        if step_size is None:
            step_size = 1.0 if ascends else robbins_monro()
        step_size_at(step_size, np.unique([first, first + num_steps - 1]))
        bound = self.model.bind(data, **like)
        # Large data are read as mini-batches are needed, and starts are those of some groups.
        if batch_size is not None and is_large(data):
            problem = sampled_problem(bound, data, key_start, frames)
        else:
            problem = make_problem(bound, data)
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(problem.prior))
        require_room("blocks of all restarts", (restarts, size), float, "give fewer restarts", copies=8)
        several = earlier is None and restarts > 1
        chosen = chosen_search(search, problem.model, ascends and tol > 0, several)
        steps = None if ascends else plan_steps(problem, data, key_plan, batch_size, step_size)
        every = evaluate_every or (1 if steps is None else steps.epoch)

        def signature() -> str:
            origin = init if earlier is None else earlier.posterior.blocks
            settings = [batch_size, ascends, restarts, every, float(tol), chosen]
            return storage.fingerprint(
                problem.model, jax.random.key_data(key), stripped(data), settings, origin
            )

        with Checkpoint(checkpoint) as store:
            journal = Journal(store, signature, checkpoint_every, num_steps)
            if earlier is not None:
                blocks, restarts = earlier.posterior.blocks, 1
                if bound.growth:
                    blocks = bound.growth.widened(earlier.posterior.model, blocks)
                blocks = continued_blocks(blocks, problem.prior)
            elif chosen != "grow":
                part = problem_of_starts(problem, data, key_start)
                fixed = part.model, part.prior, part.arranged, restarts, init, part.batches
                blocks = start_blocks(key_start, *fixed, scale=part.scale)
            if self.mesh is not None:  # starts are made on the host
                problem = problem._replace(batches=spread(problem.batches, self.mesh))
            check = functools.partial(_refuse_impossible, data)
            with tqdm(
                total=num_steps, initial=journal.pages.steps, disable=not progress_bar, desc="fit"
            ) as bar:
                if steps is not None:
                    best, elbos = stochastic_search(
                        problem,
                        blocks,
                        steps,
                        journal,
                        num_steps=num_steps,
                        first_step=first,
                        evaluate_every=every,
                        tol=tol,
                        bar=bar,
                        check=check,
                    )
                else:
                    ascend = Ascent(num_steps, first, float(tol), restarts, every, journal, bar, check)
                    if chosen == "grow":
                        best, elbos = grow_search(ascend, problem, folded_key(key_plan, 1), restarts, init)
                    elif chosen == "edits":
                        best, elbos = edit_search(ascend, problem, blocks, folded_key(key_plan, 1))
                    else:
                        best, elbos = restart_search(ascend, problem, blocks)
        return result_of(
            problem, best, elbos, journal.pages, journal.closed, first, key_next, ascends, chosen
        )


def check_settings(num_steps: Any, restarts: Any, tol: Any, search: Any, evaluate_every: Any) -> None:
    """Raise TypeError or ValueError for invalid settings of :meth:`ConjugateSVI.run`."""
    counts = {"num_steps": num_steps, "restarts": restarts}
    counts |= {} if evaluate_every is None else {"evaluate_every": evaluate_every}
    for name, count in counts.items():
        require_integer(name, count, 1)
    require_number("tol", tol, least=0)
    require_one_of("search", search, ("auto", "restarts", "edits"))


def chosen_search(search: str, model: ConjugateModel, converges: bool, several: bool) -> str:
    """The search of a fit: ``"restarts"``, ``"edits"`` or ``"grow"``."""
    if search == "edits" and not (converges and model.labelling):
        raise ValueError(
            'search="edits" needs coordinate ascent (all data, step_size None or 1, tol above 0) of a model that '
            'labels steps: AgentMarkov, or RoleHMM with exclusive=None; give search="restarts"'
        )
    if not converges or search == "restarts" or not (model.growth or search == "edits"):
        return "restarts"
    return "grow" if several and model.growth and model.growth.prior_of_first else "edits"


def _refuse_impossible(data: Trajectories, problem: Problem, blocks: Any, elbo: np.ndarray) -> None:
    """Raise ValueError where no restart has a finite ELBO."""
    if np.isfinite(elbo).any():
        return
    if np.isnan(elbo).any():
        raise ValueError(
            "the ELBO is NaN at every restart: look for infinite or huge values in the data and the prior"
        )
    found = np.zeros(0, int)
    for rows, part in in_parts(data):
        batch = arranged(problem.model, problem.prior, stripped(in_group_order(part)).trim())
        own = rows[group_order(part)[impossible_sequences(problem.model, one_of(blocks, 0), batch)]]
        found = np.append(found, own)
    where = f", sequence {found.min()} first of {len(found)}" if found.size else ""
    raise ValueError(
        f"every restart assigns probability zero to the data{where}: "
        "a forbidden transition or symbol, or a known state, contradicts them"
    )


def result_of(
    problem: Problem,
    best: Settled,
    elbos: np.ndarray,
    pages: Pages,
    cut_off: bool,
    first: int,
    key: Array,
    ascends: bool,
    chosen: str,
) -> ConjugateResult:
    """The result of a fit, with a warning where the ELBO of its best restart fell or its rows were inflated."""
    elbos = np.where(np.isnan(elbos), -np.inf, elbos)
    at = int(np.argmax(elbos))
    elbos[at] = best.elbo
    # In a search the traces are those of the best fit so far, and those of its restarts end earlier.
    last = elbos if chosen == "restarts" or not pages.traces else np.fmax(elbos, pages.traces[-1])
    traces = np.stack([*pages.traces, last], axis=1)
    trace = traces[at] if chosen == "restarts" else np.fmax.accumulate(np.fmax.reduce(traces))
    elbos[at] = trace[-1]  # in a search, where rounding may have put an earlier one above it
    if ascends and may_not_fall(best.blocks):
        warn_of_falls(trace, problem.frames)
    warn_of_rows(best.blocks)
    blocks = best.blocks
    if best.room:
        blocks = problem.model.growth.widened(problem.with_states(best.room).model, blocks)
    return ConjugateResult(
        posterior=ConjugatePosterior(problem.model, placed(blocks)),
        elbo=trace,
        restart_elbos=elbos.astype(float),
        converged=not (best.active or cut_off),
        step=first + pages.steps,
        key=key,
        evaluated=np.array([*pages.evaluated, first + pages.steps]),
        restart_traces=traces,
    )


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
