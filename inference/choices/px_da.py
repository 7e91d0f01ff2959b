r"""PX-DA: parameter-expanded data augmentation for the multinomial probit, as a numpyro kernel.

A sweep draws the latent utilities given the values, then a scale and translations that change no choice, and the values
given both: Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", Algorithm 2 and eq.
16-20. `MOVES` of :mod:`ethogram.inference.choices.gibbs_sweep` has the expansions and the errata.

Where the choices hardly overlap, the scale of the values is poorly identified and a sweep changes it little: NUTS on
the marginal likelihood takes the same model.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.distributions import Distribution, biject_to
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ethogram.inference.choices.covariance_sweep import covariance_problem, first_latents, sweep_covariance
from ethogram.inference.choices.gibbs_sweep import (
    MOVES,
    ProbitProblem,
    padded_problem,
    probit_problem,
    subject_problems,
    sweep,
    with_prior,
)
from ethogram.inference.choices.weighted_sweep import sweep_lapses, sweep_student
from ethogram.models.arguments import is_concrete, require, require_key, require_one_of
from ethogram.models.choices.checks import namespace
from ethogram.models.choices.choice_problem import ChoiceProblem, padded_count
from ethogram.models.choices.covariance_noise import independent_covariance
from ethogram.models.choices.decisions import HostOrDevice
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.memory_bound import require_room

__all__ = ["PXDA", "PXDAState"]

WINNERS = ("gibbs", "rejection")


class PXDAState(NamedTuple):
    """State of the chains; chains are the first axis of what can be collected, where there are several.

    Attributes
    ----------
    i : number of sweeps.
    z : ``theta (parameter,)``, or ``(subject, parameter)``.
    z1 : the scale drawn in the last sweep, one per subject; one for moves without a scale.
    rng_key : typed key, or one per chain.
    latents : (option, decision, chain) latent utilities, the chosen option first; a leading subject axis, if any. They
        cannot be collected, since chains are on the last axis.
    problem : the decisions as a sweep reads them.
    """

    i: Int[Array, "*chain"]
    z: dict[str, Array]
    z1: Float[Array, "*chain_and_subject"]
    rng_key: Array
    latents: Array
    problem: Any

    def __getitem__(self, place: Any) -> Any:
        """The field at a place; a ValueError for a name, by which numpyro looks up `extra_fields` that do not exist."""
        if isinstance(place, str):
            raise ValueError(f"extra_fields has {place!r}: a state of PXDA has 'z1', 'i' and 'rng_key'")
        return tuple.__getitem__(self, place)


class PXDA(MCMCKernel):
    """Parameter-expanded data augmentation for :class:`~ethogram.models.choices.NoisyMDP`.

    Parameters
    ----------
    model : with a number or infinity for ``kappa``; where kappa has a prior, use the kernel as the block of ``theta``
        in numpyro's ``Gibbs``.
    moves : ``"local+scale"``, one translation per decision and a scale; ``"scale+translate"``, one translation for all;
        ``"scale"``; ``"da"`` for plain data augmentation. A covariance of alternatives has a sweep of its own.
    winner : how the utility of the chosen option is drawn: ``"gibbs"``, given the others; ``"rejection"``, exactly
        from its marginal, as always with lapses.

    Raises
    ------
    TypeError, ValueError
        If the model is not a NoisyMDP, has Gumbel noise, or lapses beside other noise than normal; or a name is
        unknown. `init` raises what the model's call does, and where a weight of a decision is not an integer, the key
        is no key, or subjects or a prior of kappa come with lapses or noise that is not normal.

    Warns
    -----
    UserWarning
        From `init`, where the choices are separated: along some direction only the prior bounds the values.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> from ethogram.models.choices import Decisions
    >>> data = Decisions.from_list([np.eye(3)] * 4, [0, 1, 0, 2])
    >>> mcmc = MCMC(PXDA(NoisyMDP(4.0)), num_warmup=10, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), data)
    >>> mcmc.get_samples()["v"].shape
    (50, 3)
    """

    sample_field = "z"

    def __init__(self, model: Any, moves: str = "local+scale", winner: str = "gibbs"):
        if not isinstance(model, NoisyMDP):
            raise TypeError(f"model is {type(model).__name__}: PXDA samples a NoisyMDP")
        if reason := model.choice_noise().no_augmentation:
            others = "NUTS" if model.noise == "covariance" else "NUTS, or Laplace"
            raise ValueError(
                f"PXDA does not sample {model.choice_noise().in_words()}: {reason}; use {others}"
            )
        if skewed := [name for name, law in model.random or () if law != "normal"]:
            raise ValueError(
                f"random[{skewed[0]!r}] is log-normal, and PXDA samples normal coefficients: use NUTS"
            )
        require_one_of("moves", moves, MOVES)
        require_one_of("winner", winner, WINNERS)
        if moves == "scale+translate" and (model.noise != "normal" or model.lapse is not None):
            raise ValueError(f"moves is {moves!r}, for normal noise without lapses alone: use 'local+scale'")
        if model.noise == "covariance" and (moves, winner) != ("local+scale", "gibbs"):
            raise ValueError(
                f"moves is {moves!r} and winner {winner!r}: the sweep of a covariance of alternatives has neither"
            )
        self.model: Any = model
        self.move, self.winner = MOVES[moves], winner
        self._values = model  # a wrapped model has lost its attributes
        self._sample_fn: Any = None
        self._data: list[np.ndarray] = []

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The draws only; ``z1`` is available as an extra field."""
        return ("z",)

    def get_diagnostics_str(self, state: PXDAState) -> str:
        """The last scale."""
        return f"scale {np.mean(state.z1):.2g}"

    def init(
        self,
        rng_key: Any,
        num_warmup: int,
        init_params: Any = None,
        model_args: tuple = (),
        model_kwargs: dict[str, Any] | None = None,
    ) -> PXDAState:
        """State at theta = 0, or ``init_params["theta"]``, with the chosen utilities at 1 and all others at -1."""
        model_kwargs = model_kwargs or {}
        data = _data_of(model_args, model_kwargs)
        if not is_concrete(*jax.tree.leaves(data)):
            raise TypeError("data are traced: PXDA sorts decisions before jit; pass concrete arrays")
        checked = self._values.check(data)
        if (
            self._values.random is not None
            or self._values.correlated
            or self._values.subject_features is not None
        ):
            raise ValueError(
                "the kernel PXDA samples independent values of subjects; for random, correlated and subject_features "
                'use ethogram.fit(key, model, data, "px-da")'
            )
        state = self.first_state(rng_key, checked, init_params)
        others = {name: value for name, value in model_kwargs.items() if name != "data"}
        state = self.refresh(state, (checked, *model_args[1:]), others)
        factor = getattr(state.problem, "factor", 0.0)
        if is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
            raise ValueError(
                "the posterior precision of theta is numerically singular: features are nearly collinear, or of very "
                "different scales; rescale them, or use double precision"
            )
        return jax.device_put(state)

    def first_state(self, rng_key: Any, checked: ChoiceProblem, init_params: Any = None) -> PXDAState:
        """The state that `init` gives, still without a prior of theta."""
        data = checked.data
        self._data = jax.tree.leaves(data)
        problem = self._problem(checked)
        self._values.warn_of_separation(checked)
        self._values.warn_of_prior(checked)
        single = is_prng_key(rng_key)
        if not single and not (np.ndim(rng_key) and is_prng_key(rng_key[0])):
            require_key(rng_key, "rng_key")
        num_chains = 1 if single else rng_key.shape[0]
        chains = () if single else (num_chains,)
        dtype = problem.design.dtype
        own: dict[str, Any] = {}
        if isinstance(self._values.lapse, Distribution):
            own["lapse"] = np.full(chains, 0.05, dtype)
        if isinstance(self._values.nu, Distribution):
            own["nu"] = np.full(chains, biject_to(self._values.nu.support)(0.0), dtype)
        if self._values.noise == "covariance":
            first = independent_covariance(len(problem.design)).astype(dtype) / 2  # of trace p
            own["noise_covariance"] = np.broadcast_to(first, (*chains, *first.shape))
        subjects = () if data.subject is None else (data.num_subjects,)
        theta: Any = np.zeros((*chains, *subjects, sum(self._values.sizes(data))), dtype)
        if init_params is not None:
            if isinstance(init_params, dict) and "theta" not in init_params:
                names = ", ".join(map(str, init_params)) or "nothing"
                raise ValueError(f"init_params has {names}, not theta: pass theta, or None")
            given = init_params["theta"] if isinstance(init_params, dict) else init_params
            if jnp.shape(given) != theta.shape:
                raise ValueError(f"init_params theta has shape {jnp.shape(given)}, not {theta.shape}")
            if is_concrete(given) and not np.isfinite(np.asarray(given)).all():
                raise ValueError("init_params theta must be finite")
            theta = jnp.asarray(given, dtype)
        first = np.where(np.arange(problem.legal.shape[-3]) == 0, 1.0, -1.0).astype(dtype)
        latents: Any = np.where(problem.legal, first[:, None, None], 0)
        latents = np.broadcast_to(latents, (*latents.shape[:-1], num_chains))
        if self._values.noise == "covariance":
            latents = first_latents(problem, num_chains)
        ones = np.ones((*chains, *subjects), dtype)
        started: Any = (
            np.zeros(chains, np.int32),
            {"theta": theta, **own},
            ones,
            rng_key,
            latents,
            problem,
        )
        self._sample_fn = self._one_sweep
        return PXDAState(*started)

    def _problem(self, checked: ChoiceProblem) -> Any:
        """The decisions as a sweep reads them, each repeated by its weight."""
        data, rows = checked.data, np.arange(checked.data.num_decisions)
        if data.weight is not None:
            fix = ": PXDA repeats decisions, and takes integer weights only; use NUTS for others"
            require(np.asarray(data.weight, float) % 1 == 0, "weight", data.weight, fix)
            total, each = np.sum(data.weight, dtype=float), np.shape(checked.design)[1:]
            require_room(
                "decisions, by their weight,", (int(total), *each), float, "give smaller weights, or use NUTS"
            )
            rows = np.repeat(rows, np.asarray(data.weight).astype(int))
        design, legal, choice = (np.asarray(part)[rows] for part in (checked.design, data.legal, data.choice))
        several = data.subject is not None or isinstance(self._values.kappa, Distribution)
        if several and (self._values.noise != "normal" or self._values.lapse is not None):
            raise ValueError(
                f"data have subjects, or kappa has a prior: PXDA samples {self._values.choice_noise().in_words()} "
                "beside values of one agent and a number for kappa; use NUTS"
            )
        if self._values.noise == "covariance":
            return covariance_problem(design, legal, choice, self._values.nu)
        if data.subject is None:
            problem = probit_problem(design, legal, choice, self.move)
            return padded_problem(problem, padded_count(problem.legal.shape[1]))
        who = np.asarray(data.subject)[rows]
        return subject_problems(design, legal, choice, who, data.num_subjects or 0, self.move)

    def refresh(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """The state under the current prior of the model, whose hyperparameters other blocks may have updated."""
        return self.with_moments(state, *self._prior(state, model_args, model_kwargs or {}))

    def with_moments(self, state: PXDAState, mean: HostOrDevice, variance: HostOrDevice) -> PXDAState:
        """The state under a prior of theta with this mean and variance, of the shape of theta without chains."""
        problem, move = state.problem, self.move
        xp = namespace(mean, variance, problem.legal)
        precision = xp.where(xp.isinf(variance), 0, 1 / variance)
        if self._values.noise == "covariance":
            return state._replace(problem=problem._replace(precision=precision))
        if move.translations == "one":
            # A subject without decisions has no level to translate: any proper prior will do.
            own = (xp.sum(problem.counts, axis=(-2, -1))[..., None] == 0).astype(variance.dtype)
            mean = xp.concatenate([mean, xp.zeros_like(own)], axis=-1)
            precision = xp.concatenate([precision, own], axis=-1)
        return state._replace(problem=with_prior(problem, precision, mean))

    def _prior(
        self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any]
    ) -> tuple[HostOrDevice, HostOrDevice]:
        """Prior mean and variance of theta, without chains, by a trace of the conditioned model."""
        dtype, problem = state.latents.dtype, state.problem
        lead = () if self._values.noise == "covariance" else problem.squares.shape[:-1]
        shape = (*lead, state.z["theta"].shape[-1])
        held = substitute(self.model, data={"theta": np.zeros(shape, dtype)})
        with block():
            sites = trace(seed(held, jax.random.key(0))).get_trace(*model_args, **model_kwargs)
        for name in ("kappa", "loc"):
            if name in sites and sites[name]["type"] == "sample" and not sites[name]["is_observed"]:
                others = '["kappa", "loc"]' if "loc" in sites else '["kappa"]'
                raise ValueError(
                    f"{name} has a prior, and PXDA samples theta only: use "
                    f'Gibbs([(PXDA(model), ["theta"]), (NUTS(model), {others})]), with the sites that have a prior'
                )
        if self._values.flat:
            return np.zeros(shape, dtype), np.full(shape, np.inf, dtype)
        prior = sites["theta"]["fn"]
        xp = np if is_concrete(prior.mean, prior.variance) else jnp
        mean, variance = (xp.broadcast_to(xp.asarray(x, dtype), shape) for x in (prior.mean, prior.variance))
        return mean, variance

    def sample(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """One sweep of all chains.

        Raises
        ------
        ValueError
            If the decisions are not those that the state was initialised with.
        """
        leaves = jax.tree.leaves(_data_of(model_args, model_kwargs or {}))
        same = map(np.array_equal, leaves, self._data) if is_concrete(*leaves) and self._data else ()
        if not all(same):
            raise ValueError("the state belongs to other decisions: run without post_warmup_state")
        return self._one_sweep(state)

    def _one_sweep(self, state: PXDAState) -> PXDAState:
        single = is_prng_key(state.rng_key)
        key_sweep, key_next = jax.random.split(state.rng_key if single else state.rng_key[0])
        theta = state.z["theta"]
        theta = theta[..., None] if single else jnp.moveaxis(theta, 0, -1)
        rest = {name: x[None] if single else x for name, x in state.z.items() if name != "theta"}
        if self._values.noise == "covariance":
            theta, rest["noise_covariance"], latents, scale = sweep_covariance(
                key_sweep, state.problem, theta, rest["noise_covariance"], state.latents
            )
        elif self._values.lapse is not None:
            start, prior = state.problem, self._values.lapse if rest else None
            lapse = rest["lapse"] if rest else jnp.full(theta.shape[-1], self._values.lapse, theta.dtype)
            found = sweep_lapses(key_sweep, start, theta, state.latents, self.move, lapse, prior)
            theta, latents, scale = found[:3]
            rest = {name: found[3] for name in rest}
        elif self._values.noise == "student":
            nu, prior = (rest["nu"], self._values.nu) if rest else (self._values.nu, None)
            moved = state.problem, theta, state.latents, self.move, self.winner
            *drawn, nu = sweep_student(key_sweep, *moved, nu, prior)
            theta, latents, scale = drawn
            rest = {name: nu for name in rest}
        else:
            theta, latents, scale = self._sweep(key_sweep, state.problem, theta, state.latents)

        def out(x: Array) -> Array:
            return x[..., 0] if single else jnp.moveaxis(x, -1, 0)

        return state._replace(
            i=state.i + 1,
            z={"theta": out(theta), **{name: x[0] if single else x for name, x in rest.items()}},
            z1=out(scale),
            rng_key=key_next if single else jax.random.split(key_next, state.rng_key.shape[0]),
            latents=latents,
        )

    def _sweep(
        self, key: Array, problem: ProbitProblem, theta: Array, latents: Array
    ) -> tuple[Array, Array, Array]:
        return sweep(key, problem, theta, latents, self.move, self.winner)

    def wrap_model(self, wrapper: Any) -> PXDA:
        """A copy of the kernel with a wrapped model."""
        kernel = copy.copy(self)
        kernel.model = wrapper(self.model)
        kernel._sample_fn = None
        return kernel

    def get_constrain_fn(self, model_args: tuple, model_kwargs: dict[str, Any] | None) -> Any:
        """The identity: theta is unconstrained."""
        return lambda z: z

    def postprocess_fn(self, model_args: tuple, model_kwargs: dict[str, Any] | None) -> Any:
        """Adds the deterministic sites of the model."""
        data = _data_of(model_args, model_kwargs or {})
        return lambda z: {**z, **self._values.parts(z["theta"], data)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}


def _data_of(model_args: tuple, model_kwargs: dict[str, Any]) -> Any:
    if model_args:
        return model_args[0]
    if "data" in model_kwargs:
        return model_kwargs["data"]
    raise TypeError("data are missing: pass Decisions to MCMC.run")
