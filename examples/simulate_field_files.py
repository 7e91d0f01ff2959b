"""Files as they come from the field, simulated by models of this package (`ethogram.domains.field_files`).

    python examples/simulate_field_files.py FOLDER

``deer.csv.gz`` has fixes of twelve deer every half hour for ten days, as Movebank exports them: late fixes, gaps, rows
without a position, rows that are marked as outliers, and two jumps that nobody marked. ``deer_sex.csv`` has their sex;
females rest more. ``mice/mouse_*.csv`` have poses of six mice at 30 frames per second, as DeepLabCut predicts them;
mutants turn more often. ``trips.csv`` has 800 choices of 200 people between car, bus, train and bicycle; an hour is
worth 12 euros.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas

import ethogram

DEGREE = np.pi / 180 * 6_371_008.8  # metres

DEER_MODES = {
    "initial": np.array([0.5, 0.35, 0.15]),
    "step_mean": np.array(
        [[12.0], [75.0], [330.0]]
    ),  # resting, foraging, travelling, in metres per half hour
    "step_shape": np.array([[1.3], [1.8], [2.5]]),
    "turn_direction": np.array([[np.pi], [0.0], [0.0]]),
    "turn_concentration": np.array([[0.4], [0.3], [2.5]]),
}
DEER_TRANSITIONS = {
    ("f", "day"): [[0.90, 0.08, 0.02], [0.12, 0.84, 0.04], [0.08, 0.22, 0.70]],
    ("f", "night"): [[0.78, 0.19, 0.03], [0.07, 0.84, 0.09], [0.03, 0.22, 0.75]],
    ("m", "day"): [[0.85, 0.11, 0.04], [0.10, 0.81, 0.09], [0.05, 0.20, 0.75]],
    ("m", "night"): [[0.70, 0.23, 0.07], [0.05, 0.80, 0.15], [0.02, 0.18, 0.80]],
}
DAYS, FIXES_BY_DAY, FIXES_BY_NIGHT = 10, 32, 16  # one every half hour; the first is at 05:00 in UTC

MOUSE_SYLLABLES = {  # pause, walk, turn left, turn right: cm/s, rad/s, length of the body in cm, bend in rad
    "mean": np.array(
        [[0.5, 0.0, 7.0, 0.0], [14.0, 0.0, 8.6, 0.0], [4.0, 3.2, 7.6, 0.5], [4.0, -3.2, 7.6, -0.5]]
    ),
    "covariance": np.array([np.diag([0.3, 0.1, 0.1, 0.01])] + [np.diag([6.0, 0.4, 0.1, 0.01])] * 3),
}
MOUSE_FRAMES, FRAME_RATE, PIXELS_PER_CM = 1500, 30, 12
TRIP_VALUES = np.array([-1.2, -0.1])  # per hour, per euro


def deer_steps(key: jax.Array) -> tuple[np.ndarray, list[str]]:
    """Steps and turns (animal, frame, 2) of six females and six males, and their sex."""
    emission = ethogram.ProductEmission(
        {"step": ethogram.GammaEmission(), "turn": ethogram.VonMisesEmission()}
    )
    model, animals = ethogram.RoleHMM(3, emission), []
    for place, sex in enumerate("fm"):
        parts = []
        for number, (period, length) in enumerate((("day", FIXES_BY_DAY), ("night", FIXES_BY_NIGHT))):
            parameters = {**DEER_MODES, "transition": np.array(DEER_TRANSITIONS[sex, period])}
            drawn = model.simulate(
                jax.random.fold_in(key, 2 * place + number), 6 * DAYS, 1, length, parameters=parameters
            )
            parts.append(np.asarray(drawn.data.observations).reshape(6, DAYS, length, 2))
        animals.append(np.concatenate(parts, axis=2).reshape(6, -1, 2))
    return np.concatenate(animals), ["f"] * 6 + ["m"] * 6


def write_deer(key: jax.Array, folder: Path) -> None:
    """The fixes of all animals, and a table of their sex."""
    steps, sex = deer_steps(key)
    random = np.random.default_rng(7)
    names = [f"RD{number:02d}" for number in random.permutation(12) + 1]
    tables = []
    for name, track in zip(names, steps, strict=True):
        heading = random.uniform(-np.pi, np.pi) + np.cumsum(track[:, 1])
        move = track[:, :1] * np.stack([np.cos(heading), np.sin(heading)], -1)
        metres = random.normal(0, 1500, 2) + np.cumsum(move, 0) + random.normal(0, 3, move.shape)
        latitude = 46.4 + metres[:, 1] / DEGREE
        longitude = 10.2 + metres[:, 0] / (DEGREE * np.cos(np.radians(46.4)))
        times = pandas.date_range("2024-05-01 05:00", periods=len(track), freq="30min")
        late = pandas.to_timedelta(random.integers(0, 60, len(track)), unit="s")
        table = pandas.DataFrame(
            {
                "timestamp": (times + late).strftime("%Y-%m-%d %H:%M:%S.000"),
                "location-long": longitude.round(6),
                "location-lat": latitude.round(6),
                "external-temperature": (9 - 6 * np.cos(2 * np.pi * (times.hour + 1) / 24)).round(1)
                + random.integers(-2, 3, len(track)),
                "algorithm-marked-outlier": "",
                "individual-local-identifier": name,
            }
        )
        lost = random.random(len(table)) < 0.03
        start = random.integers(100, 380)
        lost[start : start + random.integers(6, 50)] = True
        empty, marked = random.random(len(table)) < 0.01, random.random(len(table)) < 0.004
        table.loc[empty, ["location-long", "location-lat"]] = np.nan
        table.loc[marked & ~empty, "location-lat"] += 0.2
        table.loc[marked, "algorithm-marked-outlier"] = "true"
        tables.append(table[~lost])
    for number, row in ((2, 57), (8, 301)):  # nobody marked these
        tables[number].iloc[row, 1] += 0.9
        tables[number].iloc[row, 2] -= 0.5
    every = pandas.concat(tables)
    every.insert(0, "event-id", 31_000_000 + np.arange(len(every)))
    every.insert(1, "visible", np.where(every["algorithm-marked-outlier"] == "true", "false", "true"))
    every["study-name"] = "Simulated deer"
    every.to_csv(folder / "deer.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    pandas.DataFrame({"animal": names, "sex": sex}).sort_values("animal").to_csv(
        folder / "deer_sex.csv", index=False
    )


def walk(speed: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Headings (frame,) and places (frame, 2) in cm from the centre; a mouse 25 cm from it turns back, at 5 rad/s."""
    headings, places, heading, place = [], [], 0.0, np.zeros(2)
    for forward, sideways in zip(speed / FRAME_RATE, turn / FRAME_RATE, strict=True):
        ahead = np.array([np.cos(heading), np.sin(heading)])
        outward = np.hypot(*place) > 25 and ahead @ place > 0
        heading += sideways + outward * np.sign(ahead[0] * -place[1] + ahead[1] * place[0]) * 5 / FRAME_RATE
        place = place + forward * np.array([np.cos(heading), np.sin(heading)])
        headings.append(heading)
        places.append(place)
    return np.array(headings), np.array(places)


