"""The report of a fit: what was found, the call as Python, citations; readable on a phone."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import jax
import numpy as np
import numpyro.distributions as dist
import pandas
import pytest
from matplotlib.figure import Figure

import ethogram
from ethogram.fits.as_code import as_code, call_as_code
from ethogram.fits.citations import PAPERS, SOFTWARE
from ethogram.fits.findings import of_states
from ethogram.fits.fit_object import Fit
from ethogram.fits.report import _image, write_report
from ethogram.inference import storage
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data import Metadata
from ethogram.models.families import Beta
from ethogram.models.model_object import model_object

KEY = jax.random.key(0)
MODELS = [
    ethogram.RoleHMM(2, ethogram.GaussianEmission(2), sticky=5.0),
    ethogram.RoleHMM(
        2, ethogram.ProductEmission({"step": ethogram.GammaEmission(), "turn": ethogram.VonMisesEmission()})
    ),
    ethogram.AgentMarkov(3, 2, 4, alpha=2.0, stickiness=None),
    ethogram.NoisyMDP(4.0, kind="features"),
    ethogram.Logit(lapse=dist.Beta(1.0, 19.0)),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_code_of_a_model_makes_it_again(model):
    code = as_code(model)
    assert storage.fingerprint(eval(code)) == storage.fingerprint(model)
    assert len(code) < 200  # without what the constructor fills in


def test_the_code_of_a_call_has_key_settings_and_what_it_cannot_make():
    settings = {"restarts": 2, "init_strategy": print}
    text = call_as_code(jax.random.key(7), MODELS[3], np.ones((2, 2)), "nuts", settings)
    assert (
        "fit = ethogram.fit(jax.random.key(7), model, data, method='nuts', restarts=2, init_strategy=init_strategy)"
        in text
    )
    assert "# data: the ndarray that were fitted" in text and "# init_strategy: the builtin_function" in text
    truncated = ethogram.Logit(lapse=dist.TruncatedNormal(0.1, 0.1, low=0.0, high=1.0))
    assert "# model: the NoisyMDP" in call_as_code(KEY, truncated, np.ones(1), "nuts", {})
    large = ethogram.GPIRL(ethogram.MDP.dense(np.full((9, 2, 9), 1 / 9), discount=0.9), np.eye(9))
    assert "# model: the GPIRL that was fitted" in call_as_code(
        jax.random.key(0), large, np.ones(1), "map", {}
    )
    split = jax.random.split(jax.random.key(0))[0]
    key = re.search(r"wrap_key_data\(.*?\)\)", call_as_code(split, MODELS[3], None, "nuts", {})).group()
    assert (eval(f"jax.random.{key}") == split).all()


@model_object
class OwnMoods(ConjugateModel):
    """A model that this package does not have, with states by its own word, and counts of switches."""

    label_dims: ClassVar[tuple[str, ...]] = ("mood", "next_mood")

    share: float = 0.5
    switches: float = 1.0

    def prior(self):
        return {"share": Beta.from_standard(1.0, 1.0)}

    def log_normalizer(self, expected, batch):
        return 0.0


def test_the_code_of_a_model_of_ones_own_imports_it():
    text = call_as_code(KEY, OwnMoods(0.25), np.ones(1), "cavi", {}, ["data = read()"])
    assert f"import {__name__}\n\ndata = read()\nmodel = {__name__}.OwnMoods(share=0.25)\n" in text
    assert not OwnMoods().has_labels()  # a prior count of switches is none


@pytest.mark.slow
def test_pages_say_what_was_found_fold_parameters_and_cite(roles, tmp_path):
    metadata = dataclasses.replace(roles.data.metadata, name="<script>elk", feature_names=("x<b>", "y"))
    named = Fit(
        roles.model,
        roles.data._replace(metadata=metadata),
        "cavi",
        "",
        roles.result,
        1.0,
        KEY,
        {0: "rest & sleep"},
    )
    named.code = "read('<here>')"
    page = write_report(named, tmp_path / "page.html").read_text()
    budget = named.time_budget()
    assert f"rest &amp; sleep: {100 * budget['mean'].iloc[0]:.1f} % of the recorded time" in page
    for text in ("<script>", "x<b>", "<here>"):
        assert text not in page and html.escape(text) in page
    assert page.index("What was found") < page.index("Next states") < page.index("<details><summary>")
    assert 'name="viewport"' in page and page.count('class="wide"') == page.count("<table") + page.count(
        "<img"
    )
    assert "wide" not in _image("small", (6, 4), lambda figure: None)
    assert f"Version {ethogram.__version__}" in page and "Le, Hoang M." in page and "(2017)" in page


def findings(fit):
    return fit._system.findings(fit)


def priced(people):
    names = Metadata(feature_names=["speed", "price"], feature_units=["km/h", "euro"])
    return Fit(people.model, people.data._replace(metadata=names), "nuts", "", people.result, 1.0, KEY)


def test_each_unit_of_values_has_an_axis(people):
    for width, columns in ((11, 2), (4, 1)):
        figure = priced(people).plot(Figure(figsize=(width, 5)))
        assert [axes.get_xlabel() for axes in figure.axes] == ["utility per km/h", "utility per euro"]
        assert figure.axes[0].get_gridspec().ncols == columns


@pytest.mark.slow
def test_the_mean_subject_pays_where_the_price_is_known(people):
    fit, loc = priced(people), people.result.sites["loc"].reshape(-1, 2)
    said = f"for less speed at the mean of the subjects: {np.median(loc[:, 0] / loc[:, 1]):.3g} euro per km/h of speed"
    assert findings(fit).sentences[-1].startswith(f"Willingness to pay {said}")
    loc = people.result.sites["loc"] - [0, 2]
    fit.result = dataclasses.replace(fit.result, sites=people.result.sites | {"loc": loc})
    assert findings(fit).sentences[-1] == "Willingness to pay is unknown, since price is undecided."


@pytest.mark.slow
def test_findings_of_choices_rewards_and_answers(choices, rewards, answer):
    data = choices.data._replace(
        features=np.concatenate([choices.data.features, choices.data.features[:, ::-1] ** 2], -1),
        metadata=Metadata(feature_names=["speed", "fare"], action_names=["bus", "car"]),
    )
    theta = np.random.default_rng(0).normal([2.0, -1.0], 0.1, (2, 400, 2))
    result = dataclasses.replace(choices.result, sites={"theta": theta})
    found = findings(Fit(choices.model, data, "nuts", "", result, 1.0, KEY))
    assert found.sentences[:2] == [
        f"Options are chosen {word} often with more {name}."
        for word, name in (("more", "speed"), ("less", "fare"))
    ]
    ratio = np.quantile(-theta[..., 0] / theta[..., 1], [0.5, 0.05, 0.95])
    numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", found.sentences[2].replace("90 %", ""))]
    np.testing.assert_allclose(numbers, ratio, rtol=0.01)
    (effects,) = found.tables.values()
    assert (effects.loc["speed"]["mean"] > 0).all() and (effects.loc["fare"]["upper"] < 0).all()
    best = findings(rewards)
    assert best.sentences[0].startswith("The largest reward is that of state 2, ")
    assert findings(answer).sentences[0].startswith("The assignment: ")


def test_citations_are_those_of_the_file():
    text = (Path(__file__).parents[3] / "CITATION.cff").read_text()
    for paper in (*PAPERS.values(), SOFTWARE):
        year = re.search(r"\((\d{4})\)", paper).group(1)
        assert f"year: {year}" in text or f"date-released: '{year}" in text
    families = re.findall(r"family-names: (.*)", text)
    assert (
        sum(f"{family}, " in paper for family in families for paper in PAPERS.values()) >= len(families) - 1
    )
    titles = re.findall(r"title: (.*)", text)
    assert all(any(title in paper for title in titles) for paper in PAPERS.values())
    assert "name: The ethogram developers" in text and SOFTWARE.startswith("The ethogram developers")


def test_tables_leave_out_states_that_no_path_has():
    budget = pandas.DataFrame({"mean": [0.5, 0.0, 0.5]}, pandas.Index(["0", "1", "2"], name="state"))
    pairs = pandas.MultiIndex.from_product([budget.index, budget.index], names=["state", "next_state"])
    found = SimpleNamespace(
        model=SimpleNamespace(label_dims=("state", "next_state")),
        state_names=("0", "1", "2"),
        data=SimpleNamespace(metadata=Metadata(), group=None, agent=None),
        time_budget=lambda: budget.assign(lower=0.0, upper=1.0),
        dwell_times=lambda: budget * 4,
        transitions=lambda: pandas.DataFrame({"mean": np.arange(9)}, pairs),
    )
    tables = of_states(found).tables
    assert tables["Durations of bouts"].index.tolist() == ["0", "2"]
    assert tables["Next states"]["mean"].tolist() == [0, 2, 6, 8]
