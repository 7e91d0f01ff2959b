"""Random tables and lists, of the kinds that readers take for others, against pandas and plain Python.

Identifiers and labels are whole numbers, zero-padded ones, decimals and words, among them those that mean "missing"
elsewhere, with and without a vocabulary; features are whole numbers or not, with markers of what is missing; sequences
may be empty.
"""

from __future__ import annotations

import pandas
import polars
import pytest
from numpy import array, isnan, nan
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from ethogram.models.choices import Decisions
from ethogram.models.data import Metadata, Trajectories

pytestmark = pytest.mark.slow

WORDS = {
    "whole": ["0", "3", "12", "70", "7"],
    "padded": ["007", "7", "07", "0", "70"],
    "words": ["left", "None", "NA", "null", "nan", "7", "true", "N/A"],
    "large": ["10000000000000000", "10000000000000001", "5", "9007199254740993"],
    "decimals": ["0.5", "1", "1.50", "1.5"],
    "numerals": ["1", "2", "home"],
}
MARKERS = ["", "NA", "nan", "null", "N/A", "NaN"]


def is_whole(word):
    """Whether a word is a number of 32 bits as Python writes it."""
    try:
        return str(int(word)) == word and abs(int(word)) < 2**31
    except ValueError:
        return False


def codes_of(words, names):
    """Codes, -1 for an empty word, and names: of text, or of integers where all words are."""
    known = [word for word in words if word]
    if names is None and known and all(map(is_whole, known)):
        return [int(word) if word else -1 for word in words], None
    names = names or sorted({*known}) or None
    return [names.index(word) if word else -1 for word in words], names


def random_table(random):
    """Columns of text, and the vocabulary of each label column, or None."""
    count = int(random.integers(1, 12))
    columns, names = {}, {}
    for field in ("who", "act"):
        kind, named = str(random.choice(list(WORDS))), random.random() < 0.5
        pool = [word for word in WORDS[kind] if named or kind != "words" or not is_whole(word)]
        columns[field] = [str(word) for word in random.choice(pool, count)]
        if field == "act":
            columns[field] = [word if random.random() < 0.8 else "" for word in columns[field]]
        names[field] = random.permutation(pool).tolist() if named else None
    for field in ("x", "y"):
        numbers = (
            random.integers(-3, 300, count) if random.random() < 0.6 else random.normal(size=count).round(3)
        )
        columns[field] = [str(random.choice(MARKERS)) if random.random() < 0.3 else str(x) for x in numbers]
    return columns, names


def expected_of(columns, names):
    """Sequences by identifier: codes of agents and actions, and features, NaN where missing."""
    whose = list(dict.fromkeys(columns["who"]))
    agent, agent_names = codes_of(whose, names["who"])
    action, action_names = codes_of(columns["act"], names["act"])
    rows = [[at for at, word in enumerate(columns["who"]) if word == one] for one in whose]
    return agent, agent_names, [[action[at] for at in own] for own in rows], action_names, rows


def same(data, columns, names, features):
    agent, agent_names, actions, action_names, rows = expected_of(columns, names)
    assert data.agent.tolist() == agent and data.lengths.tolist() == [len(own) for own in rows]
    assert data.metadata.agent_names == (agent_names and tuple(agent_names))
    assert data.metadata.action_names == (action_names and tuple(action_names))
    for number, own in enumerate(rows):
        assert data.actions[number, : len(own)].tolist() == actions[number]
        assert_array_equal(data.observations[number, : len(own)], features[own])
        assert data.observed[number].sum() == (~isnan(features[own]).all(1)).sum()
    assert data.observations.dtype == float


