"""Noise of choices on planted data: lapses recovered, errors expected and made, and which noise PSIS-LOO prefers.

Decisions between three options with three standard normal features, of values 1, -.1 and -1.2. Fits are those of
`method="laplace"` with a prior variance of 4.

- `lapse`: choices by normal noise, 10 % of them at random; share of data sets whose posterior of the lapse probability
  (prior Beta(1, 9)) holds .1 within 2 standard deviations of its mean.
- `nu`: the same of degrees of freedom 2 in Student noise, under a normal prior truncated to numbers above 1, by PX-DA.
- `lapse`, of "tetris": the same in recorded games of Tetris, played in a hurry: every tenth placement is at random
  among the legal ones, and every tenth piece falls before there is an action.
- `error`: of choices in each noise, the share that is not of the option with the largest planted utility, less what the
  probabilities of the noise expect, in standard errors, over all data sets.
- `travellers`: maxima of the likelihood of Greene's 210 travellers between four modes (statsmodels), with six
  coefficients, beside those by other programs and quadratures; of a covariance also the value by GHK on 2^14 points at
  the maximum. With lapses there is no maximum, and the fit has to say so. The textbook's -196.92 of a covariance, by
  GHK, lies above the exact maximum.
- `sampler`: smallest effective sample size of values and covariance per CPU second, after compilation, on them.
- `loo`: data sets in which PSIS-LOO prefers the noise that was planted to the other. Normal and Gumbel noise are nearly
  alike once coefficients are rescaled, and have no target.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from functools import partial
from typing import Any

import arviz
import jax
import numpy as np
from numpyro.distributions import Beta, TruncatedNormal

import ethogram
from benchmarks import report
from ethogram.domains import tetris
from ethogram.domains.tetris.records import COLUMNS, board_text
from ethogram.inference.choices import choice_error, find_choice_mode, noise_floor
from ethogram.inference.choices.laplace import laplace_choices
from ethogram.models.choices.orthants import simulated_orthant

__all__ = ["measure", "planted"]

VALUES = np.array([1.0, -0.1, -1.2])
PLAYER = np.array([-0.5, -1.5, -0.1])
LAPSE = 0.1
MODELS = {
    "normal": ethogram.Probit(4.0),
    "gumbel": ethogram.Logit(4.0),
    "student, nu 2": ethogram.NoisyMDP(4.0, "features", noise="student", nu=2.0),
    "lapses": ethogram.Probit(4.0, lapse=Beta(1, 9)),
}
PAIRS = {
    ("student, nu 2", "normal"): 0.9,
    ("lapses", "normal"): 0.9,
    ("normal", "student, nu 2"): 0.9,
    ("gumbel", "normal"): None,
    ("normal", "gumbel"): None,
}


def planted(name: str, num_decisions: int, seed: int) -> ethogram.Decisions:
    """Choices with this noise, 10 % of them at random where it has lapses."""
    x = np.random.default_rng([seed, num_decisions]).normal(size=(num_decisions, 3, len(VALUES)))
    offered = ethogram.Decisions(x, np.ones(x.shape[:2], bool), np.zeros(num_decisions, int))
    values = {"v": VALUES} | ({"lapse": LAPSE} if name == "lapses" else {})
    return MODELS[name].simulate(jax.random.key(seed), offered, values).data


def fitted(name: str, data: ethogram.Decisions, seed: int) -> Any:
    """Laplace's approximation, which may warn that a small data set shows no lapses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ethogram.fit(jax.random.key(seed), MODELS[name], data, "laplace")


def lapses(where: str, count: int, num_decisions: int, seed: int) -> list[report.Row]:
    made = {"planted": partial(planted, "lapses"), "tetris": hurried}[where]
    found = [
        fitted("lapses", made(num_decisions, at), at).result.sites["lapse"]
        for at in range(seed, seed + count)
    ]
    z = np.array([(draws.mean() - LAPSE) / draws.std() for draws in found])
    share = float((np.abs(z) < 2).mean())
    row = {"row": "lapse", "noise": f"lapses, {where}", "against": "within 2 sd of .1", "sets": count}
    return [row | {"found": share, "target": 0.95, "reached": share >= 0.95 - 1e-9, "z": z.tolist()}]


