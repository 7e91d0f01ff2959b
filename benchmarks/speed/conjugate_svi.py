"""One iteration of conjugate variational inference for Gaussian roles, beside hmmlearn's.

An iteration is the E-step with its features and statistics, the bound with every KL term, and the update of
all blocks. hmmlearn's `VariationalGaussianHMM` (full covariance, scaling implementation) runs its own E-step,
bound and M-step on the same data. The error is that of the data term against log-space recursions in NumPy.
Linearity rows give the cost of a frame as data grow, beside that of the smallest size of their series.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, logsumexp

from benchmarks import report
from benchmarks.peers import why_skipped
from benchmarks.speed.timing import Contender, compare, peak_memory, speed_row
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import expected_statistics, natural_step, total_kl
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

SIZES = {"small": (20, 100, 5, 2), "medium": (100, 200, 10, 4), "large": (1000, 200, 10, 4)}
TARGETS = {"small": 8.0, "medium": 12.0, "large": 12.0}
LINEAR = {
    "sequences": [(n, 200) for n in (100, 1000, 5000)],
    "steps": [(100, t) for t in (200, 2000, 10_000)],
}
PEER = "hmmlearn.VariationalGaussianHMM"


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every size against hmmlearn, then of linearity."""
    sizes = {"small": SIZES["small"]} if settings.quick else SIZES
    if settings.size is not None:
        sizes = {settings.size: SIZES[settings.size]}
    rounds = settings.rounds or (3 if settings.quick else 9)
    dtype = settings.dtype or "float64"
    with jax.enable_x64(dtype == "float64"):
        rows = [_against_hmmlearn(name, shape, dtype, rounds, settings.seed) for name, shape in sizes.items()]
        if settings.size is None:
            series = {"sequences": LINEAR["sequences"][:2]} if settings.quick else LINEAR
            for along, shapes in series.items():
                rows += _linearity(along, shapes, dtype, rounds, settings.seed)
    return rows


def simulated(
    shape: tuple[int, int, int, int], dtype: str, seed: int
) -> tuple[RoleHMM, Any, Any, np.ndarray]:
    """Model, arranged data, blocks after a first guess, and the raw observations."""
    num_sequences, num_steps, num_states, num_features = shape
    rng = np.random.default_rng(seed)
    states = rng.integers(num_states, size=(num_sequences, num_steps))
    stay = rng.random(states.shape) < 0.8
    for t in range(1, num_steps):
        states[:, t] = np.where(stay[:, t], states[:, t - 1], states[:, t])
    centres = 3 * rng.standard_normal((num_states, num_features))
    x = (centres[states] + rng.standard_normal((*states.shape, num_features))).astype(dtype)
    lengths = np.full(num_sequences, num_steps, np.int32)
    data = Trajectories(x, None, None, lengths, np.ones(states.shape, bool))
    model = RoleHMM(num_states, GaussianEmission(num_features, dof=float(num_features + 2)))
    batch = model.arrange(data)
    statistics = jax.tree.map(jnp.asarray, model.start_statistics(rng, "kmeans++", [batch]))
    prior = model.prior()
    return model, batch, natural_step(prior, prior, statistics, 1.0, 1.0), x


@jax.jit
def iteration(model: RoleHMM, blocks: Any, batch: Any) -> tuple[Any, jax.Array, jax.Array]:
    """Blocks after one coordinate-ascent iteration, the bound before it, and its data term."""
    prior = model.prior()
    expected = expected_statistics(blocks)
    local, statistics = jax.value_and_grad(lambda e: model.log_normalizer(e, batch))(expected)
    return natural_step(blocks, prior, statistics, 1.0, 1.0), local - total_kl(blocks, prior), local


