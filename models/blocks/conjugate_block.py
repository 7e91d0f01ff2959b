"""What every exponential-family block promises, and the checks of their arguments.

A block is a distribution over parameters, q(theta) = h(theta) exp(<natural, statistics(theta)> - A(natural)),
kept in natural coordinates, where a conjugate update is an addition. The blocks themselves are in
`ethogram.models.exponential_family`.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ethogram.models.blocks.divergences import Divergence

__all__ = [
    "ConjugateBlock",
    "Reals",
    "broadcast_batch",
    "common_batch",
    "concretely",
    "is_concrete",
    "read_reals",
    "require",
    "require_covariance",
    "require_reals",
]


Reals = ArrayLike | Sequence[Any]


class ConjugateBlock(abc.ABC):
    """A distribution over parameters in natural coordinates; leading axes are a batch of independent ones.

    Subclasses are frozen dataclasses registered as pytrees. All methods can be traced by jit, vmap, grad and
    scan, and none checks values: only the constructors ``from_standard`` do, and only what is concrete.
    """

    natural: Any

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> Any:
        r"""Block after one natural-gradient step; ``step_size=1`` is the exact conjugate update.

        .. math:: \eta \leftarrow (1 - \rho)\,\eta + \rho\,(\eta_0 + b\, t)

        This is :math:`\eta + \rho (\eta_0 + b t - \eta)`, written so that a full step without data gives the
        prior back to the last bit.

        Parameters
        ----------
        prior : a block of the same kind, with this one's batch shape or fewer leading axes.
        statistics : expected statistics of the data, a tuple of the type of ``natural``.
        scale : b, how many times the data stand for (whole set / mini-batch); a scalar.
        step_size : rho in [0, 1]; a scalar.

        References
        ----------
        Hoffman, Blei, Wang, Paisley (2013), Stochastic variational inference, eq. 15 and 31.
        """

        def moved(old: Array, start: Array, data: Array) -> Array:
            target = jnp.broadcast_to(start, old.shape) + scale * jnp.broadcast_to(data, old.shape)
            return ((1 - step_size) * old + step_size * target).astype(old.dtype)

        natural = jax.tree.map(moved, self.natural, prior.natural, statistics)
        return dataclasses.replace(self, natural=natural)  # type: ignore[type-var]

    @abc.abstractmethod
    def expected_statistics(self) -> Any:
        """E_q of the statistic paired with each natural coordinate, as a tuple of the type of ``natural``."""

    @abc.abstractmethod
    def statistics(self, *value: Any) -> Any:
        """Statistics at a point, as a tuple of the type of ``natural``."""

    @abc.abstractmethod
    def log_partition(self) -> Float[Array, "*batch"]:
        """A(natural), one a row; the log density is <natural, statistics> - A plus the base measure."""

    @abc.abstractmethod
    def divergence(self, other: Any) -> Divergence:
        """KL(self || other), one a row, with its Gamma functions still to be evaluated."""

    def kl(self, other: Any) -> Float[Array, "*batch"]:
        """KL(self || other), one a row, in nats."""
        return self.divergence(other).total()

    @abc.abstractmethod
    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws of the parameters, with axes sample_shape, then batch, then the parameter's own."""

    @abc.abstractmethod
    def mean(self) -> Any:
        """E_q of the parameters, in the shape of one draw."""

    @abc.abstractmethod
    def predictive(self, *arguments: Any) -> Any:
        """Distribution of one observation, with the parameters integrated out."""

    @abc.abstractmethod
    def standard(self) -> Any:
        """Usual parameters, as ``from_standard`` takes them."""

    @abc.abstractmethod
    def inner_point(self) -> Any:
        """Some point at which every statistic is finite: a stand-in for rows that are masked out."""

    @abc.abstractmethod
    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the concrete ``value`` can be drawn from the block, in the given rows."""


def broadcast_batch(leading: Any, ndim: int) -> Any:
    """``leading`` with axes of length 1 put before its last one, to ``ndim`` axes: its batch axes lead."""
    return leading.reshape(leading.shape[:-1] + (1,) * (ndim - leading.ndim) + leading.shape[-1:])


def common_batch(came: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Batch shape to which all ``shapes`` broadcast; ``came`` opens the message where they do not."""
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{came}: give batch axes that broadcast") from None


def is_concrete(*values: Any) -> bool:
    """True unless a value is being traced."""
    return not any(isinstance(value, jax.core.Tracer) for value in values)


def concretely(function: Callable[..., Any], *values: Any) -> Any:
    """``function(numpy, *values)`` as JAX arrays where all values are concrete, else ``function(jax.numpy, ...)``.

    What a constructor works out of a few small arrays is worth no compilation: NumPy needs none.
    """
    if not is_concrete(*jax.tree.leaves(values)):
        return function(jnp, *values)
    with jax.ensure_compile_time_eval():  # what is known stays known, inside jit too
        return jax.tree.map(jnp.asarray, function(np, *jax.tree.map(np.asarray, values)))


def require_reals(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is an array of floats, or Python numbers alone or in lists."""
    if hasattr(value, "dtype"):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            cure = f"pass {name}.astype(float)"
            raise TypeError(f"{name} has dtype {value.dtype}, not a float type: {cure}")
        return
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError:
        kind = "O"
    if kind not in "iuf":
        cure = "pass a float or an array of floats"
        raise TypeError(f"{name} is {value!r}, neither a real number nor an array: {cure}")


def read_reals(**parameters: Any) -> list[Array]:
    """Parameters as JAX arrays of one float type; Python numbers, alone or in lists, take it on.

    Raises
    ------
    TypeError : an array is of integers, booleans or complex numbers, or no array at all.
    ValueError : a value is NaN or infinite.
    """
    for name, value in parameters.items():
        require_reals(name, value)
        if is_concrete(value):
            require(np.isfinite(np.asarray(value)), name, value, "is not finite", "remove or impute it")
    typed = [jnp.asarray(value) for value in parameters.values() if hasattr(value, "dtype")]
    dtype = jnp.result_type(*typed) if typed else jnp.result_type(float)
    return [concretely(lambda xp, x: xp.asarray(x, dtype=dtype), value) for value in parameters.values()]


def require(good: Any, name: str, value: Any, fault: str, cure: str) -> None:
    """Raise ValueError naming the first place of ``value`` at which ``good`` is False."""
    bad = np.argwhere(~np.asarray(good))
    if len(bad) == 0:
        return
    at = tuple(int(i) for i in bad[0])
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    came = np.asarray(value)[at]
    raise ValueError(f"{place} {fault} (it is {np.array2string(came, separator=', ')}): {cure}")


def require_covariance(name: str, matrices: Any, rows: Iterable[tuple[int, ...]] | None = None) -> None:
    """Raise ValueError unless each matrix (*batch, feature, feature) in ``rows`` is a covariance."""
    matrices = np.asarray(matrices)
    tolerance = 1e3 * np.finfo(matrices.dtype).eps
    for at in np.ndindex(matrices.shape[:-2]) if rows is None else rows:
        matrix = matrices[at]
        place = f"{name}[{', '.join(map(str, at))}]" if at else name
        came = np.array2string(matrix, separator=", ")
        if not np.abs(matrix - matrix.T).max() <= tolerance * np.abs(matrix).max():
            raise ValueError(f"{place} is not symmetric (it is {came}): pass (M + M.T) / 2")
        try:
            np.linalg.cholesky((matrix + matrix.T) / 2)
        except np.linalg.LinAlgError:
            cure = "add to its diagonal, or drop features that depend on others"
            raise ValueError(f"{place} is not positive definite (it is {came}): {cure}") from None
