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
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import concretely, is_concrete
from ethogram.models.families.cholesky_factors import half_log_det, inverse
from ethogram.models.model_object import model_object, static_field

__all__ = [
    "Blocks",
    "Gapped",
    "blocks_of",
    "count_patterns",
    "filled_in",
    "gapped",
    "marginal_of_mean",
    "marginal_potentials",
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
    size, out = x.shape[-1], blocks.missing
    apart = out[:, :, None] | out[:, None, :]
    root = jnp.linalg.cholesky(jnp.where(apart, jnp.eye(size, dtype=mean.dtype), covariance))
    precision = jnp.where(apart, 0, inverse(root))
    constant = jnp.einsum("pde,kde->pk", precision, half_square, precision="highest")
    constant = constant - half_log_det(root)[:, None]
    constant = constant - 0.5 * math.log(2 * math.pi) * jnp.sum(~out, axis=1)[:, None]
    here = in_slots(x, blocks)
    whitened = jnp.matmul(here, precision[blocks.pattern], precision="highest")
    own = -0.5 * jnp.sum(here * whitened, axis=-1, keepdims=True)
    values = own + jnp.matmul(whitened, mean.T, precision="highest") + constant[blocks.pattern][:, None]
    return in_frames(values, blocks).reshape(*observations.values.shape[:-1], len(mean))


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
    swept, constant = _sweep(form[None], blocks.missing[:, None])
    size = x.shape[-1]
    features = in_slots(_products(jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)), blocks)
    rows, columns = np.triu_indices(size + 1)
    halved = np.where(rows == columns, -0.5, -1.0).astype(form.dtype)
    weights = swept[..., rows, columns] * halved
    weights = weights.at[..., -1].add(constant)  # the last product is 1
    values = jnp.einsum("bwf,bkf->bwk", features, weights[blocks.pattern], precision="highest")
    return in_frames(values, blocks), (swept, features, blocks)


def _transposed(kept, g):
    swept, features, blocks = kept
    num_patterns, size = len(blocks.missing), swept.shape[-1]
    each = jnp.einsum(
        "bwf,bwk->bkf", features, in_slots(g, blocks).astype(features.dtype), precision="highest"
    )
    total = jax.ops.segment_sum(each, blocks.pattern, num_patterns)
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    seen = total[..., place]  # sums of (x, 1)(x, 1)', zero in missing features
    out = jnp.concatenate([blocks.missing, jnp.zeros_like(blocks.missing[:, :1])], axis=1)[:, None]
    across = out[..., :, None] & ~out[..., None, :]
    kept_rows = (~out[..., :, None] & np.eye(size, dtype=bool)).astype(swept.dtype)
    fill = jnp.where(across, -swept, kept_rows)  # (x, 1) with the conditional mean of what is missing
    whole = jnp.einsum("pkij,pkjl,pkml->pkim", fill, seen, fill, precision="highest")
    covariance = jnp.where(out[..., :, None] & out[..., None, :], -swept, 0)
    whole = whole + seen[..., -1:, -1:] * covariance
    return -0.5 * jnp.sum(whole, axis=0), jnp.zeros_like(features, shape=(len(blocks.slot), size - 1)), None


_potentials.defvjp(_with_sweep, _transposed)


def _products(x: Array) -> Array:
    """Upper triangle (frame, entry) of x x'."""
    return jnp.concatenate([x[:, i : i + 1] * x[:, i:] for i in range(x.shape[1])], axis=1)


def _sweep(form: Array, missing: Array) -> tuple[Array, Array]:
    """Forms swept on the missing features, and the constant that each integral adds."""
    shape = jnp.broadcast_shapes(form.shape[:-2], missing.shape[:-1])
    size = form.shape[-1]
    least = jnp.finfo(form.dtype).eps * jnp.diagonal(form, axis1=-2, axis2=-1)
    number = jnp.arange(size)

    def one(d, carry):
        swept, constant = carry
        out = missing[..., d]
        row = swept[..., d, :]
        pivot = jnp.where(out, jnp.maximum(row[..., d], least[..., d]), 1)
        scaled = row / pivot[..., None]
        at = number == d
        here, there = at[:, None], at[None, :]
        new = swept - row[..., :, None] * scaled[..., None, :]
        new = jnp.where(here, scaled[..., None, :], jnp.where(there, scaled[..., :, None], new))
        new = jnp.where(here & there, -1 / pivot[..., None, None], new)
        swept = jnp.where(out[..., None, None], new, swept)
        return swept, constant + jnp.where(out, 0.5 * (math.log(2 * math.pi) - jnp.log(pivot)), 0)

    start = jnp.broadcast_to(form, (*shape, size, size)), jnp.zeros(shape, form.dtype)
    return lax.fori_loop(0, size - 1, one, start)
