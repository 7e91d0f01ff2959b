"""Rewards between which an agent switches: the likelihood against all paths, the numpyro model, and what is refused."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.inference.state_order import in_order
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_policy
from ethogram.models.rewards import GPIRL, IntentChain, SwitchingGPIRL, SwitchingPolicies

CORRIDOR = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
FEATURES = np.array([[0.0], [1.0], [2.0]])
DATA = Trajectories.from_list(
    states=[[0, 1, 2, 2, 1], [2], [1, 0, 1]], actions=[[1, 1, -1, 0, 0], [0], [0, 1, -1]]
)
INITIAL, TRANSITION = np.array([0.7, 0.3]), np.array([[0.8, 0.2], [0.1, 0.9]])


def corridor(num_intents=2, sticky=10.0):
    return SwitchingGPIRL(
        GPIRL(CORRIDOR, FEATURES, scale_prior=5.0, relevance_prior=1.0), num_intents, sticky
    )


def by_all_paths(policy, initial, transition, data=DATA):
    """Log likelihood (sequence,) summed over all paths of intents, in NumPy."""
    totals = []
    for states, actions, length in zip(data.states, data.actions, data.lengths, strict=True):
        total = 0.0
        for path in itertools.product(range(len(initial)), repeat=int(length)):
            weight = initial[path[0]] * np.prod([transition[i, j] for i, j in itertools.pairwise(path)])
            for intent, state, action in zip(path, states, actions, strict=False):
                weight *= 1.0 if action < 0 else policy[intent, state, action]
            total += weight
        totals.append(np.log(total))
    return np.array(totals)


def sites_of(model, data, **values):
    """Values of the sites of the model by name, some of them given, and the log likelihood of each demonstration."""

    def sites():
        given = numpyro.handlers.substitute(numpyro.handlers.seed(model, jax.random.key(3)), values)
        trace = numpyro.handlers.trace(given).get_trace(data)
        scores = [site["fn"].log_prob(site["value"]) for site in trace.values() if site.get("is_observed")]
        return {name: site["value"] for name, site in trace.items() if site["type"] != "plate"}, scores

    return sites


def test_the_likelihood_is_that_of_all_paths():
    """Missing actions, ragged lengths and one step included; and the prior density is that of its parts."""
    model = corridor(sticky=4.0)

    @jax.jit
    def found():
        sites, (scores,) = sites_of(
            model, DATA, initial=jnp.asarray(INITIAL), transition=jnp.asarray(TRANSITION)
        )()
        values = {name: sites[name] for name in ("initial", "transition", "reward_white")}
        return sites["policy"], values["reward_white"], scores, log_density(model, (DATA,), {}, values)[0]

    policy, white, scores, total = map(np.asarray, found())
    expected = by_all_paths(policy, INITIAL, TRANSITION)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    normal = -0.5 * (white**2).sum() - 3 * np.log(2 * np.pi)
    # Dirichlet densities: uniform first intents, Beta(5, 1) probabilities of staying.
    stays = 2 * np.log(5.0) + 4 * np.log(np.diag(TRANSITION)).sum()
    np.testing.assert_allclose(total, expected.sum() + normal + stays, rtol=1e-10)


def test_one_intent_has_the_likelihood_of_one_reward():
    model = corridor(num_intents=1)
    sites, (scores,) = jax.jit(sites_of(model, DATA))()
    _, (alone,) = jax.jit(sites_of(model.base, DATA, reward_white=sites["reward_white"][0]))()
    np.testing.assert_allclose(scores, alone, rtol=1e-12)
    assert not model.has_labels() and corridor().has_labels()


def test_rewards_of_intents_are_apart_and_share_hyper_parameters():
    """Rewards of states, and of pairs given inducing points."""
    draws, _ = jax.eval_shape(sites_of(corridor(), None))
    assert draws["reward"].shape == (2, 3) and draws["scale"].shape == ()
    pairs = np.random.default_rng(0).normal(size=(3, 2, 2))
    model = SwitchingGPIRL(GPIRL(CORRIDOR, pairs, family="inducing", inducing=np.array([0, 3])), 3)
    draws, _ = jax.eval_shape(sites_of(model, DATA))
    assert draws["reward"].shape == (3, 3, 2) and draws["u_white"].shape == (3, 2)
    assert draws["policy"].shape == (3, 3, 2)


def test_simulated_intents_stay_and_act():
    """Frequencies of staying and of actions of simulated demonstrations, of given rewards."""
    parameters = {
        "reward": np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]), "initial": INITIAL, "transition": TRANSITION,
    }  # fmt: skip
    model = corridor()
    found = model.simulate(jax.random.key(0), num_trajectories=500, length=20, parameters=parameters)
    assert found.intents.shape == (500, 20)
    assert abs((found.intents[:, 0] == 0).mean() - 0.7) < 4 * np.sqrt(0.21 / 500)
    policy = np.asarray(soft_policy(CORRIDOR, parameters["reward"]))
    states, actions = found.data.states, found.data.actions
    for intent in range(2):
        left = found.intents[:, :-1] == intent
        stayed = (found.intents[:, 1:] == intent)[left].mean()
        assert abs(stayed - TRANSITION[intent, intent]) < 4 * np.sqrt(0.2 / left.sum())
        here = (found.intents == intent) & (states == 1)
        assert abs(actions[here].mean() - policy[intent, 1, 1]) < 4 * np.sqrt(0.25 / here.sum())
    wrong = {
        "parameters have no initial": {"reward": parameters["reward"]},
        r"parameters\['reward'\] has shape \(3,\)": parameters | {"reward": np.zeros(3)},
        r"parameters\['initial'\] sums to 1.4": parameters | {"initial": INITIAL * 2 - [0, 0.6]},
        r"parameters\['transition'\] has shape \(3, 3\)": parameters | {"transition": np.eye(3)},
    }
    for match, given in wrong.items():
        with pytest.raises(ValueError, match=match):
            model.simulate(jax.random.key(0), num_trajectories=1, length=2, parameters=given)
    with pytest.raises(ValueError, match="num_trajectories must be at least 1"):
        model.simulate(jax.random.key(0), num_trajectories=0, length=2)


@pytest.mark.slow
def test_new_data_keep_lengths_and_first_states():
    drawn = Predictive(corridor(), num_samples=3)(jax.random.key(0), DATA, condition=False)["demonstrations"]
    assert drawn.shape == (3, 3, 5, 2)
    assert ((drawn[..., 0] >= 0) == (np.arange(5) < np.asarray(DATA.lengths)[:, None])).all()
    assert (drawn[:, :, 0, 0] == DATA.states[:, 0]).all()


def test_filtered_and_smoothed_intents_against_all_paths():
    policy = np.random.default_rng(1).dirichlet(np.ones(2), (2, 3))
    acts = SwitchingPolicies(CORRIDOR, np.log(policy), IntentChain(INITIAL, TRANSITION), length=5)
    value = np.stack([DATA.states[:1], DATA.actions[:1]], -1)
    found = jax.jit(lambda acts, value: (acts.filter(value).log_increment, acts.smooth(value).state))
    increment, smoothed = map(np.asarray, found(acts, value))
    whole = by_all_paths(policy, INITIAL, TRANSITION, DATA.take([0]))[0]
    np.testing.assert_allclose(increment.sum(), whole, rtol=1e-12)
    # The first intent, by fixing it.
    first = by_all_paths(policy, np.array([0.7, 0.0]), TRANSITION, DATA.take([0]))[0]
    np.testing.assert_allclose(smoothed[0, 0, 0], np.exp(first - whole), rtol=1e-12)


def test_intents_of_most_steps_come_first():
    """The expected number of steps is that of smoothing; draws of a sampler are ordered by it."""
    parameters = {
        "reward": np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]), "initial": np.array([0.1, 0.9]),
        "transition": np.array([[0.5, 0.5], [0.1, 0.9]]),
    }  # fmt: skip
    model = corridor()
    data = model.simulate(jax.random.key(0), num_trajectories=20, length=20, parameters=parameters).data
    sites = parameters | {"policy": np.asarray(soft_policy(CORRIDOR, parameters["reward"]))}
    draws = {name: np.stack([np.asarray(x, float)] * 3)[None] for name, x in sites.items()}
    position = model.state_positions({name: x[0] for name, x in draws.items()}, data)
    assert position.sum() == pytest.approx(-400) and position[1] < position[0]
    ordered = in_order(SampledPosterior(model, draws, {}), data).sites
    np.testing.assert_array_equal(ordered["reward"], draws["reward"][:, :, ::-1])
    np.testing.assert_array_equal(ordered["transition"], draws["transition"][:, :, ::-1, ::-1])


def test_what_does_not_go_together_is_refused():
    model = corridor()
    with pytest.raises(TypeError, match="the order of the actions matters"):
        model(np.ones((3, 2), int))
    with pytest.raises(ValueError, match="leave subject out"):
        model.check(DATA._replace(subject=np.zeros(3, int)))
    with pytest.raises(TypeError, match="base is MDP: give a GPIRL"):
        SwitchingGPIRL(CORRIDOR, 2)
    with pytest.raises(ValueError, match="sticky must be a number of at least 0, not -1"):
        corridor(sticky=-1.0)
    with pytest.raises(ValueError, match="num_intents"):
        corridor(num_intents=0)
