"""Features by a formula against designs made by hand, of a table with gaps, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.metadata import Metadata


def messy_table():
    """Five trips of three people with sets of two or three modes; rows out of order, and gaps where a mode is away."""
    rows = [  # trip, mode, price, time, comfort, income, sex, there, taken
        (2, "car", 5.0, 1.0, "high", 2.0, "m", 1, 1),
        (1, "bus", 2.0, 2.0, "low", 3.0, "f", 1, 0),
        (1, "car", 6.0, 1.5, "high", 3.0, "f", 1, 1),
        (1, "walk", 0.0, 5.0, "low", 3.0, "f", 1, 0),
        (2, "bus", 1.0, 1.7, "high", 2.0, "m", 1, 0),
        (3, "walk", 0.0, 2.0, "low", 1.0, "f", 1, 1),
        (3, "bus", 1.0, 1.0, "low", 1.0, "f", 1, 0),
        (3, "car", None, 9.0, "odd", 1.0, None, 0, 0),
        (4, "car", 4.0, 0.8, "low", 4.0, "m", 1, 1),
        (4, "walk", 0.0, 4.0, "low", 4.0, "m", 1, 0),
        (5, "bus", 1.5, 1.1, "high", 0.5, "m", 1, 1),
        (5, "car", 7.0, 1.2, "low", 0.5, "m", 1, 0),
        (5, "walk", 0.0, 1.3, "high", 0.5, "m", 1, 0),
    ]
    names = ["trip", "mode", "price", "time", "comfort", "income", "sex", "there", "taken"]
    return pd.DataFrame(rows, columns=names)


TABLE = messy_table()
LONG = {"decision": "trip", "option": "mode", "chosen": "taken", "available": "there"}
SLOTS = ("bus", "car", "walk")


def by_hand(functions, table=TABLE):
    """Features (decision, option, feature) of functions of a row, zero where an option is not available."""
    trips = list(dict.fromkeys(table["trip"]))
    found = np.zeros((len(trips), 3, len(functions)))
    for _, row in table[table["there"] == 1].iterrows():
        at = trips.index(row["trip"]), SLOTS.index(row["mode"])
        found[at] = [function(row) for function in functions]
    return found


def only(mode, value=lambda row: 1.0):
    return lambda row: value(row) * (row["mode"] == mode)


GENERIC = {"price": lambda row: row["price"], "time": lambda row: row["time"]}
DESIGNS = {
    "price + time | income": (
        GENERIC
        | {"car": only("car"), "walk": only("walk")}
        | {f"{mode}:income": only(mode, lambda row: row["income"]) for mode in ("car", "walk")}
    ),
    "price+time|0 + sex": (
        GENERIC
        | {
            f"{mode}:sex[{sex}]": only(mode, lambda row, sex=sex: row["sex"] == sex)
            for sex in "fm"
            for mode in ("car", "walk")
        }
    ),
    "price | 0 | time": (
        {"price": GENERIC["price"]} | {f"{mode}:time": only(mode, lambda row: row["time"]) for mode in SLOTS}
    ),
    "np.log1p(price) + C(comfort) + price:income | -1": {
        "np.log1p(price)": lambda row: np.log1p(row["price"]),
        "C(comfort)[T.low]": lambda row: row["comfort"] == "low",
        "price:income": lambda row: row["price"] * row["income"],
    },
    "1 | 1": {"car": only("car"), "walk": only("walk")},
    "time": GENERIC | {"car": only("car"), "walk": only("walk")},
}
DESIGNS["time"].pop("price")


@pytest.mark.parametrize("formula", DESIGNS)
def test_columns_are_those_made_by_hand(formula):
    data = Decisions.from_table(TABLE, formula=formula, **LONG)
    assert data.metadata.feature_names == tuple(DESIGNS[formula])
    np.testing.assert_allclose(data.features, by_hand(list(DESIGNS[formula].values())))
    assert data.metadata.action_names == SLOTS and data.choice.tolist() == [1, 1, 2, 1, 0]


def test_the_base_has_neither_constant_nor_coefficients_of_covariates():
    data = Decisions.from_table(TABLE, formula="price | income", base_option="car", **LONG)
    assert data.metadata.feature_names == ("price", "bus", "walk", "bus:income", "walk:income")
    assert (data.features[:, 1, 1:] == 0).all()


def test_other_data_are_encoded_as_those_of_the_fit():
    """With its levels, its base and the means of its functions, though the other data have few of these."""
    formula = "center(time) + comfort | sex"
    data = Decisions.from_table(TABLE, formula=formula, base_option="walk", **LONG)
    new = TABLE[TABLE["trip"].isin([2, 4])]
    given = Decisions.from_table(new, metadata=data.metadata, **LONG)
    assert given.metadata == data.metadata
    np.testing.assert_array_equal(given.features, data.features[[0, 3]])
    same = Decisions.from_table(new, formula=formula, metadata=data.metadata, **LONG)
    np.testing.assert_array_equal(same.features, given.features)
    odd = new.assign(comfort=["high", "odd", "low", "low"])
    with pytest.raises(ValueError, match=r"covariate 'comfort' contains 'odd', which is not in its levels"):
        Decisions.from_table(odd, metadata=data.metadata, **LONG)
    with pytest.raises(ValueError, match=r"formula is 'time', and that of the metadata 'center\(time\)"):
        Decisions.from_table(new, formula="time", metadata=data.metadata, **LONG)
    with pytest.raises(ValueError, match="base_option is 'car', and that of the metadata 'walk'"):
        Decisions.from_table(new, metadata=data.metadata, base_option="car", **LONG)
    with pytest.raises(ValueError, match="features and metadata with the formula 'center"):
        Decisions.from_table(new, features="time", metadata=data.metadata, **LONG)


def test_a_wide_table_gives_what_the_long_one_does():
    there = TABLE[TABLE["there"] == 1]
    wide = there.groupby("trip")[["income", "sex"]].first().to_dict("list")
    wide["taken"] = there[there["taken"] == 1].sort_values("trip")["mode"].tolist()
    for name in ("price", "time"):
        each = there.pivot(index="trip", columns="mode", values=name)
        wide |= {f"{name}_{mode}": each[mode].tolist() for mode in SLOTS}
    features = {name: [f"{name}_{mode}" for mode in SLOTS] for name in ("price", "time")}
    names = Metadata(action_names=SLOTS)
    for formula in ("price | income", "price | 0 + sex", "1 | 0 | time"):
        one = Decisions.from_table(TABLE.sort_values("trip"), formula=formula, **LONG)
        other = Decisions.from_wide(wide, features=features, formula=formula, choice="taken", metadata=names)
        np.testing.assert_array_equal(one.features, other.features)
        assert one.metadata == other.metadata and one.choice.tolist() == other.choice.tolist()
    again = Decisions.from_wide(wide, features=features, choice="taken", metadata=other.metadata)
    np.testing.assert_array_equal(again.features, other.features)
    with pytest.raises(ValueError, match="coefficients per alternative, and options have no names"):
        Decisions.from_wide(
            {**wide, "taken": [1, 0, 1, 0, 1]}, features=features, formula="price | income", choice="taken"
        )
    wide["income"][1] = None
    with pytest.raises(ValueError, match="column 'income' is null in row 1"):
        Decisions.from_wide(wide, features=features, formula="price | income", choice="taken", metadata=names)


def test_options_without_names_have_attributes_alone():
    unnamed = LONG | {"option": None}
    data = Decisions.from_table(TABLE, formula="price + time", **unnamed)
    assert data.metadata.feature_names == ("price", "time")
    for formula in ("price | income", "price | 1", "price | 0 | time"):
        with pytest.raises(ValueError, match=r"options have no names: pass option= to from_table"):
            Decisions.from_table(TABLE, formula=formula, **unnamed)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("prise", "table has no column 'prise': its columns are"),
        ("taken ~ price", "has a left side"),
        ("a | b | c | d", "has 4 parts"),
        ("0 + price", "write 0 in the second part, as in 'price \\| 0'"),
        ("price | time", "column 'time' changes in row 2, within a decision"),
        ("income", "the column 'income', in which the options of no decision differ"),
        ("price + I(2 * price)", r"the column 'I\(2 \* price\)', which is a combination"),
        ("price | there", "the column 'car:there', which is a combination"),
        ("np.log(price)", r"not finite in some rows \(np.log\(price\)\): a logarithm of 0"),
        ("open(price)", r"calls open: it may call"),
        ("price +", "cannot be read"),
        ("0 | 0", "has no column"),
    ],
)  # fmt: skip
def test_what_a_formula_gets_wrong_is_named(formula, message):
    with pytest.raises(ValueError, match=message):
        Decisions.from_table(TABLE, formula=formula, **LONG)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_option": "tram"}, r"base_option is 'tram': pass one of the options \('bus', 'car', 'walk'\)"),
        ({"metadata": Metadata(action_names=["bus", "car", "tram", "walk"])}, "the column 'tram', in which"),
        ({"features": "price"}, "features and formula are given"),
        ({"available": None}, "column 'price' is null in row 7: every option that is available"),
        ({"metadata": Metadata(feature_names=["x"])}, r"metadata.feature_names are \('x',\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_beside_the_formula_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Decisions.from_table(TABLE, **({"formula": "price | income"} | LONG | changes))
    with pytest.raises(TypeError, match="features and formula are None"):
        Decisions.from_table(TABLE, **LONG)
    with pytest.raises(TypeError, match="formula is 3: give a string"):
        Decisions.from_table(TABLE, formula=3, **LONG)


def test_what_the_formula_took_is_plain_text():
    data = Decisions.from_table(TABLE, formula="price | sex", **LONG)
    known = json.loads(data.metadata.formula)
    assert (
        known["text"] == "price | sex" and known["base"] == "bus" and known["levels"] == {"sex": ["f", "m"]}
    )
    assert data.take([0]).metadata == data.metadata
