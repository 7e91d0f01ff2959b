r"""PX-DA: parameter-expanded data augmentation for choices under Gaussian noise, as a numpyro kernel.

Every sweep draws the latent utilities given the values, then a scale and translations that change no choice, and the
values given both. `MOVES` of :mod:`ethogram.inference.probit_sweep` has the expansions, and where their law is printed.

Where choices are far from overlapping, so that the scale of the values is hardly known, a sweep moves that scale
little: `collapse_scale` adds a move that does not, and NUTS on the summed likelihood takes the same model.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ethogram.inference.collapsed_scale import move_scale
from ethogram.inference.probit_sweep import (
    MOVES,
    ProbitProblem,
    probit_problem,
    subject_problems,
    sweep,
    with_prior,
)
from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.decisions import Decisions, digest
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = ["PXDA", "PXDAState"]

WINNERS = ("gibbs", "mh", "rejection", "paper")


class Carried(NamedTuple):
    """What a sweep hands to the next one; not for collecting, since the chain stands last.

    Attributes
    ----------
    latents : (option, decision, chain) latent utilities, the chosen option first; subjects before them, if any.
    problem : the decisions as a sweep reads them.
    translation_sd : of the prior of a proper translation.
    """

    latents: Array
    problem: ProbitProblem
    translation_sd: Array


class PXDAState(NamedTuple):
    """State of the chains; where they are vectorised, the first axis of what can be collected is the chain.

    Attributes
    ----------
    i : sweeps made.
    z : ``theta (parameter,)``, or ``(subject, parameter)``.
    z1 : the scale that the last sweep drew, beside that it began with, one a subject; one where it draws none.
    accept_prob : share of the last proposals that were taken, for the winner's utility or of the collapsed scale
        move; one where none are made.
    rng_key : to go on with.
    carried : for the next sweep.
    """

    i: Array
    z: dict[str, Array]
    z1: Array
    accept_prob: Array
    rng_key: Array
    carried: Carried


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
    scale_prior : (a, b) of the inverse gamma prior of the scale, for the proper moves only. The draws do not depend on
        b, which the scale can be measured in.
    collapse_scale : how many sweeps there are to a Metropolis move of the scale of all values, with the latent
        utilities summed out; 0 for none. It needs ``winner="rejection"``, the one way to draw the winner's utility
        that does not ask what it was before.
    proposals : how many a sweep for ``"mh"`` and ``"paper"``.

    Raises
    ------
    TypeError, ValueError
        If the model is no NoisyMDP, a name is unknown, a scale prior is given where there is none, or not where
        there is one, or the scale is collapsed with another way to draw the winner. `init` raises what the model's
        call does, where no decision has two legal options, and where a weight of a decision is no whole number.

    Warns
    -----
    UserWarning
        From `init`, where some direction of the values is contradicted by no choice: how far the values go that way
        is then said by the prior alone.

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
        collapse_scale: int = 0,
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
        if scale_prior is not None:
            pair = np.asarray(scale_prior) if isinstance(scale_prior, tuple | list) else np.zeros(0)
            if (
                pair.shape != (2,)
                or pair.dtype.kind not in "iuf"
                or not ((pair > 0) & np.isfinite(pair)).all()
            ):
                raise ValueError(
                    f"scale_prior must be two finite numbers above 0, (a, b), not {scale_prior!r}"
                )
        for name, number, least in (("proposals", proposals, 1), ("collapse_scale", collapse_scale, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {number!r}")
        if collapse_scale and winner != "rejection":
            raise ValueError(
                f'collapse_scale is {collapse_scale}, winner {winner!r}: only winner="rejection" draws utilities that '
                "do not depend on those before the scale was moved"
            )
        self.model: Any = model
        self.moves, self.winner, self.scale_prior, self.proposals = moves, winner, scale_prior, proposals
        self.collapse_scale = collapse_scale
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
        proposing = self.winner in ("mh", "paper") or self.collapse_scale > 0
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
        if not is_concrete(*_arrays(data)):
            raise TypeError("data are traced: decisions are put in order before jit; give concrete arrays")
        data = jax.tree.map(np.asarray, data)
        self._digest = digest(*_arrays(data))
        problem = self._problem(data)
        found = self._values.separation(data)  # of a flat prior it is an error that `check` has raised
        if found is not None:
            warnings.warn(f"{found}: how far values go that way is said by their prior alone", stacklevel=2)
        single = is_prng_key(rng_key)
        num_chains = 1 if single else rng_key.shape[0]
        chains = () if single else (num_chains,)
        dtype = problem.design.dtype
        subjects = () if data.subject is None else (data.num_subjects,)
        theta = jnp.zeros((*chains, *subjects, sum(self._values.sizes(data))), dtype)
        if init_params is not None:
            if isinstance(init_params, dict) and "theta" not in init_params:
                raise ValueError(
                    f"init_params has {', '.join(map(str, init_params)) or 'nothing'}, not theta"
                )
            given = init_params["theta"] if isinstance(init_params, dict) else init_params
            if jnp.shape(given) != theta.shape:
                raise ValueError(f"init_params theta has shape {jnp.shape(given)}, not {theta.shape}")
            if is_concrete(given) and not np.isfinite(np.asarray(given)).all():
                raise ValueError("init_params theta must be finite")
            theta = jnp.asarray(given, dtype)
        first = jnp.where(jnp.arange(problem.legal.shape[-3]) == 0, 1.0, -1.0).astype(dtype)
        latents = jnp.where(problem.legal, first[:, None, None], 0)
        latents = jnp.broadcast_to(latents, (*latents.shape[:-1], num_chains))
        state = PXDAState(
            jnp.zeros(chains, jnp.int32),
            {"theta": theta},
            jnp.ones((*chains, *subjects), dtype),
            jnp.ones(chains, dtype),
            rng_key,
            Carried(latents, problem, jnp.ones((), dtype)),
        )
        state = self.refresh(state, model_args, model_kwargs)
        factor = state.carried.problem.factor
        if is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
            raise ValueError(
                "the precision of theta cannot be factorised: features are too nearly collinear, or of too different "
                "sizes, for this precision; rescale them, or use double precision"
            )
        self._sample_fn = self._one_sweep
        return state

    def _problem(self, data: Decisions) -> ProbitProblem:
        """The decisions as a sweep reads them, each as often as its weight says."""
        if data.weight is not None:
            broken = np.asarray(data.weight, float) % 1 != 0
            if broken.any():
                worst = int(broken.argmax())
                raise ValueError(
                    f"weight[{worst}] is {data.weight[worst]}: PXDA takes whole numbers, of decisions that came so "
                    "often; NUTS takes any weights"
                )
            data = data.take(np.repeat(np.arange(data.num_decisions), np.asarray(data.weight).astype(int)))
        if not ((data.legal.sum(-1) > 1) & (data.choice >= 0)).any():
            raise ValueError(
                "no decision has two legal options and a known choice: nothing is learned from these data"
            )
        told = (np.asarray(self._values.design(data)), np.asarray(data.legal), np.asarray(data.choice))
        if data.subject is None:
            return probit_problem(*told, MOVES[self.moves])
        return subject_problems(*told, np.asarray(data.subject), data.num_subjects or 0, MOVES[self.moves])

    def refresh(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """The state with the prior that the model now has, whose variance other blocks may have moved."""
        mean, variance = self._prior(state, model_args, model_kwargs or {})
        precision = jnp.where(jnp.isinf(variance), 0, 1 / variance)
        problem, translation_sd = state.carried.problem, state.carried.translation_sd
        move = MOVES[self.moves]
        if move.translations == "one":
            states = variance.shape[-1] + 1
            # Who decides nothing has no level to translate: any proper law will do for it.
            own = (jnp.sum(problem.counts, axis=(-2, -1))[..., None] == 0).astype(variance.dtype)
            mean = jnp.concatenate([mean, jnp.zeros_like(own)], axis=-1)
            if move.proper:  # any proper law will do; where values are flat, a standard normal
                first = variance.ravel()[0]
                spread = jnp.where(jnp.isinf(first), 1, first / states)
                translation_sd, own = jnp.sqrt(spread), jnp.broadcast_to(1 / spread, own.shape)
            precision = jnp.concatenate([precision, own], axis=-1)
        held = state.carried._replace(
            problem=with_prior(problem, precision, mean), translation_sd=translation_sd
        )
        return state._replace(carried=held)

    def _prior(
        self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any]
    ) -> tuple[Array, Array]:
        """Prior mean and variance of theta, without chains, of the model as it is conditioned, by a trace of it."""
        dtype, problem = state.carried.latents.dtype, state.carried.problem
        shape = (*problem.squares.shape[:-1], state.z["theta"].shape[-1])
        held = substitute(self.model, data={"theta": jnp.zeros(shape)})
        with block():
            sites = trace(seed(held, jax.random.key(0))).get_trace(*model_args, **model_kwargs)
        for name in ("kappa", "loc"):
            if name in sites and sites[name]["type"] == "sample" and not sites[name]["is_observed"]:
                others = '["kappa", "loc"]' if "loc" in sites else '["kappa"]'
                raise ValueError(
                    f"{name} has a prior, and PXDA draws theta only: use "
                    f'Gibbs([(PXDA(model), ["theta"]), (NUTS(model), {others})]), with those sites that have one'
                )
        if self._values.flat:
            return jnp.zeros(shape, dtype), jnp.full(shape, jnp.inf, dtype)
        prior = sites["theta"]["fn"]
        mean, variance = (jnp.broadcast_to(x, shape).astype(dtype) for x in (prior.mean, prior.variance))
        return mean, variance

    def sample(self, state: PXDAState, model_args: tuple, model_kwargs: dict[str, Any] | None) -> PXDAState:
        """One sweep of all chains.

        Raises
        ------
        ValueError
            If the decisions are not those that the state began with.
        """
        data = _data_of(model_args, model_kwargs or {})
        told = _arrays(data)
        if self._digest is not None and is_concrete(*told) and digest(*told) != self._digest:
            raise ValueError("the state is one of other decisions: begin anew, without post_warmup_state")
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
            translation_sd=carried.translation_sd,
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


def _arrays(data: Decisions) -> list[Any]:
    return jax.tree.leaves(data)


def _data_of(model_args: tuple, model_kwargs: dict[str, Any]) -> Decisions:
    if model_args:
        return model_args[0]
    if "data" in model_kwargs:
        return model_kwargs["data"]
    raise TypeError("data are missing: run the sampler on Decisions")