def write_mice(key: jax.Array, folder: Path) -> None:
    """One file of DeepLabCut per mouse."""
    model = ethogram.RoleHMM(4, ethogram.GaussianEmission(4))
    random = np.random.default_rng(11)
    (folder / "mice").mkdir(exist_ok=True)
    for number in range(6):
        genotype = ("wt", "ko")[number % 2]
        turning = {"wt": 0.006, "ko": 0.02}[genotype]
        leave = np.array([0.02 - turning / 2, turning, turning])
        transition = np.array(
            [
                [0.955, 0.045 - 2 * turning, turning, turning],
                [0.97 * leave[0], 1 - 0.97 * leave[0] - 2 * turning, turning, turning],
                [0.02, 0.04, 0.92, 0.02],
                [0.02, 0.04, 0.02, 0.92],
            ]
        )
        parameters = {**MOUSE_SYLLABLES, "initial": np.full(4, 0.25), "transition": transition}
        drawn = model.simulate(jax.random.fold_in(key, number), 1, 1, MOUSE_FRAMES, parameters=parameters)
        speed, turn, length, bend = (
            pandas.DataFrame(drawn.data.observations[0]).ewm(alpha=0.5).mean().to_numpy().T
        )
        heading, tail = walk(speed, turn)
        ahead = np.stack([np.cos(heading), np.sin(heading)], -1)
        neck = tail + 0.6 * length[:, None] * ahead
        beyond = np.stack([np.cos(heading + bend), np.sin(heading + bend)], -1)
        points = {"nose": neck + 0.4 * length[:, None] * beyond, "neck": neck, "tail_base": tail}
        columns, values = [], []
        for part, place in points.items():
            likelihood = np.where(
                random.random(MOUSE_FRAMES) < 0.01, random.uniform(0, 0.5, MOUSE_FRAMES), 0.99
            )
            pixels = 320 + PIXELS_PER_CM * place + random.normal(0, 0.4, place.shape)
            pixels[likelihood < 0.6] += random.normal(0, 40, (int((likelihood < 0.6).sum()), 2))
            columns += [(part, coordinate) for coordinate in ("x", "y", "likelihood")]
            values += [pixels[:, 0].round(1), pixels[:, 1].round(1), likelihood.round(2)]
        scorer = "DLC_resnet50_openfieldSep1shuffle1_200000"
        rows = [["scorer", *[scorer] * len(columns)], ["bodyparts", *[part for part, _ in columns]]]
        rows += [["coords", *[coordinate for _, coordinate in columns]]]
        rows += [[str(frame), *map(str, row)] for frame, row in enumerate(np.stack(values, -1).tolist())]
        text = "".join(",".join(row) + "\n" for row in rows)
        (folder / "mice" / f"mouse_{number + 1}_{genotype}.csv").write_text(text)


