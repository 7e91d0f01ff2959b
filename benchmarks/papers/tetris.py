"""Tetris players inferred from their decisions: Singh, Chopin and Whiteley, section 5.2, on simulated players.

"learned": the posterior of the weights of raw features (prior variance 2500) given the first 10, 20, 50 and 100 of 500
decisions, with the last 400 held out; the most probable draw of 100 decisions then plays games of up to 250 moves. The
floor of the action error is that of an oracle with the true weights. "hurried": of the same 100 pieces the player
places 100, 72, 55 or 17, as the human player of the paper's third experiment did; the others drop without a decision.
The paper plays on 30 rows, and prints lengths of games of 20 rows.

Small samples of these players are mostly separated: only the prior bounds their posterior, and every sampler mixes
slowly there, as `min_ess` and `divergences` show.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

from benchmarks import report
from ethogram.domains import tetris
from ethogram.inference.choices.predictions import choice_error, noise_floor, predict_choice_probabilities
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import ProbitChoice
from ethogram.models.data.trajectories import Metadata

__all__ = ["hurried_play", "measure"]

PLAYERS = ((-3.0, -15.0, -1.0), (0.0, 5.0, 0.0), (-20.0, 0.0, 1.0))
MODEL = NoisyMDP(2500.0, "features")
DECISIONS, TEST = 500, 400
CHAINS = 4
OF_FIT = ("player", "observations", "sampler")
PUBLISHED = {
    "survives": "80 of 100 games of 250 moves",
    "truth": ("did not lose within 500", "ends after 10 to 20 moves", "ends after 10 to 20 moves"),
    "tightens": "marginals tighten with data",
}


class Sizes(NamedTuple):
    """What a run takes: seeds by rows; warm-up and draws by decisions learned from."""

    seeds: dict[int, int]
    lengths: dict[int, tuple[int, int]]
    players: tuple[tuple[float, ...], ...]
    hurried: dict[int, tuple[int, int]]
    hurried_seeds: int
    pxda: tuple[int, int, int]
    games: int


FULL = Sizes(
    {20: 3, 30: 1},
    {10: (200, 250), 20: (200, 250), 50: (200, 200), 100: (200, 150)},
    PLAYERS,
    {17: (200, 250), 55: (200, 200), 72: (200, 200), 100: (200, 150)},
    3,
    (50, 300, 1500),
    100,
)
FEW = {10: (60, 60), 20: (60, 60)}
QUICK = Sizes({20: 1}, FEW, PLAYERS[:1], FEW, 1, (20, 30, 100), 20)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the players, of their fits, of hurried players, and of the simulator."""
    sizes = QUICK if settings.quick else FULL
    rows = [rows_of_simulator(settings.seed)]
    for height, seeds in sizes.seeds.items():
        rows += rows_of_truth(sizes, height, settings.seed)
        learned = []
        for player in sizes.players:
            for seed in range(settings.seed, settings.seed + seeds):
                with_pxda = seed == settings.seed and height == min(sizes.seeds)
                learned += rows_of_learning(sizes, player, height, seed, with_pxda)
        rows += learned + checks_of_learning(sizes, learned, height)
    return rows + rows_of_hurry(sizes, settings.seed)


def named(player: tuple[float, ...]) -> str:
    return ",".join(f"{weight:g}" for weight in player)


def cut(decisions: Decisions, some: Any) -> Decisions:
    """Some of the decisions."""
    features, legal, choice = (x[some] for x in (decisions.features, decisions.legal, decisions.choice))
    return decisions._replace(features=features, legal=legal, choice=choice)


def bare(decisions: Decisions) -> Decisions:
    """The arrays without metadata, which is static and would compile a program for each set of names."""
    return jax.tree.map(np.asarray, decisions._replace(metadata=Metadata()))


class Posterior(NamedTuple):
    """Draws (chain, draw, parameter), the most probable one, and diagnostics of the chains."""

    theta: np.ndarray
    mode: np.ndarray
    min_ess: float
    divergences: int | None


@functools.partial(jax.jit, static_argnums=(2, 3))
def _draws_by_nuts(key: Array, data: Decisions, warmup: int, draws: int) -> tuple[Array, Array, Array]:
    # Short trees while the mass matrix is learned: raw features differ in scale by a hundred.
    kernel = NUTS(MODEL, dense_mass=True, max_tree_depth=(4, 10))
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    mcmc.run(key, data, extra_fields=("potential_energy", "diverging"))
    fields = mcmc.get_extra_fields(group_by_chain=True)
    return mcmc.get_samples(group_by_chain=True)["theta"], fields["potential_energy"], fields["diverging"]


def learn(key: Array, data: Decisions, warmup: int, draws: int) -> Posterior:
    """The posterior of the weights by NUTS, four chains."""
    fields = _draws_by_nuts(key, bare(data), warmup, draws)
    theta, energy, diverging = (np.asarray(x) for x in fields)
    best = theta[np.unravel_index(np.argmin(energy), energy.shape)]
    ess = float(np.min(effective_sample_size(theta)))
    return Posterior(theta, best, ess, int(diverging.sum()))


