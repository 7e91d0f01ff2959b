r"""Frames of which some features are missing, in blocks that miss the same ones, and Gaussians without them.

The expected log density of a Gaussian under q is a quadratic form in the frame, :math:`-\frac12 (x, 1) H (x, 1)'`. For
missing features M, q(z) and q(x_M | z) are fitted together, and the step potential is the logarithm of the integral of
its exponential over x_M:

.. math:: -\tfrac12 (x_O, 1) \left(H_{RR} - H_{RM} H_{MM}^{-1} H_{MR}\right) (x_O, 1)'
          - \tfrac12 \ln |H_{MM}| + \tfrac12 |M| \ln 2\pi,

where R are the other rows of H. That depends on the frame by its pattern of missing features, and is the same work as
for whole frames once H is swept, for each pattern and state. Its gradient by H has the conditional mean of x_M, and its
conditional covariance, in the expected statistics.

Dempster, Laird, Rubin (1977), "Maximum likelihood from incomplete data via the EM algorithm", section 4.1.3; the sweep
operator: Little, Rubin (2002), "Statistical analysis with missing data", section 7.4.3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import concretely, is_concrete
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.quadratic_features import products
from ethogram.models.families.cholesky_factors import half_log_det, inverse
from ethogram.models.model_object import model_object, static_field
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "Blocks",
    "Gapped",
    "MarginalNormal",
    "blocks_of",
    "count_patterns",
    "filled_in",
    "gapped",
    "marginal_of_mean",
    "marginal_potentials",
    "normals",
    "whitened_log_density",
]

WIDTH = 64
"""Frames in a block, at most."""

WORD = 30
"""Features whose missingness one integer holds."""


@model_object
class Gapped:
    """Observations (sequence, time, feature), NaN in missing features of observed frames, finite elsewhere.

    `num_patterns` is at least the number of distinct sets of missing features, the empty one counted.
    """

    values: Any
    num_patterns: int = static_field()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.values, dtype)


class Blocks(NamedTuple):
    """Frames in blocks, all of whose frames miss the same features."""

    frame: Int[Array, "block width"]  # frame in each slot, the number of frames in an empty one
    slot: Int[Array, "frame"]  # of each frame, in blocks one after another
    pattern: Int[Array, "block"]
    missing: Bool[Array, "pattern feature"]


def count_patterns(observations: Any, observed: Any) -> int | None:
    """How many sets of features are missing in observed frames, rounded up to a power of 2; 1 where nothing is.

    None where the frames are traced.
    """
    if not is_concrete(observations, observed):
        return None
    values, observed = np.asarray(observations), np.asarray(observed)
    gaps = np.isnan(values) & observed[..., None]
    if not gaps.any():
        return 1
    found = np.unique(np.packbits(gaps.reshape(-1, gaps.shape[-1]), axis=-1), axis=0)
    return max(2, 2 ** (len(found) - 1).bit_length())


def gapped(observations: Any, observed: Any) -> Any:
    """The observations themselves, or where features are missing, `Gapped` ones."""
    count = count_patterns(observations, observed)
    if count == 1:
        return observations
    values = concretely(lambda xp, x, seen: xp.where(seen[..., None], x, 0), observations, observed)
    return Gapped(values, 2 ** min(observations.shape[-1], WORD) if count is None else count)


def blocks_of(missing: Bool[Array, "frame feature"], num_patterns: int) -> Blocks:
    """Blocks of frames, for at most `num_patterns` sets of missing features."""
    num_frames, size = missing.shape
    count = min(num_patterns, num_frames)
    width = min(WIDTH, 2 ** max(num_frames // count - 1, 0).bit_length())
    num_blocks = -(-num_frames // width) + count
    words = [
        jnp.sum(part * (2 ** np.arange(part.shape[1], dtype=np.int32)), axis=1, dtype=jnp.int32)
        for part in jnp.split(missing, list(range(WORD, size, WORD)), axis=1)
    ]
    order = jnp.lexsort(words)
    differs = jnp.stack([word[order][1:] != word[order][:-1] for word in words]).any(axis=0)
    number = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(differs, dtype=jnp.int32)])
    ends = jnp.searchsorted(number, jnp.arange(count, dtype=jnp.int32), side="right").astype(jnp.int32)
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]])
    last_blocks = jnp.cumsum(-(-(ends - starts) // width))
    first_blocks = jnp.concatenate([jnp.zeros(1, last_blocks.dtype), last_blocks[:-1]])
    slots = first_blocks[number] * width + jnp.arange(num_frames) - starts[number]
    return Blocks(
        jnp.full(num_blocks * width, num_frames).at[slots].set(order).reshape(num_blocks, width),
        jnp.zeros(num_frames, slots.dtype).at[order].set(slots),
        jnp.minimum(jnp.searchsorted(last_blocks, jnp.arange(num_blocks), side="right"), count - 1),
        missing[order[jnp.minimum(starts, num_frames - 1)]],
    )


def in_slots(x: Array, blocks: Blocks) -> Array:
    """Entries (block, width, ...) of frames (frame, ...), zero in empty slots."""
    return x.at[blocks.frame].get(mode="fill", fill_value=0)


def in_frames(x: Array, blocks: Blocks) -> Array:
    """Entries (frame, ...) of slots (block, width, ...)."""
    return x.reshape(-1, *x.shape[2:])[blocks.slot]


def marginal_potentials(
    form: Float[Array, "state row row"], x: Float[Array, "*frame feature"], num_patterns: int
) -> Float[Array, "*frame state"]:
    r"""Logarithm of the integral of :math:`\exp(-(x, 1) H_k (x, 1)' / 2)` over the features that are NaN.

    Parameters
    ----------
    form : H of every state, symmetric, the constant in the last row.
    x : frames, NaN in missing features.
    num_patterns : sets of missing features, at most.
    """
    flat = x.reshape(-1, x.shape[-1])
    missing = jnp.isnan(flat)
    filled = jnp.where(missing, 0, flat).astype(form.dtype)
    values = _potentials(form, filled, blocks_of(missing, num_patterns))
    return values.reshape(*x.shape[:-1], len(form))


def marginal_of_mean(
    mean: Float[Array, "state feature"],
    half_square: Float[Array, "state feature feature"],
    covariance: Float[Array, "feature feature"],
    observations: Gapped,
) -> Float[Array, "*frame state"]:
    r"""Expected log density of the features that are there, for a known covariance R and a mean with q(mu).

    :math:`E \ln N(x_O \mid \mu_O, R_{OO})`, linear in E mu and E(-mu mu' / 2).
    """
    x = observations.values.reshape(-1, observations.values.shape[-1])
    missing = jnp.isnan(x)
    x = jnp.where(missing, 0, x).astype(mean.dtype)
    blocks = blocks_of(missing, observations.num_patterns)
    out = blocks.missing
    root, scale = _factored(covariance, out)
    precision = jnp.where(out[:, None], 0, inverse(root))
    constant = jnp.einsum("pde,kde->pk", precision, half_square, precision="highest") - scale[:, None]
    here = in_slots(x, blocks)
    whitened = jnp.matmul(here, precision[blocks.pattern], precision="highest")
    own = -0.5 * jnp.sum(here * whitened, axis=-1, keepdims=True)
    values = own + jnp.matmul(whitened, mean.T, precision="highest") + constant[blocks.pattern][:, None]
    return in_frames(values, blocks).reshape(*observations.values.shape[:-1], len(mean))


def normals(mean: Any, covariance: Any, data: Trajectories | None) -> MarginalNormal:
    """Multivariate normal distributions whose densities sum out the features that are missing in `data`."""
    count: int | None = 1
    if data is not None and data.observations is not None:
        count = count_patterns(data.observations, data.observed)
    return _normals(mean, covariance, count)


@quick_jit(inline=True, static_argnums=2)
def _normals(mean: Any, covariance: Any, num_patterns: int | None) -> MarginalNormal:
    return MarginalNormal(mean, covariance, num_patterns)


class MarginalNormal(dist.MultivariateNormal):
    """Multivariate normal distributions whose values are NaN in missing features: these are summed out.

    Samples have all features. Covariances are factored once per set of missing features. Frames are whitened: expanded
    squares lose 2 digits in single precision 100 standard deviations from the origin.

    Parameters
    ----------
    loc, covariance_matrix : (*batch, feature) and (*batch, feature, feature).
    num_patterns : sets of features that are missing in the values, at most, the empty one counted; None where that is
        not known, and values without NaN take the density of complete frames.
    """

    pytree_aux_fields = ("num_patterns",)

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        num_patterns: int | None = None,
        *,
        scale_tril: Any = None,
    ):
        self.num_patterns = num_patterns
        super().__init__(loc, covariance_matrix, scale_tril=scale_tril, validate_args=False)

    def log_prob(self, value: Any) -> Array:
        """Log density (...) of the features that are not NaN, of values (..., feature)."""
        value = jnp.asarray(value)
        shape = jnp.broadcast_shapes(value.shape[:-1], self.batch_shape)
        axes = len(self.batch_shape)
        size = value.shape[-1]
        loc, factor = self.loc.reshape(-1, size), self.scale_tril.reshape(-1, size, size)
        if value.shape[value.ndim - 1 - axes : -1] == (1,) * axes:
            return self._of_all(loc, factor, value.reshape(-1, size)).reshape(shape)
        own = jnp.broadcast_to(np.arange(len(loc)).reshape(self.batch_shape), shape).reshape(-1, 1)
        each = self._of_all(loc, factor, jnp.broadcast_to(value, (*shape, size)).reshape(-1, size))
        return jnp.take_along_axis(each, own, axis=1).reshape(shape)

    def _of_all(self, loc: Array, factor: Array, frames: Array) -> Array:
        """Log densities (frame, entry) of frames (frame, feature) in all entries."""
        if self.num_patterns == 1:
            return _complete(loc, factor, frames)
        if self.num_patterns is not None:
            return _marginal(loc, factor, frames, self.num_patterns)
        count = 2 ** min(frames.shape[-1], WORD)
        return lax.cond(
            jnp.isnan(frames).any(),
            lambda: _marginal(loc, factor, frames, count),
            lambda: _complete(loc, factor, frames),
        )


def _complete(loc: Array, factor: Array, frames: Array) -> Array:
    """Log densities (frame, entry) of complete frames (frame, feature)."""
    gap = frames.T[None] - loc[..., None]
    return whitened_log_density(factor, jnp.eye(frames.shape[-1], dtype=factor.dtype)[None], gap)


def whitened_log_density(
    factor: Float[Array, "entry feature feature"],
    residual: Float[Array, "#entry feature row"],
    rows: Float[Array, "*batch row frame"],
) -> Float[Array, "frame entry"]:
    r"""Log densities :math:`\ln N(R_k y_t \mid 0, L_k L_k')` of rows y, which are whitened.

    The long axis is the last throughout.
    """
    size = factor.shape[-1]
    whitening = solve_triangular(
        factor, jnp.broadcast_to(residual, (*factor.shape[:-1], residual.shape[-1])), lower=True
    )
    white = jnp.matmul(whitening, rows, precision="highest")
    constant = half_log_det(factor) + 0.5 * size * math.log(2 * math.pi)
    return (-0.5 * jnp.sum(white**2, axis=1) - constant[:, None]).T


def _marginal(loc: Array, factor: Array, frames: Array, num_patterns: int) -> Array:
    """Log densities (frame, entry) of frames (frame, feature) in blocks that miss the same features."""
    missing = jnp.isnan(frames)
    size = frames.shape[-1]
    blocks = blocks_of(missing, num_patterns)
    out = blocks.missing[:, None]
    covariance = jnp.einsum("kij,klj->kil", factor, factor, precision="highest")
    root, scale = _factored(covariance, out)
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), root.shape)
    whitening = solve_triangular(root, identity, lower=True)
    x = in_slots(jnp.where(missing, 0, frames), blocks)[:, None] - loc[:, None]
    x = jnp.where(out[blocks.pattern][..., None, :], 0, x)
    white = jnp.einsum("bkij,bkwj->bkwi", whitening[blocks.pattern], x, precision="highest")
    values = -0.5 * jnp.sum(white**2, axis=-1) - scale[blocks.pattern][..., None]
    return in_frames(jnp.swapaxes(values, 1, 2), blocks)


def _factored(covariance: Array, missing: Array) -> tuple[Array, Array]:
    """Cholesky factors of covariances without missing features (..., feature), and the logs of their normalisers.

    In missing features the factor is that of the identity.
    """
    apart = missing[..., :, None] | missing[..., None, :]
    unit = jnp.eye(missing.shape[-1], dtype=covariance.dtype)
    root = jnp.linalg.cholesky(jnp.where(apart, unit, covariance))
    return root, half_log_det(root) + 0.5 * math.log(2 * math.pi) * jnp.sum(~missing, axis=-1)


def filled_in(frames: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Frames (frame, feature), NaN replaced by the mean of the label; 0 where a label has no value."""
    gaps = np.isnan(frames)
    if not gaps.any():
        return frames
    label, known = np.unique(labels, return_inverse=True)[1], np.where(gaps, 0, frames)
    total, count = np.zeros((2, label.max() + 1, frames.shape[1]))
    np.add.at(total, label, known)
    np.add.at(count, label, ~gaps)
    return np.where(gaps, (total / np.maximum(count, 1))[label], frames)


@jax.custom_vjp
def _potentials(form: Array, x: Array, blocks: Blocks) -> Array:
    """Potentials (frame, state); differentiable with respect to `form`."""
    return _with_sweep(form, x, blocks)[0]


def _with_sweep(form, x, blocks):
    size = form.shape[-1]
    swept, constant = _sweep(_by_pattern(form, blocks), _out(form, blocks))
    rows = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)
    features = in_slots(jnp.concatenate(products(rows, 1), axis=1), blocks)
    rows, columns = np.triu_indices(size)
    halved = np.where(rows == columns, -0.5, -1.0).astype(form.dtype)
    weights = swept[rows, columns] * halved[:, None]
    weights = weights.at[-1].add(constant)  # the last product is 1
    weights = jnp.transpose(weights.reshape(len(rows), -1, len(form)), (1, 2, 0))
    values = jnp.einsum("bwf,bkf->bwk", features, weights[blocks.pattern], precision="highest")
    return in_frames(values, blocks), (form, swept, features, blocks)


