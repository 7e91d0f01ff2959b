r"""Projection of Dirichlet rows onto bounds of their means, the last part of a constrained update.

For a row with unconstrained posterior :math:`Dir(\eta)` and bounds l, u on the means of its entries, it solves

.. math:: \max_\lambda \; \ln B(\eta) - KL(Dir(\lambda) \,\|\, Dir(\eta)) \quad
          \text{with } l_k \sum_i \lambda_i \le \lambda_k \le u_k \sum_i \lambda_i .

Unhelkar and Shah (2019), eq. 11 and 19, have equalities only, and solve it by SLSQP, row by row. Here an active-set
method adds the most violated bound and drops bounds whose multiplier has the wrong sign; a feasible row is its own
solution. With the active entries written as :math:`\lambda_k = t_k n`, the Hessian in the logs of the others is
diagonal plus rank one for any number of bounds: a Newton step costs O(K), and all rows are one compiled call. The
objective is not concave, so the better of two starts is kept. In a fit, rows change little from one iteration to the
next: the search starts at the last projection, with the bounds active there, and from two starts only where that fails.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import digamma, gammaln

from ethogram.models.arguments import warn_user
from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.families.exponential_family import ConjugateBlock
from ethogram.models.families.polygamma import trigamma_and_tetragamma
from ethogram.models.quick_jit import quick_jit

__all__ = ["Projection", "constrain", "may_not_fall", "project_rows", "row_objective", "warn_of_rows"]

MAX_TRIALS = 200
"""Maximum number of points that Newton's method evaluates, backtracking included."""

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Norm of the gradient in log coordinates, relative to that of its terms, at which a row has converged."""

CHUNK = 64
"""Rows per vectorised projection."""

LARGE_INFLATION = 10
"""Ratio of the sum of a constrained row to that of its unconstrained posterior from which a fit warns."""


class Projection(NamedTuple):
    """Constrained rows, with their inflation and convergence."""

    concentration: Array  # (row, entry)
    inflation: Array  # (row,): sum over that of the unconstrained posterior; far above 1 means pseudo-data
    converged: Array  # (row,) bool


class _Held(NamedTuple):
    """Equality-constrained subproblem: rows with fixed means of some entries."""

    free: Array  # eta (row, entry); 0 at structural zeros
    fixed: Array  # (row, entry) bool: the mean is given, or the entry is a structural zero
    mean: Array  # (row, entry), 0 where not given


class _Point(NamedTuple):
    """Iterate of Newton's method, with its next step."""

    logs: Array  # (row, entry): of the loose entries; the first also of the sum where none is loose
    value: Array  # (row,)
    step: Array  # (row, entry)
    slope: Array  # (row,): of the objective along the step
    size: Array  # (row,): of the gradient, beside that of its terms
    price: Array  # (row, entry): derivative of the maximum by the given means, 0 at the others


class _Newton(NamedTuple):
    """Newton's method under way."""

    point: _Point
    share: Array  # (row,): of the step that is tried next
    trials: Array  # (row,): points evaluated


class _Search(NamedTuple):
    """Active-set search under way."""

    active: Array  # (2, row, entry) bool: lower and upper bounds that hold with equality
    row: Array  # (row, entry)
    warm: Array  # (row,) bool: the search began at an earlier projection, with one start
    second: Array  # (row,) bool: Newton's method is at its second start
    first: _Point  # where it ended from the first
    newton: _Newton
    rounds: Array  # (row,): subproblems solved
    done: Array  # (row,) bool
    converged: Array  # (row,) bool


def row_objective(concentration: Array, free: Array) -> Array:
    r""":math:`\ln B(\eta) - KL(Dir(\lambda) \| Dir(\eta))` of every row (..., entry), in nats.

    An entry that is 0 in both is left out.
    """
    present = free > 0
    row, free = jnp.where(present, concentration, 1), jnp.where(present, free, 1)
    total = jnp.sum(jnp.where(present, row, 0), -1)
    away = jnp.sum((row - free) * (digamma(row) - digamma(total)[..., None]), -1)
    return jnp.sum(gammaln(row), -1) - gammaln(total) - away