def learn_by_pxda(key: Array, data: Decisions, warmup: int, draws: int) -> Posterior:
    """The same by parameter-expanded data augmentation."""
    kernel = PXDA(MODEL)
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that decisions are separated
        mcmc.run(key, data)
    theta = np.asarray(mcmc.get_samples(group_by_chain=True)["theta"])
    ess = float(np.min(effective_sample_size(theta)))
    return Posterior(theta, theta.mean((0, 1)), ess, None)


@jax.jit
def mean_log_probability(theta: Array, data: Decisions) -> Array:
    """Mean held-out log predictive density of the choices, given draws (draw, parameter)."""

    def log_p(_, one):
        return None, ProbitChoice(MODEL.design(data) @ one, data.legal).log_prob(data.choice)

    each = lax.scan(log_p, None, theta)[1]
    return jnp.mean(jax.nn.logsumexp(each, axis=0) - jnp.log(len(theta)))


def judged(found: Posterior, test: Decisions, key: Array) -> dict[str, Any]:
    """Columns of the predictions of held-out decisions."""
    flat = found.theta.reshape(-1, found.theta.shape[-1])
    # The paper's vote: probabilities of all options at all draws would take far longer, for nearly the same choices.
    fields = predict_choice_probabilities(key, MODEL, {"theta": flat}, test, vote=True)
    few = flat[:: max(1, len(flat) // 100)]
    return {
        "action_error": choice_error(np.asarray(fields).argmax(-1), test),
        "mean_log_p": float(mean_log_probability(few, bare(test))),
        "min_ess": found.min_ess,
        "divergences": found.divergences,
    }


def rows_of_learning(
    sizes: Sizes, player: tuple[float, ...], height: int, seed: int, with_pxda: bool
) -> list[dict[str, Any]]:
    """A row for each number of training decisions of one player, and one by PX-DA on request."""
    truth = np.asarray(player, np.float32)
    key_play, key_fit, key_vote, key_games = jax.random.split(jax.random.key(seed), 4)
    decisions = tetris.simulate(key_play, player, DECISIONS, rows=height).decisions
    test = cut(decisions, slice(DECISIONS - TEST, None))
    common = {"kind": "learned", "player": named(player), "rows": height, "seed": seed}
    floor = {
        "noise_floor": noise_floor(test.features @ truth, test),
        "truth_log_p": float(mean_log_probability(truth[None], bare(test))),
    }
    rows = []
    for count, lengths in sizes.lengths.items():
        found = learn(key_fit, cut(decisions, slice(count)), *lengths)
        low, high = np.quantile(found.theta, [0.025, 0.975], axis=(0, 1))
        row = {**common, "observations": count, "sampler": "NUTS", **judged(found, test, key_vote), **floor}
        row["inside"] = int(np.sum((low <= truth) & (truth <= high)))
        if count == max(sizes.lengths):
            moves = tetris.play(key_games, found.mode, sizes.games, 250, rows=height)
            row |= {"survived": int(np.sum(moves >= 250)), "games": sizes.games, "moves": float(moves.mean())}
        rows.append(row | {"draws": found.theta.mean((0, 1)).tolist()})
    count, warmup, draws = sizes.pxda
    if with_pxda:
        found = learn_by_pxda(key_fit, cut(decisions, slice(count)), warmup, draws)
        rows.append(
            {**common, "observations": count, "sampler": "PXDA", **judged(found, test, key_vote), **floor}
        )
    return rows


def checks_of_learning(sizes: Sizes, rows: list[dict[str, Any]], height: int) -> list[dict[str, Any]]:
    """Comparisons with the paper and with the floor; means over seeds."""
    least, most = min(sizes.lengths), max(sizes.lengths)

    def mean(column: str, player: tuple[float, ...], count: int) -> float:
        wanted = (named(player), count, "NUTS")
        return float(np.mean([row[column] for row in rows if tuple(row[key] for key in OF_FIT) == wanted]))

    checks = []
    for player in sizes.players:
        few, many = mean("action_error", player, least), mean("action_error", player, most)
        text = f"action error, at {most} less at {least}"
        checks.append(check(player, height, most, text, many - few, 0.0, many <= few))
    first = sizes.players[0]
    error, floor = mean("action_error", first, most), mean("noise_floor", first, most)
    survived = mean("survived", first, most) * 100 / sizes.games
    fields = (first, height, most)
    checks.append(check(*fields, "action error less floor", error - floor, 0.03, error - floor <= 0.03))
    checks.append(check(*fields, "action error", error, 0.12, error < 0.12))
    survival = check(*fields, "survives 250 moves, of 100", survived, 70.0, survived >= 70)
    return [*checks, survival | {"published": PUBLISHED["survives"]}]


def check(
    player: tuple[float, ...], height: int, count: int, text: str, value: float, target: float, reached: bool
) -> dict[str, Any]:
    """A row of a target; targets are those of 100 decisions."""
    row = {"kind": "check", "player": named(player), "rows": height, "observations": count}
    row |= {"check": text, "value": value}
    return row | ({"target": target, "reached": bool(reached)} if count == 100 else {})


def rows_of_truth(sizes: Sizes, height: int, seed: int) -> list[dict[str, Any]]:
    """How long the players themselves last."""
    rows = []
    for number, player in enumerate(sizes.players):
        moves = tetris.play(jax.random.key(seed), player, sizes.games, 500, rows=height)
        row = {"kind": "truth", "player": named(player), "rows": height, "seed": seed, "games": sizes.games}
        row |= {"survived": int(np.sum(moves >= 500)), "moves": float(moves.mean())}
        rows.append(row | {"published": PUBLISHED["truth"][number]})
    return rows


@functools.partial(jax.jit, static_argnums=4)
def hurried_play(
    key: Array, values: Array, pieces: Array, decided: Array, height: int
) -> tuple[Array, Array, Array]:
    """Features, legality and choice at every piece, of a player who decides on some of them.

    Parameters
    ----------
    pieces : (move,) numbers.
    decided : (move,) booleans; where False the piece falls straight, unturned and from the middle.
    """
    table = tetris.placements()
    width = table.cells[..., 1].max(-1) - table.cells[..., 1].min(-1) + 1
    middle = (table.rotation == 0) & (table.column == (10 - width) // 2) & table.exists
    straight = jnp.asarray(middle.argmax(-1))

    def move(board, fields):
        key, piece, decides = fields
        legal = tetris.outcomes(board, piece).legal
        ended = jnp.any(board[0]) | ~jnp.where(decides, jnp.any(legal), legal[straight[piece]])
        found = tetris.outcomes(jnp.where(ended, False, board), piece)
        noisy = found.features @ values + jax.random.normal(key, found.legal.shape)
        slot = jnp.where(decides, jnp.argmax(jnp.where(found.legal, noisy, -jnp.inf)), straight[piece])
        return found.boards[slot], (found.features, found.legal, slot)

    fields = (jax.random.split(key, len(pieces)), pieces, decided)
    return lax.scan(move, jnp.zeros((height, 10), bool), fields)[1]


def rows_of_hurry(sizes: Sizes, first_seed: int) -> list[dict[str, Any]]:
    """The same pieces under less and less time: posterior standard deviations of the weights."""
    player, height, moves = sizes.players[0], 20, max(sizes.hurried)
    truth = jnp.asarray(player)
    rows = []
    for seed in range(first_seed, first_seed + sizes.hurried_seeds):
        key_pieces, key_play, key_order, key_fit = jax.random.split(jax.random.key(seed + 1000), 4)
        pieces = jax.random.randint(key_pieces, (moves,), 0, len(tetris.PIECES))
        order = np.asarray(jax.random.permutation(key_order, moves))
        for count, lengths in sizes.hurried.items():
            decided = order < count
            played = hurried_play(key_play, truth, pieces, jnp.asarray(decided), height)
            data = cut(Decisions(*map(np.asarray, played)), decided)
            found = learn(key_fit, data, *lengths)
            flat = found.theta.reshape(-1, len(player))
            spread = flat.std(0)
            row = {"kind": "hurried", "player": named(player), "rows": height, "seed": seed}
            row |= {"observations": count, "sampler": "NUTS", "min_ess": found.min_ess}
            row |= {"divergences": found.divergences}
            row |= dict(zip(("sd_height", "sd_holes", "sd_bumpiness"), map(float, spread), strict=True))
            rows.append(row | {"spread": float(np.linalg.det(np.cov(flat.T)) ** (1 / 6))})
    return rows + checks_of_hurry(player, rows)


def checks_of_hurry(player: tuple[float, ...], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whether standard deviations, each and of all together, fall from the fewest decisions to the most."""
    counts = sorted({row["observations"] for row in rows})
    checks = []
    for column in ("sd_height", "sd_holes", "sd_bumpiness", "spread"):
        by_count = [[row[column] for row in rows if row["observations"] == count] for count in counts]
        means = [float(np.exp(np.mean(np.log(each)))) for each in by_count]
        text = f"{column}, at {counts[-1]} over at {counts[0]}"
        fell = means[-1] / means[0]
        row = check(player, rows[0]["rows"], counts[-1], text, fell, 1.0, fell < 1)
        checks.append(row | {"published": PUBLISHED["tightens"], "means": means})
    return checks


def rows_of_simulator(seed: int, boards: int = 2000) -> dict[str, Any]:
    """Placements a CPU second: outcomes of all legal placements, with their features, on boards of real play."""
    play = tetris.simulate(jax.random.key(seed), PLAYERS[1], boards)
    every = jax.jit(jax.vmap(tetris.outcomes))
    arguments = (jnp.asarray(play.boards), jnp.asarray(play.pieces))
    placed = int(np.sum(every(*arguments).legal))
    taken = []
    for _ in range(5):
        start = time.process_time()
        jax.block_until_ready(every(*arguments))
        taken.append(time.process_time() - start)
    rate = placed / float(np.median(taken))
    fields = {"kind": "simulator", "rows": play.boards.shape[1], "check": "placements a CPU second"}
    return {**fields, "value": rate, "target": 1e5, "reached": rate > 1e5}


if __name__ == "__main__":
    raise SystemExit(report.run("tetris", __doc__, measure))
