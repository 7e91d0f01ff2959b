r"""PX-DA: parameter-expanded data augmentation for choices under Gaussian noise, as a numpyro kernel.

Every sweep draws the latent utilities given the values, then a scale and translations that change no choice, and the
values given both. `MOVES` of :mod:`ethogram.inference.probit_sweep` has the expansions, and where their law is printed.

Where choices are far from overlapping, so that the scale of the values is hardly known, a sweep moves that scale
little; NUTS on the summed likelihood takes the same model.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ethogram.inference.probit_sweep import MOVES, ProbitProblem, probit_problem, sweep, with_prior
from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.decisions import Decisions, digest
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = ["PXDA", "PXDAState"]

WINNERS = ("gibbs", "mh", "rejection", "paper")


class PXDAState(NamedTuple):
    """State of the chains; where they are vectorised, the first axis of what can be collected is the chain.

    Attributes
    ----------
    i : sweeps made.
    z : ``theta (parameter,)``.
    z1 : the scale that the last sweep drew; one where it draws none.
    accept_prob : share of the last proposals for the winner's utility that were taken; one where none are made.
    rng_key : to go on with.
    latents : (option, decision, chain) latent utilities, the chosen option first. The chain stands last: this part is
        for the next sweep, not for collecting.
    problem : the decisions as a sweep reads them.
    translation_sd : of the prior of a proper translation.
    """

    i: Array
    z: dict[str, Array]
    z1: Array
    accept_prob: Array
    rng_key: Array
    latents: Array
    problem: ProbitProblem
    translation_sd: Array


class PXDA(MCMCKernel):
    """Parameter-expanded data augmentation for :class:`~ethogram.models.noisy_mdp.NoisyMDP`.

    Parameters
    ----------
    model : with a finite or infinite variance ``kappa``; where kappa has a prior, make this kernel the block of
        ``theta`` in numpyro's ``Gibbs``.
    moves : ``"local+scale"``, one translation a decision and a scale; ``"local"``, ``"scale+translate"``,
        ``"translate"``, ``"scale"``; ``"da"`` for plain data augmentation; ``"scale_proper"`` and
        ``"scale+translate_proper"``, with proper priors for what they expand by.
    winner : how the utility of the chosen option is drawn: ``"gibbs"``, given the others; ``"rejection"``, exactly
        from its marginal; ``"mh"``, by proposals under the same envelope; ``"paper"``, by those of the paper.
    scale_prior : (a, b) of the inverse gamma prior of the scale, for the proper moves only.
    proposals : how many a sweep for ``"mh"`` and ``"paper"``.

    Raises
    ------
    TypeError, ValueError
        If the model is no NoisyMDP, a name is unknown, or a scale prior is given where there is none, or not where
        there is one. `init` raises what the model's call does, and where no decision has two legal options.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro.infer import MCMC
    >>> from ethogram.models.decisions import Decisions
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
        proposals: int = 1,
    ):
        if not isinstance(model, NoisyMDP):
            raise TypeError(f"model is {type(model).__name__}: PXDA samples a NoisyMDP")
        if moves not in MOVES:
            raise ValueError(f"moves must be one of {tuple(MOVES)}, not {moves!r}")
        if winner not in WINNERS:
            raise ValueError(f"winner must be one of {WINNERS}, not {winner!r}")
        if (scale_prior is not None) != MOVES[moves].proper:
            raise ValueError(
                f"scale_prior is {scale_prior!r}: moves {moves!r} "
                + ("need (a, b), both above 0" if MOVES[moves].proper else "have no prior of the scale")
            )
        if scale_prior is not None and (len(scale_prior) != 2 or not min(scale_prior) > 0):
            raise ValueError(f"scale_prior must be two numbers above 0, not {scale_prior!r}")
        if isinstance(proposals, bool) or not isinstance(proposals, int) or proposals < 1:
            raise ValueError(f"proposals must be an integer of at least 1, not {proposals!r}")
        self.model: Any = model
        self.moves, self.winner, self.scale_prior, self.proposals = moves, winner, scale_prior, proposals
        self._values = model  # what `wrap_model` wraps no longer has a design
        self._sample_fn: Any = None
        self._digest: bytes | None = None

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The draws alone; ``z1`` and ``accept_prob`` can be asked for."""
        return ("z",)

    def get_diagnostics_str(self, state: PXDAState) -> str:
        """The last scale and, where proposals are made, how many were taken."""
        told = f"scale {np.mean(state.z1):.2g}"
        proposing = self.winner in ("mh", "paper")
        return f"{told}, taken {np.mean(state.accept_prob):.2f}" if proposing else told

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Any = None,
        model_args: tuple = (),
        model_kwargs: dict[str, Any] | None = None,
    ) -> PXDAState:
        """Start at the prior mean, or ``init_params["theta"]``, with the chosen utilities at 1 and all others at -1."""
        model_kwargs = model_kwargs or {}
        data = self._values.check(_data_of(model_args, model_kwargs))
        if not is_concrete(*data[:3]):
            raise TypeError("data are traced: decisions are put in order before jit; give concrete arrays")
        data = jax.tree.map(np.asarray, data)
        self._digest = digest(*data[:3])
        move = MOVES[self.moves]
        design = np.asarray(self._values.design(data))
        problem = probit_problem(design, np.asarray(data.legal), np.asarray(data.choice), move)
        if not problem.counts.shape[0]:
            raise ValueError(
                "no decision has two legal options and a known choice: nothing is learned from these data"
            )
        single = is_prng_key(rng_key)
        num_chains = 1 if single else rng_key.shape[0]
        dtype = problem.design.dtype
        size = design.shape[-1]
        theta = jnp.zeros((size,) if single else (num_chains, size), dtype)
        if init_params is not None:
            given = init_params["theta"] if isinstance(init_params, dict) else init_params
            if jnp.shape(given) != theta.shape:
                raise ValueError(f"init_params theta has shape {jnp.shape(given)}, not {theta.shape}")
            if is_concrete(given) and not np.isfinite(np.asarray(given)).all():
                raise ValueError("init_params theta must be finite")
            theta = jnp.asarray(given, dtype)
        first = jnp.where(jnp.arange(problem.legal.shape[0]) == 0, 1.0, -1.0).astype(dtype)
        latents = jnp.where(problem.legal, first[:, None, None], 0)
        latents = jnp.broadcast_to(latents, (*latents.shape[:2], num_chains))
        chains = () if single else (num_chains,)
        ones = jnp.ones(chains, dtype)
        state = PXDAState(
            jnp.zeros(chains, jnp.int32), {"theta": theta}, ones, ones, rng_key, latents,
            problem, jnp.ones((), dtype),
        )  # fmt: skip
        state = self.refresh(state, model_args, model_kwargs)
        if is_concrete(state.problem.factor) and not np.isfinite(np.asarray(state.problem.factor)).all():
            raise ValueError(
                "the precision of theta cannot be factorised: features are too nearly collinear, or of too different "
                "sizes, for this precision; rescale them, or use double precision"
            )
        self._sample_fn = self._one_sweep
        return state

    def refresh(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """The state with the prior that the model now has, whose variance other blocks may have moved."""
        variance = self._prior_variance(state, model_args, model_kwargs or {})
        precision = jnp.where(jnp.isinf(variance), 0, 1 / variance)
        translation_sd = state.translation_sd
        move = MOVES[self.moves]
        if move.translations == "one":
            states = variance.shape[0] + 1
            own = jnp.zeros_like(variance[:1])
            if move.proper:  # any proper law will do; where values are flat, a standard normal
                spread = jnp.where(jnp.isinf(variance[0]), 1, variance[0] / states)
                translation_sd, own = jnp.sqrt(spread), 1 / spread[None]
            precision = jnp.concatenate([precision, own])
        return state._replace(problem=with_prior(state.problem, precision), translation_sd=translation_sd)

    def _prior_variance(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any]) -> Array:
        """Prior variances (parameter,) of the model as it is conditioned, read from a trace of it."""
        size = state.z["theta"].shape[-1]
        held = substitute(self.model, data={"theta": jnp.zeros(size)})
        with block():
            sites = trace(seed(held, jax.random.key(0))).get_trace(*model_args, **model_kwargs)
        prior = sites["theta"]["fn"]
        if "kappa" in sites and not sites["kappa"]["is_observed"]:
            raise ValueError(
                "kappa has a prior, and PXDA draws theta only: use "
                'Gibbs([(PXDA(model), ["theta"]), (NUTS(model), ["kappa"])])'
            )
        if self._values.flat:
            return jnp.full(size, jnp.inf, state.latents.dtype)
        return jnp.broadcast_to(prior.base_dist.scale**2, (size,)).astype(state.latents.dtype)

    def sample(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """One sweep of all chains.

        Raises
        ------
        ValueError
            If the decisions are not those that the state began with.
        """
        data = _data_of(model_args, model_kwargs or {})
        if self._digest is not None and is_concrete(*data[:3]) and digest(*data[:3]) != self._digest:
            raise ValueError("the state is one of other decisions: begin anew, without post_warmup_state")
        return self._one_sweep(state)

    def _one_sweep(self, state: PXDAState) -> PXDAState:
        single = is_prng_key(state.rng_key)
        keys = jax.random.split(state.rng_key if single else state.rng_key[0])
        theta = state.z["theta"]
        drawn, taken = sweep(
            keys[0],
            state.problem,
            theta[:, None] if single else theta.T,
            state.latents,
            MOVES[self.moves],
            winner=self.winner,
            proposals=self.proposals,
            scale_prior=self.scale_prior,
            translation_sd=state.translation_sd,
        )

        def out(x: Array) -> Array:
            return x[..., 0] if single else jnp.moveaxis(x, -1, 0)

        return state._replace(
            i=state.i + 1,
            z={"theta": out(drawn.theta)},
            z1=out(drawn.scale),
            accept_prob=out(taken),
            rng_key=keys[1] if single else jax.random.split(keys[1], state.rng_key.shape[0]),
            latents=drawn.latents,
        )

    def wrap_model(self, wrapper: Any) -> PXDA:
        """A copy whose model is `wrapper` of this one's."""
        kernel = copy.copy(self)
        kernel.model = wrapper(self.model)
        kernel._sample_fn = None
        return kernel

    def get_constrain_fn(self, model_args: tuple, model_kwargs: dict[str, Any] | None) -> Any:
        """Nothing is transformed."""
        return lambda z: z

    def postprocess_fn(self, model_args: tuple, model_kwargs: dict[str, Any] | None) -> Any:
        """Adds the model's deterministic sites."""
        data = _data_of(model_args, model_kwargs or {})
        return lambda z: {**z, **self._values.parts(z["theta"], data)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}


def _data_of(model_args: tuple, model_kwargs: dict[str, Any]) -> Decisions:
    if model_args:
        return model_args[0]
    if "data" in model_kwargs:
        return model_kwargs["data"]
    raise TypeError("data are missing: run the sampler on Decisions")