def write_trips(key: jax.Array, folder: Path) -> None:
    """One row per option: time in hours and price in euros."""
    random, rows = np.random.default_rng(3), []
    for person in range(200):
        for trip in range(4):
            distance = random.gamma(2.0, 8.0) + 1  # km
            for mode, speed, base, per_km in (
                ("car", 38, 2.0, 0.30),
                ("bus", 20, 2.5, 0.05),
                ("train", 50, 3.0, 0.15),
                ("bicycle", 15, 0.0, 0.0),
            ):
                if (mode == "bicycle" and distance > 20) or (mode == "train" and distance < 5):
                    continue
                hours = distance / speed * random.uniform(0.8, 1.4) + (
                    0 if mode in ("car", "bicycle") else random.uniform(0.05, 0.4)
                )
                price = (base + per_km * distance) * random.uniform(0.6, 1.6)
                rows.append([person + 1, f"{person + 1}-{trip + 1}", mode, round(hours, 2), round(price, 2)])
    table = pandas.DataFrame(rows, columns=["person", "trip", "mode", "hours", "euros"])
    data = ethogram.Decisions.from_table(
        table.assign(chosen=(~table["trip"].duplicated()).astype(int)),
        decision="trip", option="mode", chosen="chosen", features=["hours", "euros"],
    )  # fmt: skip
    drawn = ethogram.NoisyMDP(kind="features").simulate(key, data, {"theta": TRIP_VALUES}).data
    taken = np.unique(table["mode"])[np.asarray(drawn.choice)]
    chosen = dict(zip(table["trip"].drop_duplicates(), taken, strict=True))
    table["chosen"] = (table["mode"] == table["trip"].map(chosen)).astype(int)
    table.to_csv(folder / "trips.csv", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    deer, mice, trips = jax.random.split(jax.random.key(2024), 3)
    write_deer(deer, given.folder)
    write_mice(mice, given.folder)
    write_trips(trips, given.folder)