def degrees(count: int, num_decisions: int, num_samples: int, seed: int) -> list[report.Row]:
    model = ethogram.Probit(4.0, noise="student", nu=TruncatedNormal(4.0, 8.0, low=1.0))
    settings = {"num_warmup": num_samples // 2, "num_samples": num_samples, "progress_bar": False}
    z = []
    for at in range(seed, seed + count):
        data = planted("student, nu 2", num_decisions, at)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            draws = ethogram.fit(jax.random.key(at), model, data, "px-da", **settings).result.sites["nu"]
        z.append(float((draws.mean() - 2) / draws.std()))
    share = float((np.abs(z) < 2).mean())
    row = {"row": "nu", "noise": "student", "against": "within 2 sd of 2", "sets": count, "found": share}
    return [row | {"target": 0.95, "reached": share >= 0.95 - 1e-9, "z": z}]


def hurried(num_moves: int, seed: int) -> ethogram.Decisions:
    """Decisions of recorded games, as `ethogram play tetris` writes them."""
    rng, game, board = np.random.default_rng(seed), 0, np.zeros((20, 10), bool)
    rows: list[tuple[str, ...]] = []
    while len(rows) < num_moves:
        piece = int(rng.integers(len(tetris.PIECES)))
        found = jax.tree.map(np.asarray, tetris.outcomes(board, piece))
        slots = np.flatnonzero(found.legal)
        if board[0].any() or not len(slots):
            game, board = game + 1, np.zeros_like(board)
            continue
        utilities = found.features[slots] @ PLAYER + rng.normal(size=len(slots))
        late, lapsed = rng.random(2) < LAPSE
        slot = rng.choice(slots) if late or lapsed else slots[utilities.argmax()]
        table = tetris.placements()
        placed = f"{table.rotation[piece, slot]},{table.column[piece, slot]}"
        moves = ("", placed) if late else (placed, "")
        rows.append((str(game), board_text(board), list(tetris.PIECES)[piece], *moves))
        board = found.boards[slot]
    games = tetris.load_games(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
    if games.disagreeing:
        raise AssertionError(f"rows {games.disagreeing} disagree with the rules")
    return games.play.decisions


def error_made(name: str, count: int, num_decisions: int, seed: int) -> report.Row:
    model, each = MODELS[name], []
    known = dataclasses.replace(model, lapse=LAPSE) if name == "lapses" else model
    for at in range(seed, seed + count):
        data = planted(name, num_decisions, at)
        utilities = data.features @ VALUES
        each.append((choice_error(utilities.argmax(1), data), noise_floor(utilities, data, known)))
    made, expected = np.mean(each, axis=0)
    z = (made - expected) / np.sqrt(expected * (1 - expected) / num_decisions / count)
    row = {"row": "error", "noise": name, "against": f"{made:.4f}, expected {expected:.4f}", "sets": count}
    return row | {"found": float(z), "target": 2.0, "reached": bool(abs(z) < 2)}


def score(name: str, data: ethogram.Decisions, seed: int) -> float:
    fit = fitted(name, data, seed)
    exported = ethogram.to_arviz(fit.result, data, log_likelihood="sequence", progress_bar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return float(arviz.loo(exported).elpd_loo)


def preferred(
    pair: tuple[str, str], target: float | None, count: int, num_decisions: int, seed: int
) -> report.Row:
    margins = []
    for at in range(seed, seed + count):
        data = planted(pair[0], num_decisions, at)
        margins.append(score(pair[0], data, at) - score(pair[1], data, at))
    share = float((np.array(margins) > 0).mean())
    row: dict[str, Any] = {"row": "loo", "noise": pair[0], "against": pair[1], "sets": count, "found": share}
    return (
        row
        | ({} if target is None else {"target": target, "reached": share >= target})
        | {"margins": margins}
    )


def travellers() -> ethogram.Decisions:
    """Greene's travellers: cost, waiting time, income of those who fly, and constants of all modes but the car."""
    from statsmodels.datasets import modechoice

    table, modes = modechoice.load_pandas().data, ["air", "train", "bus", "car"]
    constants = {name: (table["mode"] == number).astype(float) for number, name in enumerate(modes[:3], 1)}
    table = table.assign(
        income=table.hinc * constants["air"], label=[modes[int(i) - 1] for i in table["mode"]]
    )
    names, features = ethogram.Metadata(action_names=modes), ["gc", "ttme", "income", *constants]
    columns = {"decision": "individual", "chosen": "choice", "option": "label", "metadata": names}
    return ethogram.Decisions.from_table(table.assign(**constants), features=features, **columns)


def maxima(data: ethogram.Decisions) -> list[report.Row]:
    """Log likelihoods at the maxima, and that of a covariance by simulation."""
    wanted = {"gumbel": (-199.1284, 1e-4), "normal": (-208.4428, 5e-4), "covariance": (-197.7829, 6e-4)}
    wanted |= {
        f"student, nu {nu}": (value, 0.01) for nu, value in ((8, -204.524), (4, -200.711), (2, -193.669))
    }
    rows, found = [], {}
    for name, (target, within) in wanted.items():
        noise, *nu = name.split(", nu ")
        model = ethogram.Probit(1e8, noise=noise, nu=float(nu[0]) if nu else None)
        found[name] = find_choice_mode(model, data)
        value = found[name].log_likelihood
        row = {"row": "travellers", "noise": name, "against": f"{target:.4f}", "sets": 1, "found": value}
        rows.append(row | {"target": target, "reached": abs(value - target) < within})
    mode = found["covariance"]
    chosen, utilities = np.asarray(data.choice), data.features @ mode.theta
    whole = np.pad(mode.values["noise_covariance"], (0, 1))
    others = (chosen[:, None] + np.arange(1, 4)) % 4
    own = chosen[:, None]
    both = (
        whole[others[:, :, None], others[:, None]]
        - whole[own, others][:, :, None]
        - whole[own, others][:, None]
    )
    both = both + np.diag(whole)[chosen][:, None, None]
    deviation = np.sqrt(np.diagonal(both, axis1=1, axis2=2))
    gaps = np.take_along_axis(utilities, own, 1) - np.take_along_axis(utilities, others, 1)
    correlation = np.moveaxis(both / deviation[:, :, None] / deviation[:, None], 0, -1)
    with jax.enable_x64(True):
        each = simulated_orthant(*map(jax.device_put, ((gaps / deviation).T, correlation)), 2**14)
        value = float(each.sum())
    row = {
        "row": "travellers",
        "noise": "covariance, GHK",
        "against": "the exact value",
        "sets": 1,
        "found": value,
    }
    rows.append(row | {"target": mode.log_likelihood, "reached": abs(value - mode.log_likelihood) < 1e-3})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        laplace_choices(jax.random.key(0), ethogram.Probit(1e6, lapse=0.2476), data)
    said = any("it has no maximum" in str(one.message) for one in caught)
    row = {"row": "travellers", "noise": "lapses", "against": "no maximum", "sets": 1, "found": float(said)}
    return [*rows, row | {"target": 1.0, "reached": said}]


def samplers(data: ethogram.Decisions, num_samples: int, seed: int) -> list[report.Row]:
    rows, model = [], ethogram.Probit(4.0, noise="covariance")
    for method, scale in (("px-da", 20), ("nuts", 1)):

        def run(method=method, scale=scale):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                settings = {
                    "num_warmup": num_samples,
                    "num_samples": scale * num_samples,
                    "progress_bar": False,
                }
                return ethogram.fit(jax.random.key(seed), model, data, method, **settings)

        run()
        start = time.process_time()
        fit = run()
        spent = time.process_time() - start
        least = float(fit.summary()["ess"].min())
        row = {
            "row": "sampler",
            "noise": "covariance",
            "against": f"{method}, ESS {least:.0f} in {spent:.1f} s",
        }
        rows.append(row | {"sets": 1, "found": least / spent})
    return rows


def measure(settings: argparse.Namespace) -> list[report.Row]:
    quick, seed = settings.quick, settings.seed
    rows = lapses("planted", *((2, 500) if quick else (20, 2000)), seed)
    rows += lapses("tetris", *((1, 300) if quick else (20, 500)), seed)
    rows += degrees(*((1, 300, 200) if quick else (20, 1000, 2000)), seed)
    rows += [error_made(name, *((1, 2000) if quick else (10, 20_000)), seed) for name in MODELS]
    data = travellers()
    rows += [*maxima(data), *samplers(data, 50 if quick else 500, seed)]
    for pair, target in PAIRS.items():
        if not quick or pair[0] == "lapses":
            rows.append(preferred(pair, target, 2 if quick else 10, 500, seed))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("choice_noise", __doc__, measure))
