"""One way in: any model of the package, fitted by any of its algorithms."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
from jax import Array

from ethogram.fits.as_code import call_as_code
from ethogram.fits.fit_object import Fit
from ethogram.fits.methods import read_settings
from ethogram.fits.systems import system_of
from ethogram.inference.state_order import in_order
from ethogram.models.arguments import require_key, require_one_of
from ethogram.models.keys import split_key

__all__ = ["fit"]


def fit(key: Array, model: Any, data: Any = None, method: str = "auto", **settings: Any) -> Fit:
    """Fit a model to data, and return a :class:`Fit` that can be looked at, compared and saved.

    Methods by model, that of ``"auto"`` first:

    - `RoleHMM`, `AgentMarkov` and other `ConjugateModel`, of `Trajectories`: ``"cavi"`` up to 2000 groups, else
      ``"svi"``; ``"nuts"``; and ``"refresh"``, which is NUTS that starts at ``"cavi"``; a `RoleHMM` also by
      ``"imitate"``, with policies of its roles;
    - `NoisyMDP`, of `Decisions`: ``"laplace"`` where the Pareto k of its draws' weights is below .5 and the ESS at
      least a tenth of the draws; else ``"px-da"`` for subjects in normal noise, a covariance of over four
      alternatives or a prior of nu, where its draws are enough for a summary; else ``"nuts"``, and ``method_reason``
      says why;
    - `LatentClasses`, of `Decisions` with subjects: ``"laplace"`` or ``"nuts"``, by the same rule;
    - `GPIRL`, of `Trajectories` or counts (state, action): ``"natural_gradient"``, ``"laplace"``, ``"map"``,
      ``"levine"``, ``"nuts"``, and ``"max_entropy"``, the linear baseline on the same features;
    - `SwitchingGPIRL`, of `Trajectories`: ``"natural_gradient"``, ``"nuts"``;
    - `MarginalMAP`, without data: ``"hybrid"``, ``"ags"``, ``"exact"`` and the others of `solve_mmap`.

    States whose numbers mean nothing are ordered, whatever the start: roles by the mean of their first feature (a von
    Mises: its direction), or by how often they occur, most frequent first, where the emission has no mean; intents by
    how often they occur, in chains by their weights; classes of choosers by their shares. States keep their numbers
    where these mean something: under priors that differ by state, known values and roles, constraints, and weights that
    are no sticks; also in a `GPIRL`, and of ``"imitate"``, whose policies are numbered too.

    The same key gives the same fit. `ConjugateSVI`, `fit_reward` and the other algorithms can also be called directly,
    and leave the states as they are.

    Parameters
    ----------
    key : typed PRNG key.
    model : a model object, or a query.
    data : to fit it to; none for a query.
    method : see above.
    settings : of the method, under its own names: `num_steps`, `restarts`, `checkpoint`, ... of ``"cavi"`` and
        ``"svi"``, `num_warmup`, `num_samples`, `num_chains` and those of the kernel of ``"nuts"`` and ``"px-da"``,
        `num_steps` and `restarts` of the fit before ``"refresh"``, `time_limit` of a query; `policy`, `world`,
        `rounds`, `horizon` and `expert` of ``"imitate"``; and `progress_bar` of all of them.

    Examples
    --------
    >>> import jax
    >>> import ethogram
    >>> model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    >>> data = model.simulate(jax.random.key(0), num_groups=6, lengths=20).data
    >>> found = fit(jax.random.key(1), model, data, progress_bar=False)
    >>> found.method, found.states().probability.shape
    ('cavi', (6, 20, 2))
    """
    require_key(key)
    system = system_of(model)
    if system.takes_data != (data is not None):
        what = "data is None" if system.takes_data else "a query has its evidence and takes no data"
        raise TypeError(f"{what}: call fit(key, query) or fit(key, model, data)")
    methods = system.methods(model, data)
    require_one_of("method", method, ("auto", *methods.by_name))
    key_fit, key_draws = split_key(key)
    begin = time.perf_counter()
    if method == "auto" and methods.choose is not None:
        name, reason, result = methods.choose(key_fit, model, data, settings)
    else:
        name, reason = (methods.usual, methods.reason) if method == "auto" else (method, "")
        read_settings(name, settings, methods.by_name[name].settings)
        result = methods.by_name[name].run(key_fit, model, data, settings)
    result = jax.block_until_ready(result)
    result = in_order(result, data)
    seconds = time.perf_counter() - begin
    code = functools.partial(call_as_code, key, model, data, name, settings)
    if name == "imitate":
        data = result.data  # which the role model has observed
    return Fit(model, data, name, reason, result, seconds, key_draws, code=code)
