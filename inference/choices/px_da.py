r"""PX-DA: parameter-expanded data augmentation for the multinomial probit, as a numpyro kernel.

A sweep draws the latent utilities given the values, then a scale and translations that change no choice, and the values
given both: Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", Algorithm 2 and eq.
16-20. `MOVES` of :mod:`ethogram.inference.choices.gibbs_sweep` has the expansions and the errata.

Where the choices hardly overlap, the scale of the values is poorly identified and a sweep changes it little:
`collapse_scale` adds a move of that scale, and NUTS on the marginal likelihood takes the same model.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ethogram.inference.choices.collapsed_scale import move_scale
from ethogram.inference.choices.gibbs_sweep import (
    MOVES,
    ProbitProblem,
    probit_problem,
    subject_problems,
    sweep,
    with_prior,
)
from ethogram.models.arguments import is_concrete, require, require_integer, require_key, require_one_of
from ethogram.models.choices.checks import digest, namespace
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions, HostOrDevice
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["PXDA", "PXDAState"]

WINNERS = ("gibbs", "mh", "rejection", "paper")


class Carried(NamedTuple):
    """Internal state of a sweep; it cannot be collected, since chains are on the last axis.

    Attributes
    ----------
    latents : (option, decision, chain) latent utilities, the chosen option first; a leading subject axis, if any.
    problem : the decisions as a sweep reads them.
    """

    latents: Array
    problem: ProbitProblem


class PXDAState(NamedTuple):
    """State of the chains; chains are the first axis of what can be collected, where there are several.

    Attributes
    ----------
    i : number of sweeps.
    z : ``theta (parameter,)``, or ``(subject, parameter)``.
    z1 : the scale drawn in the last sweep, one per subject; one for moves without a scale.
    accept_prob : share of accepted proposals in the last sweep, of the winner's utility or of the collapsed scale move;
        one without proposals.
    rng_key : typed key, or one per chain.
    carried : internal state of the sweep.
    """

    i: Int[Array, "*chain"]
    z: dict[str, Array]
    z1: Float[Array, "*chain_and_subject"]
    accept_prob: Float[Array, "*chain"]
    rng_key: Array
    carried: Carried

    def __getitem__(self, place: Any) -> Any:
        """The field at a place; a ValueError for a name, by which numpyro looks up `extra_fields` that do not exist."""
        if isinstance(place, str):
            raise ValueError(
                f"extra_fields has {place!r}: a state of PXDA has 'accept_prob', 'z1', 'i' and 'rng_key'"
            )
        return tuple.__getitem__(self, place)


class PXDA(MCMCKernel):
    """Parameter-expanded data augmentation for :class:`~ethogram.models.choices.NoisyMDP`.

    Parameters
    ----------
    model : with a number or infinity for ``kappa``; where kappa has a prior, use the kernel as the block of ``theta``
        in numpyro's ``Gibbs``.
    moves : ``"local+scale"``, one translation per decision and a scale; ``"local"``, ``"scale+translate"``,
        ``"translate"``, ``"scale"``; ``"da"`` for plain data augmentation; ``"scale_proper"`` and
        ``"scale+translate_proper"``, whose expansion parameters have proper priors.
    winner : how the utility of the chosen option is drawn: ``"gibbs"``, given the others; ``"rejection"``, exactly
        from its marginal; ``"mh"``, by Metropolis-Hastings from the same envelope; ``"paper"``, from the proposal of
        the paper.
    scale_prior : (a, b) of the inverse gamma prior of the scale, for the proper moves only. The draws do not depend on
        b, a unit of the scale.
    collapse_scale : number of sweeps between Metropolis moves of the scale of all values, with the latent utilities
        marginalised out; 0 for none. It needs ``winner="rejection"``, the only draw of the winner's utility that does
        not depend on its last value.
    proposals : number of proposals a sweep for ``"mh"`` and ``"paper"``.

    Raises
    ------
    TypeError, ValueError
        If the model is not a NoisyMDP, a name is unknown, a scale prior does not go with the moves, or a collapsed
        scale does not go with the winner. `init` raises what the model's call does, and where a weight of a decision
        is not an integer or the key is no key.

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

    def __init__(
        self,
        model: Any,
        moves: str = "local+scale",
        winner: str = "gibbs",
        *,
        scale_prior: tuple[float, float] | None = None,
        collapse_scale: int = 0,
        proposals: int = 1,
    ):
        if not isinstance(model, NoisyMDP):
            raise TypeError(f"model is {type(model).__name__}: PXDA samples a NoisyMDP")
        require_one_of("moves", moves, MOVES)
        require_one_of("winner", winner, WINNERS)
        if (scale_prior is not None) != MOVES[moves].proper:
            raise ValueError(
                f"scale_prior is {scale_prior!r}: moves {moves!r} "
                + ("need (a, b), both positive" if MOVES[moves].proper else "have no prior of the scale")
            )
        if scale_prior is not None:
            pair = np.asarray(scale_prior) if isinstance(scale_prior, tuple | list) else np.zeros(0)
            positive = pair.dtype.kind in "iuf" and bool((np.isfinite(pair) & (pair > 0)).all())
            if pair.shape != (2,) or not positive:
                raise ValueError(
                    f"scale_prior must be two finite positive numbers, (a, b), not {scale_prior!r}"
                )
        require_integer("proposals", proposals, 1)
        require_integer("collapse_scale", collapse_scale, 0)
        if collapse_scale and winner != "rejection":
            raise ValueError(
                f'collapse_scale is {collapse_scale}, winner {winner!r}: use winner="rejection", the only draw of the '
                "utilities that does not depend on those before the scale was moved"
            )
        self.model: Any = model
        self.moves, self.winner, self.scale_prior, self.proposals = moves, winner, scale_prior, proposals
        self.collapse_scale = collapse_scale
        self._values = model  # a wrapped model has lost its attributes
        self._sample_fn: Any = None
        self._digest: bytes | None = None

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The draws only; ``z1`` and ``accept_prob`` are available as extra fields."""
        return ("z",)

    def get_diagnostics_str(self, state: PXDAState) -> str:
        """The last scale and, with proposals, the last acceptance rate."""
        text = f"scale {np.mean(state.z1):.2g}"
        proposing = self.winner in ("mh", "paper") or self.collapse_scale > 0
        return f"{text}, acc. prob {np.mean(state.accept_prob):.2f}" if proposing else text

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
        data = checked.data
        self._digest = digest(*jax.tree.leaves(data))
        problem = self._problem(checked)
        self._values.warn_of_separation(checked)
        single = is_prng_key(rng_key)
        if not single and not (np.ndim(rng_key) and is_prng_key(rng_key[0])):
            require_key(rng_key, "rng_key")
        num_chains = 1 if single else rng_key.shape[0]
        chains = () if single else (num_chains,)
        dtype = problem.design.dtype
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
        ones = np.ones((*chains, *subjects), dtype), np.ones(chains, dtype)
        started: Any = np.zeros(chains, np.int32), {"theta": theta}, *ones, rng_key, Carried(latents, problem)
        state = PXDAState(*started)
        others = {name: value for name, value in model_kwargs.items() if name != "data"}
        state = self.refresh(state, (checked, *model_args[1:]), others)
        factor = state.carried.problem.factor
        if is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
            raise ValueError(
                "the posterior precision of theta is numerically singular: features are nearly collinear, or of very "
                "different scales; rescale them, or use double precision"
            )
        self._sample_fn = self._one_sweep
        return jax.device_put(state)

    def _problem(self, checked: ChoiceProblem) -> ProbitProblem:
        """The decisions as a sweep reads them, each repeated by its weight."""
        data, rows = checked.data, np.arange(checked.data.num_decisions)
        if data.weight is not None:
            fix = ": PXDA repeats decisions, and takes integer weights only; use NUTS for others"
            require(np.asarray(data.weight, float) % 1 == 0, "weight", data.weight, fix)
            rows = np.repeat(rows, np.asarray(data.weight).astype(int))
        design, legal, choice = (np.asarray(part)[rows] for part in (checked.design, data.legal, data.choice))
        move = MOVES[self.moves]
        if data.subject is None:
            return probit_problem(design, legal, choice, move)
        who = np.asarray(data.subject)[rows]
        return subject_problems(design, legal, choice, who, data.num_subjects or 0, move)

    def refresh(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """The state under the current prior of the model, whose hyperparameters other blocks may have updated."""
        return self.with_moments(state, *self._prior(state, model_args, model_kwargs or {}))

    def with_moments(self, state: PXDAState, mean: HostOrDevice, variance: HostOrDevice) -> PXDAState:
        """The state under a prior of theta with this mean and variance, of the shape of theta without chains."""
        problem, move = state.carried.problem, MOVES[self.moves]
        xp = namespace(mean, variance, problem.counts)
        precision = xp.where(xp.isinf(variance), 0, 1 / variance)
        if move.translations == "one":
            states = variance.shape[-1] + 1
            # A subject without decisions has no level to translate: any proper prior will do.
            own = (xp.sum(problem.counts, axis=(-2, -1))[..., None] == 0).astype(variance.dtype)
            mean = xp.concatenate([mean, xp.zeros_like(own)], axis=-1)
            if move.proper:  # any proper prior will do; where that of the values is flat, a standard normal
                first = variance.ravel()[0]
                spread = xp.where(xp.isinf(first), 1, first / states)
                own = xp.broadcast_to(1 / spread, own.shape)
            precision = xp.concatenate([precision, own], axis=-1)
        return state._replace(carried=state.carried._replace(problem=with_prior(problem, precision, mean)))

    def _prior(
        self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any]
    ) -> tuple[HostOrDevice, HostOrDevice]:
        """Prior mean and variance of theta, without chains, by a trace of the conditioned model."""
        dtype, problem = state.carried.latents.dtype, state.carried.problem
        shape = (*problem.squares.shape[:-1], state.z["theta"].shape[-1])
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
        if self._digest is not None and is_concrete(*leaves) and digest(*leaves) != self._digest:
            raise ValueError("the state belongs to other decisions: run without post_warmup_state")
        return self._one_sweep(state)

    def _one_sweep(self, state: PXDAState) -> PXDAState:
        single = is_prng_key(state.rng_key)
        key_sweep, key_scale, key_next = jax.random.split(state.rng_key if single else state.rng_key[0], 3)
        theta, carried = state.z["theta"], state.carried
        drawn, taken = sweep(
            key_sweep,
            carried.problem,
            theta[..., None] if single else jnp.moveaxis(theta, 0, -1),
            carried.latents,
            MOVES[self.moves],
            winner=self.winner,
            proposals=self.proposals,
            scale_prior=self.scale_prior,
        )
        theta = drawn.theta
        if self.collapse_scale:
            before = state.accept_prob[None] if single else state.accept_prob

            def move() -> tuple[Array, Array]:
                moved, accepted = move_scale(key_scale, carried.problem, drawn.theta)
                return moved, jnp.mean(accepted.reshape(-1, accepted.shape[-1]), axis=0, dtype=theta.dtype)

            due = (state.i.ravel()[0] + 1) % self.collapse_scale == 0
            theta, taken = lax.cond(due, move, lambda: (drawn.theta, before))

        def out(x: Array) -> Array:
            return x[..., 0] if single else jnp.moveaxis(x, -1, 0)

        return state._replace(
            i=state.i + 1,
            z={"theta": out(theta)},
            z1=out(drawn.scale),
            accept_prob=out(taken),
            rng_key=key_next if single else jax.random.split(key_next, state.rng_key.shape[0]),
            carried=carried._replace(latents=drawn.latents),
        )

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


def _data_of(model_args: tuple, model_kwargs: dict[str, Any]) -> Decisions:
    if model_args:
        return model_args[0]
    if "data" in model_kwargs:
        return model_kwargs["data"]
    raise TypeError("data are missing: pass Decisions to MCMC.run")
