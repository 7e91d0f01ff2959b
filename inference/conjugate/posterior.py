"""Results of conjugate fits: the mean-field q(theta) of Hoffman et al. (2013), section 2.2, and all ELBOs."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference import storage
from ethogram.inference.draws import Draws, ExportsDraws, draw_in_chunks, one_chain, variational_attributes
from ethogram.models.arguments import is_concrete, refuse_fork, require_integer, require_key
from ethogram.models.conjugate_model import ConjugateModel, check_data
from ethogram.models.families.conjugate_block import ConjugateBlock, require_finite
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.model_object import model_object
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "ConjugatePosterior",
    "ConjugateResult",
    "check_blocks",
    "load_posterior",
    "posterior_of",
    "posterior_that_fits",
    "require_model_of",
]

READERS = {
    "AgentMarkov": "infer_intents",
    "Fit": "its method states",
    "RewardFit": "infer_reward_intents",
    "RewardPosterior": "infer_reward_intents",
    "RoleHMM": "infer_roles",
    "SwitchingGPIRL": "infer_reward_intents",
}
"""What gives the hidden states of a fit, by the class of its model or its own, for messages."""


@model_object
class ConjugatePosterior:
    """Variational posterior q(theta): independent conjugate blocks by name, with their model.

    Parameters
    ----------
    model : the model object that was fitted.
    blocks : posterior blocks, named as in ``model.prior()``.

    Raises
    ------
    ValueError, TypeError
        If blocks are missing, left over, of another shape than those of the prior, or no proper distributions.
    """

    model: Any
    blocks: dict[str, ConjugateBlock]

    def __post_init__(self):
        check_blocks(self.model, self.blocks)

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the parameters by site, with a leading axis of `num_draws`."""
        require_key(key)
        require_integer("num_draws", num_draws, 1)
        numbers = sum(jnp.size(leaf) for leaf in jax.tree.leaves(self.blocks))
        return draw_in_chunks(functools.partial(_sample, self), key, num_draws, numbers)

    def mean(self) -> dict[str, Array]:
        """Posterior means of the parameters by site; infinite where a mean does not exist."""
        return _mean(self.blocks)

    def expected_statistics(self) -> dict[str, Any]:
        """Expected log potentials of the blocks, the argument of the model's log normaliser."""
        return expected_statistics(self.blocks)

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain, made by NumPy on the host, which compiles nothing."""
        generators = numpy_generator(key).spawn(len(self.blocks))
        drawn = {
            name: self.blocks[name].sample_numpy(random, num_draws)
            for name, random in zip(sorted(self.blocks), generators, strict=True)
        }
        return Draws(
            self.model, one_chain(dict(sorted(by_site(drawn).items()))), {}, {}, variational_attributes()
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, atomically; read it with :func:`load_posterior`."""
        storage.write(path, {"posterior": self})


