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

from ethogram.inference.checkpoint import refuse_longer
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.conjugate.run import Run
from ethogram.inference.conjugate.step_sizes import step_size_at
from ethogram.models.arguments import require_integer, require_key, require_number
from ethogram.models.conjugate_model import ConjugateModel, require_informative
from ethogram.models.data.trajectories import Trajectories

__all__ = ["ConjugateSVI"]


class ConjugateSVI:
    """Conjugate variational inference of one model.

    Parameters
    ----------
    model : a :class:`~ethogram.models.conjugate_model.ConjugateModel`, whose hooks the engine calls.

    Raises
    ------
    TypeError
        If `model` does not inherit from ConjugateModel.

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

    def __init__(self, model: Any):
        if not isinstance(model, ConjugateModel):
            raise TypeError(
                f"model is {type(model).__name__}, not a ConjugateModel: inherit from "
                "ethogram.ConjugateModel and define prior and log_normalizer"
            )
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
        moves: bool | str = "auto",
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
        moves : whether coordinate ascent tries merges, deletions and splits of states once a restart has settled; a
            move is kept where it raises the ELBO, and its iterations count as steps. ``"auto"``, where the number of
            states that are used is learned (`AgentMarkov`): merges and deletions, of the three best restarts, which run
            in the compiled program of the restarts, in their place. Restarts use two states at first; while the best
            fit leaves fewer than two unused, others follow with one state more, and the best fit is one of them. At the
            end it converges to a hundredth of `tol`. True: all restarts try all moves, which takes several times as
            long; those of a `RoleHMM`, which by default makes none, keep the number of roles.
        evaluate_every : steps between evaluations of the ELBO; None: every CAVI iteration, else once an epoch.
        checkpoint : file written every `checkpoint_every` steps, on interruption and at the end. A run with the same
            arguments resumes from it and returns what an uninterrupted run returns; a larger `num_steps` extends it,
            a smaller one than its steps, or than its moves had room for, is an error. Where it cannot be written, a
            warning says so and the fit goes on.

        Raises
        ------
        ValueError, TypeError
            For invalid arguments or data, data without an observed step, a checkpoint of another model, data or
            settings, and data of probability zero under every initialisation.
        """
        require_key(key)
        counts = {"num_steps": num_steps, "restarts": restarts, "checkpoint_every": checkpoint_every}
        counts |= {} if evaluate_every is None else {"evaluate_every": evaluate_every}
        for name, count in counts.items():
            require_integer(name, count, 1)
        require_number("tol", tol, least=0)
        if not isinstance(moves, bool) and moves != "auto":
            raise ValueError(f'moves must be True, False or "auto", not {moves!r}')
        self.model.check(data)
        require_informative(self.model, data)
        key_start, key_plan, key_next = jax.random.split(key, 3)
        continues = isinstance(init, ConjugateResult)
        model = self.model.with_prior_of(init.posterior.model) if continues else self.model
        run = Run(model.bind(data), data, key_plan, batch_size, step_size, evaluate_every, tol, moves, init)
        first = init.step if continues else 0
        step_size_at(run.step_size, np.unique([first, first + num_steps - 1]))
        state, save = None, lambda state: None
        if checkpoint is not None:
            signature = run.signature(key, restarts, tol)
            state = run.resume(checkpoint, signature)
            if state is not None:
                refuse_longer(run.steps_needed(state), num_steps)
            save = functools.partial(run.save, checkpoint, signature)
        if state is None:
            state = run.start(key_start, restarts)
        state = run.advance(state, num_steps, progress_bar, save, checkpoint_every)
        return run.result(state, key_next)
