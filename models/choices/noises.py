"""The one place where the noise of choices is chosen: what `noise`, `nu` and `lapse` of a model mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist

from ethogram.models.arguments import is_concrete, require_one_of, require_reals
from ethogram.models.choices.checks import require_prior
from ethogram.models.choices.choice_distribution import ChoiceNoise
from ethogram.models.choices.choice_noise import GumbelNoise, LapseNoise
from ethogram.models.choices.probit_choice import NormalNoise
from ethogram.models.choices.student_noise import StudentNoise

__all__ = ["make_noise", "read_noise"]

NOISES = {"normal": NormalNoise, "gumbel": GumbelNoise, "student": StudentNoise}


def make_noise(noise: str, nu: Any, lapse: Any) -> ChoiceNoise:
    """The noise of this name, with lapses unless `lapse` is None."""
    base = NOISES[noise]() if nu is None else NOISES[noise](nu)
    return base if lapse is None else LapseNoise(base, lapse)


def read_noise(noise: Any, nu: Any, lapse: Any, flat: bool) -> tuple[Any, Any]:
    """Degrees of freedom and lapse probability, None where there are none; raises as `NoisyMDP`."""
    require_one_of("noise", noise, tuple(NOISES))
    if noise == "student" and nu is None:
        nu = 4.0
    if nu is not None:
        if noise != "student":
            raise ValueError(f'nu is {nu!r}, but noise is {noise!r}: leave nu out, or pass noise="student"')
        require_reals("nu", nu)
        if np.ndim(nu) or (is_concrete(nu) and not 1 <= np.asarray(nu) < np.inf):
            raise ValueError(
                f"nu must be a finite number of at least 1, not {nu!r}: give lapse= for errors that are rarer and "
                'larger, and noise="normal" for infinite nu'
            )
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
    return nu, lapse