@short_repr
class ConjugateResult(NamedTuple):
    """Result of ``ConjugateSVI.run``: the best restart, and the ELBOs of all restarts.

    Attributes
    ----------
    posterior : of the restart with the highest final ELBO.
    elbo : (evaluation,) its ELBO in nats, on all data, at the steps ``evaluated``; the last is the posterior's.
    restart_elbos : (restart,) final ELBOs; ``-inf`` where a start made the data impossible.
    converged : whether the best restart met `tol`, in a search that `num_steps` did not cut off.
    step : number of steps done, those of earlier runs included.
    key : to continue with.
    evaluated : (evaluation,) steps at which the ELBO was evaluated.
    restart_traces : (restart, evaluation) ELBOs of all restarts; where fits start with few states, that of the best
        fit so far, or their own once it is larger.
    """

    posterior: ConjugatePosterior
    elbo: Float[np.ndarray, "evaluation"]
    restart_elbos: Float[np.ndarray, "restart"]
    converged: bool
    step: int
    key: Array
    evaluated: Int[np.ndarray, "evaluation"]
    restart_traces: Float[np.ndarray, "restart evaluation"]

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain, with the ELBO trace."""
        attributes = {"converged": int(self.converged), "num_steps": int(self.step)}
        drawn = self.posterior.draws_for_export(key, num_draws)
        return drawn._replace(
            attributes=drawn.attributes | attributes,
            fit={
                "elbo": (("step",), np.asarray(self.elbo)),
                "step": (("step",), np.asarray(self.evaluated)),
                "restart_elbos": (("restart",), np.asarray(self.restart_elbos)),
            },
        )


def check_blocks(model: Any, blocks: Any, place: str = "blocks") -> None:
    """Raise ValueError or TypeError unless blocks are finite, in the tree, shapes and dtypes of ``model.prior()``.

    Traced ones pass.
    """
    if not isinstance(blocks, dict):
        raise TypeError(f"{place} is {type(blocks).__name__}: give a dict of conjugate blocks by name")
    if not is_concrete(*jax.tree.leaves((model, blocks))):
        return
    if not isinstance(model, ConjugateModel):
        raise TypeError(f"model is {type(model).__name__}: give a ConjugateModel")
    prior = model.prior()
    if set(blocks) != set(prior):
        raise ValueError(f"{place} has {sorted(blocks)}, but the prior of the model has {sorted(prior)}")
    for name, block in blocks.items():
        here, like = f"{place}[{name!r}]", prior[name]
        if not isinstance(block, type(like)):
            raise TypeError(
                f"{here} is {type(block).__name__}: give a {type(like).__name__}, as in the prior"
            )
        structure: Any = jax.tree.structure(block)
        if structure != jax.tree.structure(like):
            raise ValueError(
                f"{here} has other fields than the block of the prior: fit this model, or load its fit"
            )
        leaves, others = jax.tree.leaves(block), jax.tree.leaves(like)
        if all(
            x.shape == y.shape and x.dtype == y.dtype for x, y in zip(leaves, others, strict=True)
        ) and all(np.isfinite(leaf).all() for leaf in map(np.asarray, leaves)):
            continue
        pairs = zip(jax.tree_util.tree_leaves_with_path(block), jax.tree.leaves(like), strict=True)
        for (path, leaf), expected in pairs:
            came, wanted = ((x.shape, _kind(x.dtype)) for x in map(np.asarray, (leaf, expected)))
            if came != wanted and not _is_constant(path, came, wanted):
                raise ValueError(
                    f"{here}{jax.tree_util.keystr(path)} has {came[1]} of shape {came[0]}, expected {wanted[1]} of "
                    f"shape {wanted[0]} as in the prior"
                )
        require_finite(here, block)


def _is_constant(path: Any, came: Any, wanted: Any) -> bool:
    """Whether an array of a block is no coordinate, such as an origin, and one for all entries of the batch."""
    constant = getattr(path[0], "name", None) != "natural" and came[1] == wanted[1]
    return constant and came[0] == wanted[0][len(wanted[0]) - len(came[0]) :]


def _kind(dtype: np.dtype) -> str:
    """The float type that JAX makes of a dtype, or that it is of integers or booleans, of whatever size."""
    if dtype.kind == "f":
        return str(jax.dtypes.canonicalize_dtype(dtype))
    return {"b": "booleans", "i": "integers", "u": "integers"}.get(dtype.kind, str(dtype))


def posterior_of(value: Any, name: str = "posterior", accepted: str = "") -> ConjugatePosterior:
    """The posterior itself, or that of a result; `name` is the argument that an error names.

    Raises
    ------
    TypeError
        If `value` is neither a ConjugatePosterior nor a ConjugateResult.
    """
    found = value.posterior if isinstance(value, ConjugateResult) else value
    if not isinstance(found, ConjugatePosterior):
        few = "a ConjugatePosterior" + (", a ConjugateResult" if accepted else " or a ConjugateResult")
        raise TypeError(f"{name} is {type(value).__name__}: give {few}{accepted}{_instead(value)}")
    return found


def require_model_of(model: Any, kind: type, name: str = "posterior") -> None:
    """Raise TypeError, which says what to call instead, unless a fitted model is of class `kind`."""
    if not isinstance(model, kind):
        came, expected = (
            f"{'an' if each.__name__[0] in 'AEIOU' else 'a'} {each.__name__}" for each in (type(model), kind)
        )
        raise TypeError(f"{name} is of {came}: give one of {expected}{_instead(model)}")


def posterior_that_fits(
    value: Any, data: Any, kind: type = ConjugateModel, *, name: str = "posterior", accepted: str = ""
) -> ConjugatePosterior:
    """The posterior itself, or that of a result, once its model is of class `kind` and the data fit that model.

    Whatever reads data under a fit calls this first: compiled code does not see a state or an action out of range.
    """
    refuse_fork()
    posterior = posterior_of(value, name, accepted)
    require_model_of(posterior.model, kind, name)
    check_data(posterior.model, data)
    return posterior


def _instead(value: Any) -> str:
    """What gives the hidden states of this fit, or of the fits of this model, for an error."""
    reader = READERS.get(type(value).__name__)
    return "" if reader is None else f"; the hidden states of this one come from {reader}"


def load_posterior(path: str | os.PathLike) -> Any:
    """Read a posterior that was written by its ``save`` method.

    Returns
    -------
    A :class:`ConjugatePosterior`, a :class:`~ethogram.inference.sampled_posterior.SampledPosterior`, or a
    :class:`~ethogram.inference.rewards.RewardPosterior`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is truncated, or holds something else.
    """
    content = storage.read(path)
    found = content.get("posterior") if isinstance(content, dict) else None
    if not isinstance(found, ExportsDraws):
        raise ValueError(f"{os.fspath(path)} holds no posterior: give a file written by posterior.save(path)")
    return found


@quick_jit
def _mean(blocks: dict[str, ConjugateBlock]) -> dict[str, Array]:
    return by_site({name: block.mean() for name, block in blocks.items()})


@quick_jit(static_argnums=2)
def _sample(posterior: ConjugatePosterior, key: Array, num_draws: int) -> dict[str, Array]:
    names = sorted(posterior.blocks)
    keys = jax.random.split(key, len(names))
    return by_site({n: posterior.blocks[n].sample(k, (num_draws,)) for n, k in zip(names, keys, strict=True)})