def project_rows(free: Any, lower: Any, upper: Any, held: Any = None, solved: Any = None) -> Projection:
    """Concentrations that maximise the objective with means within the bounds, from eta, 0 at structural zeros.

    The bounds (row, entry) of the means are 0 and 1 where there is none, and equal where the mean is given. Each row
    must have a mean between them: :class:`~ethogram.models.intents.IntentConstraints` sees to that. `held` (row, entry)
    are projections of similar rows, where `solved` (row,): the search starts there, and anew where it fails.
    """
    free, lower, upper = (jnp.asarray(x) for x in (free, lower, upper))
    if held is None:
        held, solved = free, jnp.zeros(len(free), bool)
    return _in_chunks(free, lower, upper, jnp.asarray(held), jnp.asarray(solved))


@quick_jit
def _in_chunks(free, lower, upper, held, solved):
    """Rows in chunks, so that a slow row delays its own chunk only."""
    count = len(free)
    if count <= CHUNK:
        return _projected_rows(free, lower, upper, held, solved)
    chunks = -(-count // CHUNK)
    filled = []
    for rows, value in ((free, 1), (lower, 0), (upper, 1), (held, 1), (solved, False)):
        spare = ((0, chunks * CHUNK - count), *((0, 0),) * (rows.ndim - 1))
        rows = jnp.pad(rows, spare, constant_values=value)
        filled.append(rows.reshape(chunks, CHUNK, *rows.shape[1:]))
    found = lax.map(lambda rows: _projected_rows(*rows), filled)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


def _projected_rows(free, lower, upper, held, solved):
    """One loop for all rows: an iteration evaluates one point of Newton's method in each that is not done."""
    present = free > 0
    given = present & (lower >= upper)
    tolerance = TOLERANCE[str(free.dtype)]
    slack = 8 * jnp.finfo(free.dtype).eps

    def excess(row):
        """How far means lie below (first) and above (second) their bounds."""
        mean = row / jnp.sum(row, -1, keepdims=True)
        below, above = lower * (1 - slack) - mean, mean - upper * (1 + slack)
        return jnp.where(present & ~given, jnp.stack([below, above]), -1)

    def add_worst(active, beyond):
        """Active bounds (2, row, entry) with the most violated one; alone, where those before leave it no room."""
        new = _worst(beyond)
        chosen = active | new
        # A new bound on an entry takes the place of the opposite one.
        chosen = chosen & ~(new[::-1] & active)
        total = jnp.sum(target_of(chosen), -1)
        full = jnp.all(jnp.any(chosen, 0) | given | ~present, -1)
        infeasible = (
            (total > 1 + slack) | (~full & (total >= 1 - slack)) | (full & (jnp.abs(total - 1) > 1e-6))
        )
        return jnp.where(infeasible[:, None], new, chosen)

    def target_of(active):
        return jnp.where(given | active[0], lower, jnp.where(active[1], upper, 0))

    def problem_of(active):
        fixed = given | jnp.any(active, 0) | ~present
        return _Held(free, fixed, target_of(active))

    def start_of(active, row, warm, second):
        return _newton_from(_start(problem_of(active), choose(warm, row, free), second & ~warm))

    def body(search):
        active, row, warm, second, first, newton, rounds, done, converged = search
        problem = problem_of(active)
        newton, ended = _newton(problem, newton, warm)
        first_ended = ended & ~done & ~warm & ~second
        point = choose(
            warm | ~jnp.isfinite(first.value) | (newton.point.value > first.value), newton.point, first
        )
        new = _row_at(problem, point.logs)
        beyond = excess(new)
        violated = jnp.any(beyond > 0, (0, 2))
        scale = jnp.sum(jnp.abs(point.price), -1, keepdims=True) + 1
        wrong = jnp.where(active, jnp.stack([point.price, -point.price]) / scale, -1) - 1e2 * tolerance
        change = violated | jnp.any(wrong > 0, (0, 2))
        more = jnp.where(violated[:, None], add_worst(active, beyond), active & ~_worst(wrong))
        # Converged, or stalled by rounding.
        good = ~change & (point.size <= 1e3 * tolerance) & jnp.all(jnp.isfinite(new), -1)
        solved = ended & ~done & ~first_ended
        rounds = rounds + solved
        go_on = solved & change & (rounds < 4 * free.shape[-1])
        warm_failed = solved & ~go_on & ~good & warm
        continues = first_ended | go_on | warm_failed
        row = choose(solved, new, row)
        active = jnp.where(warm_failed[:, None], cold_start, jnp.where(go_on[:, None], more, active))
        warm, rounds = warm & ~warm_failed, jnp.where(warm_failed, 0, rounds)
        second = jnp.where(continues, first_ended, second)
        first = choose(first_ended, newton.point, first)
        newton = choose(continues, start_of(active, row, warm, second), newton)
        finished = solved & ~continues
        converged = jnp.where(finished, good, converged)
        return _Search(active, row, warm, second, first, newton, rounds, done | finished, converged)

    beyond = excess(free)
    none = jnp.zeros((2, *free.shape), bool)
    bound = jnp.any(given, -1)
    done = ~jnp.any(beyond > 0, (0, 2)) & ~bound
    cold_start = jnp.where(bound[:, None], none, add_worst(none, beyond))
    at_bounds = (excess(held) > -1e2 * slack) & jnp.stack([lower > 0, upper < 1])
    warm = solved & ~done
    active = jnp.where((warm & jnp.any(at_bounds, (0, 2)))[:, None], at_bounds, cold_start)
    row = choose(warm, held, free)
    never = jnp.zeros_like(done)
    newton = start_of(active, row, warm, never)
    search = _Search(active, row, warm, never, newton.point, newton, 0 * jnp.int32(done), done, done)
    search = lax.while_loop(lambda search: ~jnp.all(search.done), body, search)
    return Projection(search.row, jnp.sum(search.row, -1) / jnp.sum(free, -1), search.converged)


def _worst(amount: Array) -> Array:
    """Mask (2, row, entry) of the largest amount of each row, where that is above 0."""
    side, rows, entries = amount.shape
    flat = jnp.moveaxis(amount, 0, 1).reshape(rows, side * entries)
    chosen = jax.nn.one_hot(jnp.argmax(flat, -1), side * entries, dtype=bool) & (flat > 0)
    return jnp.moveaxis(chosen.reshape(rows, side, entries), 1, 0)


def _start(held: _Held, row: Array, second: Array) -> Array:
    """Logs where Newton's method starts: at the loose entries of a row, or with a surplus on the largest of them.

    With the surplus they are as many in all as the largest held entry needs.
    """
    free, fixed, mean = held
    rest = 1 - jnp.sum(mean, -1)
    loose = jnp.where(fixed, 0, row)
    wanted = jnp.max(jnp.where(fixed & (mean > 0), free / jnp.where(mean > 0, mean, 1), 0), -1)
    size = jnp.maximum(jnp.sum(free, -1), wanted)
    surplus = jnp.where(second, jnp.maximum(size * rest - jnp.sum(loose, -1), 0), 0)
    largest = jax.nn.one_hot(jnp.argmax(loose, -1), free.shape[-1], dtype=free.dtype)
    entries = jnp.where(fixed, 1, row) + surplus[:, None] * largest
    only_sum = jnp.all(fixed, -1)[:, None] & (jnp.arange(free.shape[-1]) == 0)
    return jnp.log(jnp.where(only_sum, jnp.sum(row, -1, keepdims=True), entries))


def choose(where: Array, new: Any, old: Any) -> Any:
    """`new` where the mask, of the first axes or a scalar, is True, else `old`."""

    def pick(new, old):
        return jnp.where(where.reshape(where.shape + (1,) * (old.ndim - where.ndim)), new, old)

    return jax.tree.map(pick, new, old)


def _newton_from(logs: Array) -> _Newton:
    nothing, nowhere = jnp.zeros_like(logs), jnp.full_like(logs[:, 0], -jnp.inf)
    point = _Point(logs, nowhere, nothing, nothing[:, 0], -nowhere, nothing)
    return _Newton(point, jnp.ones_like(nowhere), jnp.zeros(len(logs), jnp.int32))


def _newton(held: _Held, newton: _Newton, warm: Array) -> tuple[_Newton, Array]:
    """Newton's method with backtracking in the logs of the unconstrained entries: one point, and whether it ends.

    A point is accepted if the objective increases enough, else the step is halved.
    """
    point, share, trials = newton
    tolerance = TOLERANCE[str(point.logs.dtype)]
    noise = 1e-14 if point.logs.dtype == jnp.float64 else 1e-6
    trial = _evaluate(held, point.logs + share[:, None] * point.step)
    accepted = trial.value >= point.value + 1e-4 * share * point.slope - noise * jnp.abs(point.value)
    # The search stops where the expected increase is below rounding: from there on every step is accepted; close to
    # an earlier projection, where this is common, each that makes the gradient smaller.
    flat = jnp.isfinite(point.value) & (point.slope <= noise * (1 + jnp.abs(point.value)))
    near = flat & warm & (point.size <= 1e3 * tolerance)
    last = (flat & accepted) | near
    accepted = accepted | (near & (trial.size < point.size))
    point = choose(accepted, trial, point)
    share = jnp.where(accepted, 1, share / 2)
    ended = last | (point.size <= tolerance) | (share < 1e-6) | (trials + 1 >= MAX_TRIALS)
    return _Newton(point, share, trials + 1), ended


def _row_at(held: _Held, logs: Array) -> Array:
    entries = jnp.where(held.fixed, 0, jnp.exp(logs))
    none = jnp.all(held.fixed, -1)
    rest = jnp.where(none, 1, 1 - jnp.sum(held.mean, -1))
    total = jnp.where(none, jnp.exp(logs[:, 0]), jnp.sum(entries, -1) / rest)
    return jnp.where(held.fixed, held.mean * total[:, None], entries)


def _evaluate(held: _Held, logs: Array) -> _Point:
    """Objective, Newton step and directional derivative at a point."""
    free, fixed, mean = held
    row, present = _row_at(held, logs), free > 0
    total = jnp.sum(row, -1)
    curves, bends = trigamma_and_tetragamma(jnp.concatenate([jnp.where(present, row, 1), total[:, None]], -1))
    curve, bend, curve_total, bend_total = curves[:, :-1], bends[:, :-1], curves[:, -1], bends[:, -1]
    away = jnp.where(present, free - row, 0)
    away_total = jnp.sum(away, -1)
    gradient = curve * away - (curve_total * away_total)[:, None]  # of the objective by the entries
    none = jnp.all(fixed, -1)
    rest = jnp.where(none, 1, 1 - jnp.sum(mean, -1))
    loose = jnp.where(fixed, 0, row)
    shared = jnp.sum(mean * gradient, -1) / rest
    slope = jnp.where(fixed, 0, (gradient + shared[:, None]) * loose)
    along_ray = total * jnp.sum(mean * gradient, -1)
    price = jnp.where(fixed & present, (gradient + jnp.where(none, 0, shared)[:, None]) * total[:, None], 0)

    def ray_step(diagonal, across, own):
        curvature = total**2 * (jnp.sum(jnp.where(fixed, diagonal * mean**2, 0), -1) - across) - own
        return along_ray / jnp.where(curvature > 0, curvature, 1), curvature > 0

    # Minus the Hessian is diag(delta) - kappa m m'; where that is not positive, its parts are made so, one by one.
    diagonal, across = curve - bend * away, curve_total - bend_total * away_total
    delta = jnp.where(fixed, 1, diagonal * loose**2 - slope)
    kappa = (across - jnp.sum(jnp.where(fixed, diagonal * mean**2, 0), -1)) / rest**2
    right = jnp.all(delta > 0, -1) & (kappa * jnp.sum(loose**2 / delta, -1) < 1)
    firm = jnp.maximum(jnp.abs(delta), 1e-3 * jnp.where(fixed, 1, curve * loose**2))
    delta = jnp.where(right[:, None], delta, firm)
    kappa = jnp.where(right, kappa, jnp.minimum(kappa, 0.5 / jnp.sum(loose**2 / firm, -1)))
    ahead = kappa * jnp.sum(loose * slope / delta, -1) / (1 - kappa * jnp.sum(loose**2 / delta, -1))
    step = slope / delta + ahead[:, None] * loose / delta
    exact, fisher = ray_step(diagonal, across, along_ray), ray_step(curve, curve_total, 0.0)
    ray = jnp.where(exact[1], exact[0], fisher[0])
    first = jnp.arange(row.shape[-1]) == 0
    step = jnp.where(none[:, None], jnp.where(first, ray[:, None], 0), jnp.where(fixed, 0, step))
    slope = jnp.where(none[:, None], jnp.where(first, along_ray[:, None], 0), slope)
    step = step * jnp.minimum(1, 4 / jnp.maximum(jnp.max(jnp.abs(step), -1, keepdims=True), 4))
    scale = jnp.sum(jnp.abs(curve * away * row), -1) + 1
    size = jnp.max(jnp.abs(slope), -1) / scale
    return _Point(logs, row_objective(row, free), step, jnp.sum(slope * step, -1), size, price)


def constrain(blocks: Any) -> Any:
    """Blocks with their constrained rows projected; the last part of an update.

    The search starts at the last projection where one was found. A row keeps its value where that is better, or where
    Newton's method fails, so that the ELBO never falls. Rows that keep their sum take the mean of their projection,
    which is lost: their search starts anew.
    """
    return jax.tree.map(
        lambda block: _projected(block) if isinstance(block, ConstrainedDirichlet) else block,
        blocks,
        is_leaf=lambda node: isinstance(node, ConjugateBlock),
    )


def _projected(block: ConstrainedDirichlet) -> ConstrainedDirichlet:
    free = block.free_rows()
    solved = jnp.zeros_like(block.solved) if block.keep else block.solved
    found = project_rows(free, block.lower, block.upper, block.held, solved)
    if block.keep:
        kept = found.concentration / found.inflation[:, None]
        stayed = block.held / block.inflation()[:, None]
        return block.with_rows(jnp.where(found.converged[:, None], kept, stayed), found.converged)
    new, old = row_objective(jnp.stack([found.concentration, block.held]), free)
    better = found.converged & ~(new < old)
    return block.with_rows(jnp.where(better[:, None], found.concentration, block.held), found.converged)


def may_not_fall(blocks: dict[str, ConjugateBlock]) -> bool:
    """Whether CAVI cannot decrease the ELBO: it can where constrained rows keep their sum."""
    return not any(isinstance(block, ConstrainedDirichlet) and block.keep for block in blocks.values())


@quick_jit
def _inflation(block: ConstrainedDirichlet) -> Array:
    return block.inflation()


def warn_of_rows(blocks: dict[str, ConjugateBlock]) -> None:
    """Warn where constraints inflated rows far beyond data and prior, or rows could not be projected."""
    for name, block in blocks.items():
        if isinstance(block, ConstrainedDirichlet):
            inflation = np.asarray(_inflation(block))
            large, solved = inflation > LARGE_INFLATION, np.asarray(block.solved)
            if not solved.all():
                text = (
                    f"{(~solved).sum()} of {len(solved)} constrained rows of {name} could not be projected and kept "
                    "their last feasible value: strengthen the prior, or loosen the bounds"
                )
                warn_user(text, RuntimeWarning)
            if large.any():
                text = (
                    f"constraints make {large.sum()} of {len(large)} constrained rows of {name} up to "
                    f"{inflation.max():.0f} times as concentrated as data and prior do: bounds near 0 or 1, or in "
                    "conflict with the data, act as pseudo-counts; use never_switch for zeros, or loosen the bounds"
                )
                warn_user(text, RuntimeWarning)
