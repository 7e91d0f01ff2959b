"""Policies by duck type: whatever has `fit(X, y, sample_weight)` and `predict` or `predict_proba`, one per role.

Classifiers, regressors and pipelines of scikit-learn are policies as they are; this package does not import it.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np

from ethogram.inference import storage
from ethogram.models.arguments import warn_user

__all__ = ["check_policy", "choose_actions", "describe_policy", "fit_policy", "new_policy"]

SEED = "random_state"


def new_policy(policy: Any, seed: int) -> Any:
    """An unfitted policy: a deep copy of an estimator, or what a factory or class returns.

    Every parameter called ``random_state``, also of a nested estimator, that is None becomes `seed`.
    """
    made = policy() if _is_factory(policy) else copy.deepcopy(policy)
    parameters = made.get_params() if hasattr(made, "get_params") and hasattr(made, "set_params") else None
    if parameters is not None:
        unset = {
            name: seed
            for name, value in parameters.items()
            if value is None and name.rpartition("__")[2] == SEED
        }
        return made.set_params(**unset) if unset else made
    if getattr(made, SEED, seed) is None:
        setattr(made, SEED, seed)
    return made


def _is_factory(policy: Any) -> bool:
    return isinstance(policy, type) or (callable(policy) and not hasattr(policy, "fit"))


def check_policy(policy: Any, deterministic: bool, num_actions: int | None) -> None:
    """Raise TypeError unless policies can be fitted with weights and asked for actions."""
    made = new_policy(policy, 0)
    given = f"policy is {type(made).__name__}"
    if not callable(getattr(made, "fit", None)):
        raise TypeError(
            f"{given}, which has no fit(X, y, sample_weight): give an estimator or a factory of one"
        )
    if not _answers(made):
        raise TypeError(f"{given}, which has neither predict(X) nor predict_proba(X): define one")
    _weight_argument(made)
    if not deterministic and not callable(getattr(made, "predict_proba", None)):
        raise TypeError(
            f"{given} without predict_proba(X), which deterministic=False needs: use deterministic=True"
        )
    if num_actions is None and (not deterministic or not callable(getattr(made, "predict", None))):
        raise TypeError(
            f"{given}, and deterministic is {deterministic}: real-valued actions need predict(X) and deterministic=True"
        )


def _weight_argument(policy: Any) -> str:
    """Name by which ``fit`` takes the weights of rows: of a pipeline, that of its last step.

    A TypeError where it takes none, since probabilities of roles weight the training.
    """
    inner, prefix = getattr(policy, "estimator", None), ""
    if getattr(policy, "steps", None):  # of a Pipeline
        name, inner = policy.steps[-1]
        prefix = f"{name}__"
    parameters = inspect.signature(policy.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if passes_on and inner is not None and callable(getattr(inner, "fit", None)):
        return prefix + _weight_argument(inner)
    if passes_on and not prefix:
        return "sample_weight"
    raise TypeError(
        f"policy has {type(inner if prefix else policy).__name__}, whose fit takes no sample_weight, so that "
        "probabilities of roles could not weight the training: take an estimator that does, as the last step of a "
        "pipeline too, or wrap it in a class whose fit(X, y, sample_weight) draws rows by their weights"
    )


def describe_policy(policy: Any) -> list[Any]:
    """Class and parameters of a policy, as checkpoints compare it.

    Values that cannot be stored are represented by their class name.
    """
    made = new_policy(policy, 0)
    parameters = made.get_params() if hasattr(made, "get_params") else getattr(made, "__dict__", {})
    found: list[Any] = [type(made).__qualname__]
    for name, value in sorted(parameters.items()):
        try:
            found.append([str(name), storage.fingerprint(value)])
        except (TypeError, ValueError):
            found.append([str(name), type(value).__qualname__])
    return found


def fit_policy(policy: Any, features: np.ndarray, actions: np.ndarray, weight: np.ndarray, role: int) -> Any:
    """The policy after its training on rows (row, feature), (row,) or (row, dim), weighted by (row,).

    It is what ``fit`` returns where that can be asked for actions, else the policy itself.
    """
    if not len(features):
        raise ValueError(
            f"role {role} has no data: no agent holds it with a probability that counts; give fewer roles, or more "
            "demonstrations"
        )
    try:
        fitted = policy.fit(features, actions, **{_weight_argument(policy): weight})
    except ValueError as error:
        if actions.ndim > 1 or (actions != actions[0]).any():
            raise
        warn_user(f"role {role} always took action {actions[0]}, which is its policy: {error}")
        return OneAction(int(actions[0]))
    return fitted if _answers(fitted) else policy


class OneAction:
    """The policy of a role that always took the same action, where the estimator refuses data of a single class."""

    def __init__(self, action: int):
        self.action = action
        self.classes_ = np.array([action])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The action, for each row."""
        return np.full(len(X), self.action)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probability one."""
        return np.ones((len(X), 1))


def _answers(policy: Any) -> bool:
    return any(callable(getattr(policy, name, None)) for name in ("predict", "predict_proba"))


def choose_actions(
    policy: Any,
    features: np.ndarray,
    num_actions: int | None,
    deterministic: bool,
    rng: np.random.Generator,
    role: int,
) -> np.ndarray:
    """Actions of a fitted policy at rows of features: its prediction, or draws from its probabilities.

    A ValueError names the role where the answer has another shape, is not finite, or no legal action.
    """
    count, origin = len(features), f"the policy of role {role}"
    if not deterministic or not callable(getattr(policy, "predict", None)):
        answer = _from_probabilities(policy, features, num_actions, deterministic, rng, origin)
    else:
        answer = np.asarray(policy.predict(features))
    if num_actions is None:
        answer = answer.reshape(count, -1) if answer.shape[:1] == (count,) else answer
        if answer.ndim != 2 or answer.dtype.kind not in "iuf":
            raise ValueError(
                f"{origin} answered {answer.dtype} of shape {answer.shape} for {count} rows: give reals ({count}, dim)"
            )
        for row, dim in np.argwhere(~np.isfinite(answer))[:1]:
            raise ValueError(f"{origin} answered {answer[row, dim]} at row {row}: actions must be finite")
        return answer.astype(float)
    if answer.shape != (count,):
        raise ValueError(f"{origin} answered shape {answer.shape} for {count} rows: give one action for each")
    if answer.dtype.kind == "f" and np.isfinite(answer).all() and (answer == np.round(answer)).all():
        answer = answer.astype(np.int64)
    if answer.dtype.kind not in "iu":
        raise ValueError(f"{origin} answered {answer.dtype} actions, such as {answer[:1]}: give integers")
    wrong = (answer < 0) | (answer >= num_actions)
    if wrong.any():
        raise ValueError(f"{origin} answered action {answer[wrong][0]}: legal are 0 to {num_actions - 1}")
    return answer


def _from_probabilities(
    policy: Any,
    features: np.ndarray,
    num_actions: int | None,
    deterministic: bool,
    rng: np.random.Generator,
    origin: str,
) -> np.ndarray:
    probs = np.asarray(policy.predict_proba(features), float)
    labels = np.asarray(getattr(policy, "classes_", np.arange(num_actions or 0)))
    if probs.shape != (len(features), len(labels)):
        raise ValueError(
            f"{origin} answered probabilities of shape {probs.shape}: give ({len(features)}, {len(labels)}), one "
            "column for each of classes_, or of the actions"
        )
    if not (np.isfinite(probs).all() and (probs >= 0).all() and np.allclose(probs.sum(1), 1, atol=1e-4)):
        raise ValueError(f"{origin} answered probabilities that are negative, or do not sum to one")
    if deterministic:
        return labels[probs.argmax(1)]
    cumulative = np.cumsum(probs, axis=1)
    return labels[
        (rng.random((len(features), 1)) * cumulative[:, -1:] >= cumulative).sum(1).clip(max=len(labels) - 1)
    ]
