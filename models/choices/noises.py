"""The one place where the noise of choices is chosen: what `noise`, `nu` and `lapse` of a model mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist

from ethogram.models.arguments import is_concrete, require_one_of, require_reals
from ethogram.models.choices.checks import require_prior
from ethogram.models.choices.choice_distribution import ChoiceNoise
from ethogram.models.choices.choice_noise import GumbelNoise, LapseNoise
from ethogram.models.choices.covariance_noise import CovarianceNoise, CovariancePrior
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.probit_choice import NormalNoise
from ethogram.models.choices.student_noise import StudentNoise

__all__ = ["check_labels", "given_noise", "make_noise", "noise_priors", "noise_sites", "read_noise"]

NOISES: dict[str, Any] = {
    "normal": NormalNoise, "gumbel": GumbelNoise, "student": StudentNoise, "covariance": CovarianceNoise,
}  # fmt: skip


def make_noise(model: Any, parameters: dict[str, Any] | None) -> ChoiceNoise:
    """The noise of a model, with what has priors at these values, by site, or without a value."""
    known = parameters or {}
    own = known.get("noise_covariance") if model.noise == "covariance" else known.get("nu", model.nu)
    base = NOISES[model.noise](*() if own is None and model.noise != "covariance" else (own,))
    lapse = known.get("lapse", model.lapse) if "lapse" in noise_sites(model) else model.lapse
    return base if lapse is None else LapseNoise(base, lapse)


def noise_sites(model: Any) -> tuple[str, ...]:
    """Sites of the noise that have priors."""
    covariance = ("noise_covariance",) if model.noise == "covariance" else ()
    return (
        *covariance,
        *(name for name in ("nu", "lapse") if isinstance(getattr(model, name), dist.Distribution)),
    )


def noise_priors(model: Any, data: Decisions) -> dict[str, dist.Distribution]:
    """Their priors, by site."""
    return {
        name: CovariancePrior(data.legal.shape[1] - 1, model.nu)
        if name == "noise_covariance"
        else getattr(model, name)
        for name in noise_sites(model)
    }


def given_noise(model: Any, parameters: dict[str, Any], data: Decisions) -> dict[str, Any]:
    """What of the noise has a prior and a value, which is taken from the parameters; raises where it is none."""
    given = {name: parameters.pop(name) for name in noise_sites(model) if name in parameters}
    for name, value in given.items():
        if not is_concrete(value):
            continue
        number = np.asarray(value, float)
        if name == "lapse":
            fine, wanted = number.ndim == 0 and bool(0 <= number <= 1), "a number in [0, 1]"
        elif name == "nu":
            fine, wanted = number.ndim == 0 and bool(1 <= number < np.inf), "a finite number of at least 1"
        else:
            fine = number.shape == (data.legal.shape[1] - 1,) * 2 and np.isfinite(number).all()
            fine = fine and np.allclose(number, number.T) and bool(np.linalg.eigvalsh(number)[0] > 0)
            wanted = "a symmetric, positive definite matrix of all alternatives but the last"
        if not fine:
            raise ValueError(f"parameters[{name!r}] is {value!r}: pass {wanted}")
    return given


def check_labels(model: Any, data: Decisions, condition: bool) -> None:
    """Raise ValueError where the noise is a covariance of alternatives, and cannot be learnt from these decisions."""
    count, names, nu = data.legal.shape[1], data.metadata.action_names, model.nu
    if model.noise != "covariance":
        return
    if names is None:
        raise ValueError(
            'noise is "covariance", and the options have no labels: slot 0 has to be the same alternative in every '
            "decision, such as the bus. Name the alternatives by Metadata(action_names=...); options that are not the "
            'same everywhere have no covariance, so use noise="normal"'
        )
    if count < 3:
        raise ValueError(f'noise is "covariance", and there are {count} alternatives: use noise="normal"')
    if nu is not None and is_concrete(nu) and nu < count - 1:
        raise ValueError(f"nu is {nu!r}: a covariance of {count} alternatives needs at least {count - 1}")
    if condition and is_concrete(data.legal, data.choice):
        legal = np.asarray(data.legal)
        told = legal[(weights_of(data, known=True) > 0) & (legal.sum(1) > 1)].any(0)
        if not told.all():
            raise ValueError(
                f"alternative {names[int(told.argmin())]!r} is legal in no decision with a known choice: drop it, "
                "since its covariance would have its prior only"
            )


def read_noise(noise: Any, nu: Any, lapse: Any, flat: bool) -> tuple[Any, Any]:
    """Degrees of freedom and lapse probability, None where there are none; raises as `NoisyMDP`."""
    require_one_of("noise", noise, tuple(NOISES))
    if noise == "covariance" and flat:
        raise ValueError(
            "kappa is infinite, and the covariance of alternatives may become singular: the posterior is improper. "
            "Pass a finite kappa"
        )
    if noise == "student" and nu is None:
        nu = 4.0
    if nu is not None:
        if noise not in ("student", "covariance"):
            raise ValueError(f'nu is {nu!r}, but noise is {noise!r}: leave nu out, or pass noise="student"')
        if isinstance(nu, dist.Distribution):
            if noise == "covariance":
                raise TypeError("nu is a distribution: that of the prior of a covariance is a number")
            require_prior("nu", nu, least=1.0)
            return nu, _read_lapse(lapse, noise, flat)
        require_reals("nu", nu)
        if np.ndim(nu) or (is_concrete(nu) and not 1 <= np.asarray(nu) < np.inf):
            raise ValueError(
                f"nu must be a finite number of at least 1, not {nu!r}: give lapse= for errors that are rarer and "
                'larger, and noise="normal" for infinite nu'
            )
    return nu, _read_lapse(lapse, noise, flat)


def _read_lapse(lapse: Any, noise: str, flat: bool) -> Any:
    if isinstance(lapse, dist.Distribution):
        require_prior("lapse", lapse, most=1.0)
    elif lapse is not None:
        require_reals("lapse", lapse)
        if np.ndim(lapse) or (is_concrete(lapse) and not 0 <= np.asarray(lapse) < 1):
            raise ValueError(f"lapse must be a number in [0, 1), or a distribution, not {lapse!r}")
        lapse = None if is_concrete(lapse) and lapse == 0 else lapse
    if flat and (lapse is not None or noise == "student"):
        cause = "lapses" if lapse is not None else "Student noise"
        raise ValueError(
            f"kappa is infinite, and with {cause} the likelihood does not vanish fast enough as values grow: the "
            "posterior is improper. Pass a finite kappa"
        )
    return lapse