def _transposed(kept, g):
    form, swept, features, blocks = kept
    num_patterns, size = len(blocks.missing), form.shape[-1]
    each = jnp.einsum(
        "bwf,bwk->fbk", features, in_slots(g, blocks).astype(features.dtype), precision="highest"
    )
    total = jax.vmap(lambda one: jax.ops.segment_sum(one, blocks.pattern, num_patterns))(each)
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    seen = total.reshape(len(rows), -1)[place]  # sums of (x, 1)(x, 1)', zero in missing features
    out = _out(form, blocks)
    same = np.eye(size, dtype=bool)[..., None]
    # (x, 1) with the conditional mean of what is missing is fill' (x, 1)
    fill = jnp.where(
        ~out[:, None] & out[None], -swept, jnp.where(same & ~out[None], 1, 0).astype(swept.dtype)
    )

    def product(left, right):
        """Sum over i of left[i, j] right[i, k], for entries (i, j, ...)."""

        def add(i, total):
            return total + left[i][:, None] * right[i][None]

        return lax.fori_loop(0, size, add, jnp.zeros_like(left))

    whole = product(fill, product(seen, fill))
    whole = whole + jnp.where(out[:, None] & out[None], -swept, 0) * seen[-1, -1]
    gradient = -0.5 * jnp.sum(whole.reshape(size, size, num_patterns, -1), axis=2)
    nothing = jnp.zeros_like(features, shape=(len(blocks.slot), size - 1))
    return jnp.moveaxis(gradient, -1, 0), nothing, None


