"""Policies by duck type: whatever has `fit(X, y, sample_weight)` and `predict` or `predict_proba`, one per role.

Classifiers and regressors of scikit-learn are policies as they are; this package does not import it.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np

from ethogram.inference import storage
from ethogram.models.arguments import require_one_of

__all__ = ["check_policy", "choose_actions", "describe_policy", "fit_policy", "new_policy"]

CHOICES = ("mode", "sample")
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


def check_policy(policy: Any, choose: str, num_actions: int | None) -> None:
    """Raise TypeError unless policies can be fitted with weights and asked for actions."""
    require_one_of("choose", choose, CHOICES)
    made = new_policy(policy, 0)
    came = f"policy is {type(made).__name__}"
    if not callable(getattr(made, "fit", None)):
        raise TypeError(
            f"{came}, which has no fit(X, y, sample_weight): give an estimator or a factory of one"
        )
    if not _answers(made):
        raise TypeError(f"{came}, which has neither predict(X) nor predict_proba(X): define one")
    parameters = inspect.signature(made.fit).parameters
    if "sample_weight" not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(
            f"{came}, whose fit takes no sample_weight, so that probabilities of roles could not weight the training: "
            "add the argument"
        )
    if choose == "sample" and not callable(getattr(made, "predict_proba", None)):
        raise TypeError(f"{came} without predict_proba(X), which choose='sample' needs: use choose='mode'")
    if num_actions is None and (choose == "sample" or not callable(getattr(made, "predict", None))):
        raise TypeError(
            f"{came}, and choose is {choose!r}: real-valued actions need predict(X) and choose='mode'"
        )


def describe_policy(policy: Any) -> list[Any]:
    """Class and parameters of a policy, by which a checkpoint knows it; what no file can hold counts by its class."""
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
    fitted = policy.fit(features, actions, sample_weight=weight)
    return fitted if _answers(fitted) else policy


def _answers(policy: Any) -> bool:
    return any(callable(getattr(policy, name, None)) for name in ("predict", "predict_proba"))


def choose_actions(
    policy: Any,
    features: np.ndarray,
    num_actions: int | None,
    choose: str,
    rng: np.random.Generator,
    role: int,
) -> np.ndarray:
    """Actions of a fitted policy at rows of features: its prediction, or draws from its probabilities.

    A ValueError names the role where the answer has another shape, is not finite, or no legal action.
    """
    count, origin = len(features), f"the policy of role {role}"
    if choose == "sample" or not callable(getattr(policy, "predict", None)):
        answer = _from_probabilities(policy, features, num_actions, choose, rng, origin)
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
    choose: str,
    rng: np.random.Generator,
    origin: str,
) -> np.ndarray:
    chance = np.asarray(policy.predict_proba(features), float)
    labels = np.asarray(getattr(policy, "classes_", np.arange(num_actions or 0)))
    if chance.shape != (len(features), len(labels)):
        raise ValueError(
            f"{origin} answered probabilities of shape {chance.shape}: give ({len(features)}, {len(labels)}), one "
            "column for each of classes_, or of the actions"
        )
    if not (np.isfinite(chance).all() and (chance >= 0).all() and np.allclose(chance.sum(1), 1, atol=1e-4)):
        raise ValueError(f"{origin} answered probabilities that are negative, or do not sum to one")
    if choose == "mode":
        return labels[chance.argmax(1)]
    below = np.cumsum(chance, axis=1)
    return labels[(rng.random((len(features), 1)) * below[:, -1:] >= below).sum(1).clip(max=len(labels) - 1)]
