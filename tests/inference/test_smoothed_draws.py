"""Roles and intents from draws of the parameters, against enumeration of all paths."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS, Predictive

from ethogram.inference import smoothed_draws
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles import infer_roles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.roles.role_hmm import RoleHMM

SYMBOLS = [[0, 2, 2, 1], [1, 0]]


@pytest.fixture(scope="module")
def data():
    return Trajectories.from_list([np.array(row)[:, None] for row in SYMBOLS])


def draws(count):
    rng = np.random.default_rng(3)
    shapes = {"initial": (2,), "transition": (2, 2), "probability": (2, 3)}
    found = {name: rng.dirichlet(np.ones(shape[-1]), (count, *shape[:-1])) for name, shape in shapes.items()}
    found["probability"] = 0.2 * found["probability"] + 0.8 * np.array([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]])
    return found


def enumerated(parameters, symbols):
    total = np.zeros((len(symbols), 2))
    for path in itertools.product(range(2), repeat=len(symbols)):
        weight = parameters["initial"][path[0]]
        weight *= np.prod([parameters["transition"][a, b] for a, b in itertools.pairwise(path)])
        weight *= np.prod([parameters["probability"][k, x] for k, x in zip(path, symbols, strict=True)])
        total[np.arange(len(symbols)), list(path)] += weight
    return total / total.sum(-1, keepdims=True)


@pytest.mark.parametrize("count", [1, 20])
def test_roles_are_means_of_enumerations_also_where_labels_switch(data, count):
    found, model = draws(count), RoleHMM(2, CategoricalEmission(3))
    expected = [
        np.mean([enumerated({n: x[d] for n, x in found.items()}, row) for d in range(count)], 0)
        for row in SYMBOLS
    ]
    switched = {name: x.copy() for name, x in found.items()}
    switched["initial"][1::2] = switched["initial"][1::2, ::-1]
    switched["transition"][1::2] = switched["transition"][1::2, ::-1, ::-1]
    switched["probability"][1::2] = switched["probability"][1::2, ::-1]
    for given in (found, switched):
        path, probability = infer_roles(given, data, model=model)
        for number, row in enumerate(expected):
            np.testing.assert_allclose(probability[number, : len(row)], row, atol=1e-10)
            np.testing.assert_array_equal(path[number, : len(row)], row.argmax(-1))
        assert (path[1, 2:] == -1).all() and (probability[1, 2:] == 0).all()


@pytest.mark.slow
def test_an_mcmc_holds_its_model(data):
    mcmc = MCMC(NUTS(RoleHMM(2, CategoricalEmission(3))), num_warmup=3, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), data)
    found = infer_roles(mcmc, data)
    again = infer_roles(mcmc.get_samples(), data, model=RoleHMM(2, CategoricalEmission(3)))
    np.testing.assert_array_equal(found.probability, again.probability)


def test_intents_of_one_draw_are_its_smoothed_marginals():
    walks = Trajectories.from_list(states=[[0, 1, 0, 1], [1, 1]], actions=[[0, 1, 1, 0], [1, 0]])
    model = AgentMarkov(2, 2, truncation=2, stickiness=None).bind(walks)

    prior = jax.eval_shape(lambda key: Predictive(model, num_samples=2)(key, walks), jax.random.key(1))
    shapes, rng = {name: prior[name].shape for name in model.site_dims()}, np.random.default_rng(1)
    drawn = {name: rng.dirichlet(np.ones(shape[-1]), shape[:-1]) for name, shape in shapes.items()}
    one = {name: x[:1] for name, x in drawn.items()}

    @jax.jit
    def smoothed(parameters):
        traces = model.likelihood(parameters, walks).within_truncation()
        return traces.smooth(model.entries(walks).value).state

    inferred = infer_intents(one, walks, model=model)
    state = np.asarray(smoothed({n: x[0] for n, x in one.items()}))
    np.testing.assert_allclose(inferred.probability[0], state[0, :, :2], atol=1e-10)
    np.testing.assert_allclose(infer_intents(drawn, walks, model=model).visits.sum(0), [2, 4])

    del one["sticks"], drawn["weights"]
    np.testing.assert_array_equal(infer_intents(one, walks, model=model).probability, inferred.probability)
    with pytest.raises(ValueError, match="posterior has no site weights: it has initial, policy, sticks"):
        infer_intents(drawn, walks, model=model)


def test_foreign_objects_are_told_what_is_accepted(data):
    with pytest.raises(
        TypeError,
        match="ConjugatePosterior, a ConjugateResult, a SampledPosterior, numpyro's MCMC after run",
    ):
        infer_roles(object(), data)
    with pytest.raises(TypeError, match="give model=, the AgentMarkov"):
        infer_intents({}, data)


@pytest.mark.parametrize("left", [["initial"], [], ["initial", "transition", "rate"]])
def test_missing_sites_are_named_before_anything_is_traced(data, left, monkeypatch):
    monkeypatch.setattr(smoothed_draws, "_smoothed", None)
    given = {name: site for name, site in (draws(2) | {"rate": np.ones(2)}).items() if name in left}
    missing = [name for name in ("initial", "transition", "probability") if name not in left]
    expected = (
        f"posterior has no site {' and no '.join(missing)}: it has {', '.join(sorted(left)) or 'none'}; give draws of "
        "initial, transition, probability, the sites of this RoleHMM"
    )
    with pytest.raises(ValueError, match=expected):
        infer_roles(given, data, model=RoleHMM(2, CategoricalEmission(3)))


def test_numbers_of_draws_differ_or_are_none(data):
    model = RoleHMM(2, CategoricalEmission(3))
    for given in (draws(2) | {"initial": draws(3)["initial"]}, draws(0)):
        with pytest.raises(ValueError, match=r"posterior has sites with .* draws: give"):
            infer_roles(given, data, model=model)


def test_jointly_scored_sequences_are_refused(data):
    groups = data._replace(group=np.zeros(2, np.int32))
    model = RoleHMM(2, CategoricalEmission(3), exclusive="per_sequence")
    with pytest.raises(ValueError, match="not implemented for draws: fit it by ConjugateSVI"):
        infer_roles(draws(1), groups, model=model)
    mcmc = MCMC(NUTS(model), num_warmup=1, num_samples=1)
    with pytest.raises(ValueError, match="posterior is an MCMC that has not run"):
        infer_roles(mcmc, groups)
