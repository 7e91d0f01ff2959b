"""The tables of behaviour of a fit with hidden states, by paths drawn from its posterior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ethogram.fits import behaviour
from ethogram.models.arguments import require_integer

__all__ = ["NUM_PATHS", "BehaviourTables"]

NUM_PATHS = 100
"""Draws of the paths of hidden states."""


class BehaviourTables:
    """Tables of a `Fit`, which has its states and draws its paths."""

    _data: Callable[[Any], Any]
    _key: Any
    _sample_paths: Callable[[int, Any], np.ndarray]
    state_names: Any
    states: Callable[..., Any]

    def _behaviour(
        self,
        tabulate: Callable[..., Any],
        by: Any,
        difference: Any = None,
        resample: str | None = None,
        probability: float = 0.9,
        num_draws: int = NUM_PATHS,
        data: Any = None,
        **more: Any,
    ) -> Any:
        """A table of behaviour, with the options of :meth:`time_budget`, and `more` that `tabulate` takes."""
        given = self._data(data)
        require_integer("num_draws", num_draws, 1)
        paths, key = self._sample_paths(num_draws, given), jax.random.fold_in(self._key, 1)
        counted = behaviour.count(paths, given, self.state_names, by, resample, key)
        return tabulate(counted, given, probability, difference, **more)

    def time_budget(
        self,
        by: Any = None,
        *,
        difference: Any = None,
        resample: str | None = None,
        probability: float = 0.9,
        num_draws: int = NUM_PATHS,
        data: Any = None,
        at: Mapping[str, Any] | None = None,
    ) -> Any:
        """Shares of the recorded time in each hidden state, with intervals over paths drawn from the posterior.

        Missing frames do not count. Intervals of an `AgentMarkov` fitted by ``"cavi"`` or ``"svi"`` are too narrow
        where intents overlap, as those of its parameters are.

        Parameters
        ----------
        by : what divides the frames: ``"agent"``, ``"group"``, ``"subject"`` or ``"sequence"``; ``"hour"``, ``"day"``
            or ``"month"`` of dates, in their time zone (of Movebank in UTC, unless read with ``time_zone=``); levels of
            one's own such as ``{"sex": {"RD01": "f", "RD02": "m"}}`` by label of the agents, subjects or groups, or one
            per sequence; or a list of these. None for all frames together.
        difference : two levels of the first entry of `by`; rows are then shares of the first less those of the second.
        resample : ``"agent"``, ``"group"``, ``"subject"`` or ``"sequence"``: these are weighted anew in every draw (the
            Bayesian bootstrap), and intervals speak of the population that they are a sample of. Without it intervals
            are about these animals in these frames.
        probability : of the intervals.
        num_draws : paths of every sequence.
        data : the data of the fit where None.
        at : values by covariate, of a fit with `Covariates`, such as ``{"temperature": [5, 25]}``: shares are then
            those of the long run where covariates keep these values, the others their medians or most frequent
            levels, of a subject with the log odds of the population, and with two settings rows of the ``difference``
            follow, the second less the first. `by` and the rest, but for `probability`, do not count then.

        Returns
        -------
        A pandas DataFrame with a row per level and state: ``mean``, ``lower`` and ``upper`` of the share, and ``time``,
        the expected time in the state (timedeltas where times are dates or durations, else units of time, or frames),
        which a table `at` settings of covariates does not have.
        """
        if at is not None:
            from ethogram.fits.effects import long_run

            return long_run(self, at, probability)
        options = (difference, resample, probability, num_draws, data)
        return self._behaviour(behaviour.time_budget, by, *options)

    def usage(self, by: Any = None, **options: Any) -> Any:
        """Shares of the bouts that are of each hidden state, and the expected number of ``bouts``.

        A bout is a run of one state along a path drawn from the posterior, through missing frames too, so that gaps do
        not count a long bout twice; bouts without a recorded frame do not count. `by`, the options and errors are those
        of :meth:`time_budget`.
        """
        return self._behaviour(behaviour.usage, by, **options)

    def dwell_times(self, by: Any = None, **options: Any) -> Any:
        """Mean durations of bouts of each hidden state, and the expected number of ``ends`` that they rest on.

        Recorded steps in the state per end of a bout, so that bouts that a gap or the end of a recording cuts count as
        long as they were seen: the maximum likelihood estimate where ends do not depend on how long a bout has lasted.
        NaN where no end was seen. Of dates they are timedeltas, and differences are seconds; ``attrs["unit"]`` is the
        unit of numbers. `by`, the options and errors are those of :meth:`time_budget`.
        """
        return self._behaviour(behaviour.dwell_times, by, **options)

    def dwell_distribution(self, probability: float = 0.9) -> Any:
        """Fitted probabilities of how long each hidden state of a `RoleHMM` lasts, beside the bouts that were observed.

        Those of ``dwell="negative-binomial"``, or the geometric ones of any hidden Markov model, which may not fit.

        Parameters
        ----------
        probability : of the intervals.

        Returns
        -------
        A pandas DataFrame with a row per state and dwell time in frames: ``mean``, ``lower`` and ``upper`` of its
        probability, ``bouts``, how many of the most probable path had it that no gap and no end of a recording cuts,
        and ``observed``, their share. Long bouts are cut more often, and are missing among those.
        """
        from ethogram.fits.dwell import dwell_distribution

        return dwell_distribution(self, probability)

    def transitions(self, by: Any = None, *, per: str = "change", **options: Any) -> Any:
        """Probabilities of the next hidden state, one row per level, state and next state, and their ``number``.

        Parameters
        ----------
        by, options : as of :meth:`time_budget`, with its errors.
        per : ``"change"``: where the state changes, to which; ``"frame"``: from a frame to the next.
        """
        return self._behaviour(behaviour.transitions, by, per=per, **options)

    def bouts(self, data: Any = None) -> Any:
        """Bouts of the most probable path: runs of one hidden state in consecutive recorded frames.

        Returns
        -------
        A pandas DataFrame with one row per bout: labels of the sequence, ``state``, ``first_frame``, its place in the
        recording from 0, times ``start`` and ``stop`` of its first and last frame (since the start, in the unit of
        ``duration``, where the data have no times), ``frames``, ``duration``, mean ``probability`` of the state, and
        ``cut``: ``"start"``, ``"end"`` or ``"both"`` where a gap or the end of the recording cuts it, else empty.
        """
        return behaviour.bouts(self.states(data))