def _against_hmmlearn(name: str, shape: tuple, dtype: str, rounds: int, seed: int) -> dict[str, Any]:
    model, batch, blocks, x = simulated(shape, dtype, seed)
    contenders = {"ours": Contender(iteration, (model, blocks, batch))}
    why = why_skipped("hmmlearn.vhmm")
    if why is None:
        contenders["peer"] = _hmmlearn_iteration(x.astype(float), shape)
    timings = compare(
        contenders, rounds=rounds
    )  # before anything else calls ours, so that its compiling is seen
    local = float(iteration(model, blocks, batch)[2])
    reference = log_space_data_term(blocks, x)
    error = abs(local - reference) / abs(reference)
    if why is not None:
        return {"size": name, "peer": PEER, "dtype": dtype, "note": why, "error": error}
    return speed_row(
        name,
        PEER,
        dtype,
        timings["ours"],
        timings["peer"],
        target=TARGETS[name] if dtype == "float64" else None,
        error=error,
        peak_mb=peak_memory(contenders["ours"]),
        correct=error < (1e-10 if dtype == "float64" else 1e-4),
    )


def _hmmlearn_iteration(x: np.ndarray, shape: tuple) -> Contender:
    from hmmlearn.vhmm import VariationalGaussianHMM

    num_sequences, num_steps, num_states, _ = shape
    peer = VariationalGaussianHMM(
        num_states, covariance_type="full", implementation="scaling", random_state=0
    )
    flat, lengths = x.reshape(-1, x.shape[-1]), np.full(num_sequences, num_steps)
    peer._init(flat, lengths)
    peer._check()

    def iterate() -> None:
        statistics, log_probability = peer._do_estep(flat, lengths)
        peer._compute_lower_bound(log_probability)
        peer._do_mstep(statistics)

    return Contender(iterate)


def log_space_data_term(blocks: Any, x: np.ndarray) -> float:
    """The data term in float64 NumPy: expected log potentials by their formulas, then log-space recursions."""

    def expected_log(concentration):
        a = np.asarray(concentration, float)
        return digamma(a) - digamma(a.sum(-1, keepdims=True))

    mean, strength, dof, scale = (np.asarray(part, float) for part in blocks["mean_covariance"].standard())
    size = x.shape[-1]
    steps = np.empty((*x.shape[:2], len(dof)))
    for k in range(len(dof)):
        gap = x.astype(float) - mean[k]
        distance = np.einsum("nti,ij,ntj->nt", gap, np.linalg.inv(scale[k]), gap)
        log_precision = digamma((dof[k] + 1 - np.arange(1, size + 1)) / 2).sum() + size * np.log(2)
        log_precision -= np.linalg.slogdet(scale[k])[1]
        steps[..., k] = -0.5 * (
            size * np.log(2 * np.pi) - log_precision + size / strength[k] + dof[k] * distance
        )
    transition = expected_log(blocks["transition"].standard().concentration)
    alpha = expected_log(blocks["initial"].standard().concentration) + steps[:, 0]
    for t in range(1, x.shape[1]):
        alpha = logsumexp(alpha[:, :, None] + transition, axis=1) + steps[:, t]
    return float(logsumexp(alpha, axis=1).sum())


def _linearity(along: str, shapes: list, dtype: str, rounds: int, seed: int) -> list[dict[str, Any]]:
    contenders = {}
    for shape in shapes:
        model, batch, blocks, _ = simulated((*shape, 10, 4), dtype, seed)
        contenders[shape] = Contender(iteration, (model, blocks, batch))
    timings = compare(contenders, rounds=rounds)
    rows = []
    for shape in shapes:
        frames, least = np.prod(shape), np.prod(shapes[0])
        growth = float(np.median(timings[shape].cpu / timings[shapes[0]].cpu)) / (frames / least)
        row = speed_row(f"{shape[0]}x{shape[1]}", f"linear in {along}", dtype, timings[shape], timings[shape])
        kept = {key: row[key] for key in ("size", "peer", "dtype", "ours_ms", "ours_wall_ms", "compile_s")}
        rows.append({**kept, "cost_of_a_frame": growth, "target": 1.2, "reached": growth <= 1.2})
    return rows


if __name__ == "__main__":
    raise SystemExit(
        report.run("conjugate_svi", __doc__, measure, speed=True, sizes=SIZES, peers=("hmmlearn",))
    )
