"""Weights of rows reach the learner that is inside a pipeline, and learners that refuse one class have a policy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.imitation import Demonstrations, imitate
from ethogram.inference.imitation.policies import check_policy, choose_actions, fit_policy, new_policy

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2)) * [1.0, 50.0] + [0.0, 1000.0]
Y = (X[:, 0] + 0.5 * RNG.normal(size=200) > 0).astype(int)
WEIGHT = RNG.uniform(0.1, 3, size=200)


def fitted(policy, y=Y):
    check_policy(policy, False, 2)
    return fit_policy(new_policy(policy, 0), X, y, WEIGHT, 0)


def test_weights_go_to_the_last_step_of_a_pipeline():
    scaler, learner = StandardScaler(), LogisticRegression()
    found = fitted(Pipeline([("scaler", StandardScaler()), ("learner", LogisticRegression())]))
    learner.fit(scaler.fit_transform(X), Y, WEIGHT)
    np.testing.assert_allclose(found.predict_proba(X), learner.predict_proba(scaler.transform(X)))
    unweighted = LogisticRegression().fit(scaler.transform(X), Y)
    assert np.abs(unweighted.coef_ - learner.coef_).max() > 1e-3


def test_weights_go_through_pipelines_and_searches_to_the_learner():
    nested = Pipeline(
        [("scaler", StandardScaler()), ("rest", make_pipeline(StandardScaler(), LogisticRegression()))]
    )
    plain = fitted(make_pipeline(StandardScaler(), LogisticRegression()))
    np.testing.assert_allclose(fitted(nested).predict_proba(X), plain.predict_proba(X), atol=1e-6)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [1.0]}, cv=2
    )
    np.testing.assert_allclose(fitted(search).predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    "policy", [KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())]
)
def test_a_learner_without_weights_is_named(policy):
    with pytest.raises(TypeError, match="KNeighborsClassifier, whose fit takes no sample_weight"):
        check_policy(policy, True, 2)


@pytest.mark.parametrize(
    "policy", [make_pipeline(StandardScaler(), LogisticRegression()), LogisticRegression()]
)
def test_a_role_with_a_single_action_has_a_policy(policy):
    with pytest.warns(UserWarning, match="role 0 always took action 1, which is its policy"):
        found = fitted(policy, np.ones(200, int))
    for deterministic in (True, False):
        chosen = choose_actions(found, X, 2, deterministic, np.random.default_rng(0), 0)
        assert (chosen == 1).all()
    tree = fitted(DecisionTreeClassifier(), np.ones(200, int))
    assert isinstance(tree, DecisionTreeClassifier) and (tree.predict(X) == 1).all()


def test_errors_of_learners_are_theirs():
    class Broken(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        fitted(Broken())


def test_pipelines_imitate(ring):
    _, roles, games = ring.demonstrations()
    policy = make_pipeline(StandardScaler(), DecisionTreeClassifier())
    result = imitate(
        jax.random.key(0),
        roles.ravel(),
        policy,
        ring.Ring(),
        Demonstrations(*games),
        expert=ring.RingExperts(roles),
        rounds=2,
        horizon=8,
        progress_bar=False,
    )
    assert result.failure[-1] == 0 and not hasattr(policy[-1], "tree_")