_potentials.defvjp(_with_sweep, _transposed)


def _by_pattern(form: Array, blocks: Blocks) -> Array:
    """Forms (row, row, pattern and state): the long axis is the last, along which loops are vectorised."""
    num_patterns, (num_states, size) = len(blocks.missing), form.shape[:2]
    each = jnp.moveaxis(form, 0, -1)[..., None, :]
    return jnp.broadcast_to(each, (size, size, num_patterns, num_states)).reshape(size, size, -1)


def _out(form: Array, blocks: Blocks) -> Array:
    """Whether a row (row, pattern and state) is a missing feature."""
    out = jnp.pad(blocks.missing, ((0, 0), (0, 1))).T
    return jnp.repeat(out, len(form), axis=1)


def _sweep(form: Array, missing: Array) -> tuple[Array, Array]:
    """Forms (row, row, ...) swept on the missing rows, and the constant (...) that each integral adds."""
    size = len(form)
    least = jnp.finfo(form.dtype).eps * form[np.arange(size), np.arange(size)]
    number = jnp.arange(size)[:, None]

    def one(d, carry):
        swept, constant = carry
        out, row = missing[d], swept[d]
        pivot = jnp.where(out, jnp.maximum(row[d], least[d]), 1)
        scaled = row / pivot
        here, there = (number == d)[:, None], (number == d)[None]
        new = swept - row[:, None] * scaled[None]
        new = jnp.where(here, scaled[None], jnp.where(there, scaled[:, None], new))
        new = jnp.where(here & there, -1 / pivot, new)
        constant = constant + jnp.where(out, 0.5 * (math.log(2 * math.pi) - jnp.log(pivot)), 0)
        return jnp.where(out, new, swept), constant

    return lax.fori_loop(0, size - 1, one, (form, jnp.zeros_like(form[0, 0])))
