"""A rat that tells which of two tones was louder: 20 000 choices in 80 sessions.

Origin and licence are in ``data/psytrack_rat/NOTICE``. Covariates of a trial are the standardised loudness of both
tones, and, of the trial before, its mean loudness, its choice and its correct choice, -1 or 1; 0 where there was none.
The trial before is that of the recording, some of whose trials were not valid and are not in these data.

References
----------
Akrami, Kopec, Diamond, Brody (2018), Posterior parietal cortex represents sensory history and mediates its effects on
behaviour. Roy, Bak, IBL, Akrami, Brody, Pillow (2021), Extracting the dynamics of behavior in sensory decision-making
experiments.
"""

import numpy as np

from ethogram.domains.data import archive
from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["COVARIATES", "load"]

COVARIATES = ("s_a", "s_b", "previous_mean", "previous_choice", "previous_answer")


def load() -> Trajectories:
    """The choices, 0 or 1, one sequence a session, with their covariates.

    Examples
    --------
    >>> load().num_sequences
    80
    """
    keys = ("y", "lengths", "s_a", "s_b", "s_avg", "c", "h")
    y, lengths, *columns = archive.embedded("psytrack_rat", "psytrack_rat.npz", keys)
    ends = np.cumsum(lengths)[:-1]
    return Trajectories.from_list(
        np.split(y[:, None].astype(float), ends),
        covariates={name: np.split(each, ends) for name, each in zip(COVARIATES, columns, strict=True)},
        metadata=Metadata(name="psytrack rat", feature_names=("choice",), time_unit="trial"),
    )