@pytest.mark.filterwarnings("ignore:.*has no observed frame:UserWarning")
@pytest.mark.parametrize("kind", ["csv", "tsv", "pandas", "polars", "columns"])
def test_tables_mean_what_their_text_says(kind, tmp_path):
    random = default_rng(0)
    for _ in range(60):
        columns, names = random_table(random)
        known = pandas.DataFrame({field: columns[field] for field in ("x", "y")})
        features = known.replace(dict.fromkeys(MARKERS, nan)).astype(float).to_numpy()
        path = tmp_path / f"table.{kind}"
        pandas.DataFrame(columns).to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
        typed = {
            field: [typed_of(word, columns[field]) for word in columns[field]] for field in ("who", "act")
        }
        typed |= {"x": features[:, 0], "y": features[:, 1]}
        table = {
            "csv": path, "tsv": path, "columns": typed, "pandas": pandas.DataFrame(typed),
            "polars": polars.DataFrame(typed, strict=False) if kind == "polars" else None,
        }[kind]  # fmt: skip
        metadata = Metadata(agent_names=names["who"], action_names=names["act"])
        data = Trajectories.from_table(
            table,
            sequence="who",
            agent="who",
            actions="act",
            features=["x", "y"],
            missing="nan",
            metadata=metadata,
        )
        same(data, columns, names, features)


def typed_of(word, column):
    """A word as a typed table has it: an integer where all of its column are, else text; None where empty."""
    if not word:
        return None
    return int(word) if all(map(is_whole, filter(None, column))) else word


@pytest.mark.filterwarnings("ignore:.*has no observed frame:UserWarning")
def test_lists_with_empty_sequences_mean_the_same():
    random = default_rng(1)
    for _ in range(60):
        pool = WORDS[str(random.choice(list(WORDS)))]
        names = random.permutation(pool).tolist() if random.random() < 0.5 else None
        lengths = random.integers(0, 4, int(random.integers(1, 5)))
        words = [[str(word) for word in random.choice(pool, length)] for length in lengths]
        flat = [word for part in words for word in part]
        codes, found = codes_of(flat, names)
        features = [random.choice([nan, -1, 5, 2], (length, 2)) for length in lengths]
        data = Trajectories.from_list(
            features,
            actions=[[typed_of(word, flat) for word in part] for part in words],
            missing="nan",
            metadata=Metadata(action_names=names),
        )
        assert (
            data.metadata.action_names == (found and tuple(found))
            and data.lengths.tolist() == lengths.tolist()
        )
        assert [
            code for row, own in zip(data.actions.tolist(), lengths, strict=True) for code in row[:own]
        ] == codes
        for row, seen, own in zip(data.observations, data.observed, features, strict=True):
            assert_array_equal(row[: len(own)], own)
            assert seen.sum() == (~isnan(own).all(1)).sum()


def test_long_and_wide_tables_of_choices_agree(tmp_path):
    random = default_rng(2)
    for _ in range(60):
        pool = list(dict.fromkeys(WORDS[str(random.choice(list(WORDS)))]))
        count, options = int(random.integers(1, 8)), len(pool)
        cost = random.integers(-1, 9, (count, options)).astype(float)
        there = random.random((count, options)) < 0.7
        there[:, 0] = True
        chosen = array([random.choice(there[row].nonzero()[0]) for row in range(count)])
        long = pandas.DataFrame(
            [
                {"trip": f"{row:03}", "mode": pool[at], "cost": cost[row, at] if there[row, at] else nan}
                | {"av": int(there[row, at]), "taken": int(chosen[row] == at)}
                for row in range(count)
                for at in random.permutation(options)
            ]
        )
        long.to_csv(tmp_path / "long.csv", index=False)
        wide = pandas.DataFrame(cost, columns=pool).where(there).assign(taken=[pool[at] for at in chosen])
        wide.to_csv(tmp_path / "wide.csv", index=False)
        names = Metadata(action_names=pool)
        columns = {
            "decision": "trip",
            "features": "cost",
            "option": "mode",
            "chosen": "taken",
            "available": "av",
        }
        for table in (long, tmp_path / "long.csv"):
            one = Decisions.from_table(table, **columns, metadata=names)
            assert one.choice.tolist() == chosen.tolist() and one.legal.tolist() == there.tolist()
            assert_array_equal(one.features[..., 0], cost * there)
        for table in (wide, tmp_path / "wide.csv"):
            other = Decisions.from_wide(table, features={"cost": pool}, choice="taken", metadata=names)
            assert_array_equal(other.features, one.features)
            assert other.choice.tolist() == chosen.tolist() and other.legal.tolist() == there.tolist()
