"""What a fit is to its user: estimates, hidden states, predictions, scores, a picture, files."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.fits import checks, diagnose, dwell, effects, figures, shrinkage, subjects
from ethogram.fits.as_code import as_code
from ethogram.fits.behaviour_tables import NUM_PATHS, BehaviourTables
from ethogram.fits.corrected import corrected_fit
from ethogram.fits.estimates import answer_dataset, estimates
from ethogram.fits.forecasts import NUM_DRAWS, some_draws
from ethogram.fits.new_data import Score, by_group, mean_and_error, require_alike, require_free_states
from ethogram.fits.states import HiddenStates, names_of_states, renamed, warn_of_rare
from ethogram.fits.summary_table import with_findings
from ethogram.fits.systems import require_taken, system_of
from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.conjugate.gibbs_draws import can_sweep, gibbs_draws
from ethogram.inference.diagnostics import Diagnosis
from ethogram.inference.draws import Draws, ExportsDraws
from ethogram.inference.export import to_arviz
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.inference.smoothed_draws import sampled_paths
from ethogram.models.arguments import require_flag, require_integer
from ethogram.models.data import Trajectories
from ethogram.models.data.parts import map_parts
from ethogram.models.held_warnings import held_warnings
from ethogram.plots.axes import figure_or_new, show_plainly

__all__ = ["Fit"]

NAMED_FIGURES: dict[str, Callable[..., Any]] = {
    "dwell": dwell.plot_dwell,
    "subjects": subjects.plot_subjects,
    "shrinkage": shrinkage.plot_shrinkage,
}


class Fit(BehaviourTables):
    """A model with the data it was fitted to and the result of an algorithm; made by :func:`ethogram.fit`.

    Attributes
    ----------
    model, data : as given; the data of an imitation are the demonstrations as its role model observes them.
    method : of the fit.
    method_reason : why ``"auto"`` took the method; empty where it was given.
    result : what the algorithm returned: a `ConjugateResult`, a `SampledPosterior`, an
        `ImitationResult`, a `RewardFit`, a `MaxEntropyFit` or a `MarginalMAPResult`.
    seconds : of wall time, with compilation.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        method: str,
        method_reason: str,
        result: Any,
        seconds: float,
        key: Array,
        names: Mapping[int, str] | None = None,
        code: str | Callable[[], str] = "",
    ) -> None:
        self.model, self.data, self.method, self.method_reason = model, data, method, method_reason
        self.result, self.seconds, self._code = result, seconds, code
        self._key, self._system, self._names = key, system_of(model, result), dict(names or {})
        self._paths: dict[int, np.ndarray] = {}  # of its own data, the last number of draws only
        self._diagnoses: dict[bool, Diagnosis] = {}  # by thoroughness

    def __repr__(self) -> str:
        own = f"Fit({type(self.model).__name__}, method={self.method!r}, {self.seconds:.1f} s)"
        slow = isinstance(self.result, SampledPosterior) and not self._diagnoses
        return "\n".join([own, *(() if slow else self._known_findings().first_lines())])

    def _known_findings(self) -> Diagnosis:
        """Those of :meth:`diagnose` where it was called, else those of the search alone."""
        known = self._diagnoses or {False: Diagnosis(diagnose.of_search(self))}
        return known[max(known)]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_system"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({"_diagnoses": {}} | state, _system=system_of(state["model"], state["result"]))

    @property
    def code(self) -> str:
        """The call of `ethogram.fit` as Python; empty where there was none."""
        if callable(self._code):
            self._code = self._code()
        return self._code

    @code.setter
    def code(self, code: str) -> None:
        self._code = code

    @property
    def has_draws(self) -> bool:
        """Whether the result is a distribution of parameters, and not one answer."""
        return self._system.takes_data and isinstance(self.result, ExportsDraws)

    def draws(self, num_draws: int = NUM_DRAWS) -> Draws:
        """Draws of the parameters: independent ones of a variational fit, all of a sampler, the same at every call."""
        require_integer("num_draws", num_draws, 1)
        if not self.has_draws:
            raise TypeError(f"a fit by {self.method!r} is one answer and has no draws: read fit.result")
        return self.result.draws_for_export(self._key, num_draws)

    def _entries(self, **options: Any) -> tuple[list[str], Float[np.ndarray, "chain draw entry"]]:
        """Names of all estimates, one per number, and their draws; options are those of :func:`ethogram.to_arviz`."""
        return self._system.entries(self, **options)

    def summary(self, probability: float = 0.9) -> Any:
        """A table of estimates under the data's names: mean, sd, central interval, ess and r_hat.

        Parameters
        ----------
        probability : of the intervals.

        Returns
        -------
        A pandas DataFrame, one row per parameter, with the worst findings above it where it is printed, and in its
        attribute ``findings``: those of :meth:`diagnose` where it was called, else of the search. Rewards are functions
        of features, without the noise of single states, which draws and exports have. Of a variational fit, whose draws
        are independent, ess and r_hat are NaN; of roles and intents the columns are ``q_sd``, ``q_lower`` and
        ``q_upper``, since q is narrower than the posterior (:meth:`corrected` has its own). Of an assignment, one row
        per MAP variable. That of an imitation begins with ``failure``, the probability that a fresh game of the last
        round fails. Relevances of a `GPIRL` that are uncertain are there by their logarithms, as
        ``log_relevance[...]``: their tails are too heavy for means. Mean and sd are infinite where a few draws decide
        them: the mean lies outside the central 99 %, as of a state of a frame or two.
        """
        return with_findings(estimates(self, probability), self._known_findings())

    def corrected(self) -> Fit:
        """A fit with draws of the posterior in place of those of q, for intervals that hold as often as they say.

        Draws of the parameters of a `RoleHMM` come from Gibbs sweeps that start at draws of q, in seconds; those of an
        `AgentMarkov`, and of exclusive roles, from :func:`ethogram.refresh_posterior`. Fits by other methods are
        returned as they are. `benchmarks.papers.calibration_all` has the coverage of both.

        Raises
        ------
        ValueError : the data are on disk, or the model has no density, as with constraints on means.
        """
        return corrected_fit(self)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names (state,) of the hidden states: those of :meth:`rename`, else their numbers; empty without states."""
        return names_of_states(self._system.num_states(self), self._names)

    def rename(self, names: Mapping[Any, str]) -> Fit:
        """The same fit with names of its hidden states, which tables, figures, exports and files then have.

        Parameters
        ----------
        names : by the number, or the present name, of a state; such as ``{0: "rest", 1: "walk"}``.
        """
        self._require_states()
        fit = copy.copy(self)
        fit._names, fit._diagnoses = renamed(self._system.num_states(self), names, self._names), {}
        fit.code = f"{self.code}\nfit = fit.rename({as_code(dict(names))})" if self.code else ""
        return fit

    def _require_states(self) -> None:
        if not self._system.num_states(self):
            self._system.states(self, self.data)  # says why there are none
            raise TypeError(f"a {type(self.model).__name__} has no hidden states")

    def states(self, data: Any = None) -> HiddenStates:
        """Hidden states of the data: `path`, `probability`, and ``to_table()``, with their names.

        It unpacks as, and has the further attributes of, an `InferredRoles`, an `InferredIntents` or, of switching
        rewards, a `RewardIntents`.

        Parameters
        ----------
        data : the data of the fit where None.

        Warns
        -----
        UserWarning : a role holds less than 1 % of the frames of the fit, of which there are 1000 or more.
        """
        given = self._data(data)
        states = HiddenStates(self._system.states(self, given), self.state_names, given)
        if data is None and self._system.warns_of_rare_states:
            warn_of_rare(states)
        return states

    def sample_paths(
        self, num_draws: int = NUM_PATHS, data: Any = None
    ) -> Int[np.ndarray, "draw sequence time"]:
        """Paths of the hidden states, one per draw of the parameters; -1 beyond a length.

        Parameters of a `RoleHMM` fitted by ``"cavi"`` or ``"svi"``, whose q is narrower than the posterior, are drawn
        by Gibbs sweeps that start at draws of q; those of other variational fits are draws of q. States in missing
        frames are those of the model; tables of behaviour do not count them.

        Parameters
        ----------
        num_draws : of the parameters; of a sampler, which has fewer, all.
        data : the data of the fit where None.

        Raises
        ------
        TypeError, ValueError : the model has no hidden states, or scores groups jointly (exclusive roles).
        """
        require_integer("num_draws", num_draws, 1)
        return self._sample_paths(num_draws, data).copy()

    def _sample_paths(self, num_draws: int, data: Any) -> np.ndarray:
        self._require_states()
        given = self._data(data)
        if given is self.data and num_draws in self._paths:
            return self._paths[num_draws]
        conjugate = isinstance(self.result, ConjugateResult)
        model = self.result.posterior.model if conjugate else self.draws().model
        model.check(given)
        require_free_states(model, given, "sampled paths (fit.states() has the most probable ones)")
        if conjugate and can_sweep(model):
            draws, paths = gibbs_draws(self._key, self.result.posterior, self.data, num_draws)
        else:
            draws, paths = some_draws(self, num_draws), None
        if paths is None or given is not self.data:
            fixed = conjugate or not model.switches_labels()
            reference = None if fixed else self.states(given).probability
            count = self._system.num_states(self)
            paths = sampled_paths(self._key, model, draws, given, count, reference)
        if given is self.data:
            self._paths.clear()
            self._paths[num_draws] = paths
        return paths

    def residuals(self, data: Any = None) -> Float[np.ndarray, "sequence time feature"]:
        """Forecast pseudo-residuals of roles: standard normal where the model is true, NaN where a feature is missing.

        Frames must be independent given the state: not autoregressive, nor of roles that exclude each other.

        Zucchini, MacDonald, Langrock (2016), "Hidden Markov models for time series", section 6.2.3.
        """
        given = self._data(data)
        return checks.pseudo_residuals(self._key, checks.checked(self, given), some_draws(self, 10), given)

    def plot_checks(self, figure: Any = None) -> Any:
        """A figure of how well roles explain their data: pseudo-residuals, their autocorrelation, and paths.

        States that last otherwise than in a Markov chain, and features of another distribution, are seen in it.

        Parameters
        ----------
        figure : empty matplotlib Figure to draw into; a new one of pyplot where None.
        """
        figure = figure_or_new(figure, (11, 7))
        figures.draw_checks(self, some_draws(self, NUM_PATHS), figure)
        show_plainly(figure)
        return figure

    def diagnose(self, *, thorough: bool = False) -> Diagnosis:
        """What is wrong with the fit: findings with their evidence and advice, the worst first.

        They are of the search, of features that do not differ, of the weight of the prior, of tables that explain
        actions better, and of what roles, intents, choices and rewards leave unexplained, such as outliers, drift,
        lapses or other transitions. A fit without findings may still be wrong.

        Parameters
        ----------
        thorough : also fit again what took over half a minute, and score simpler models on held-out sequences.
        """
        require_flag("thorough", thorough)
        if thorough not in self._diagnoses:
            paths = {**self._paths}
            with held_warnings():  # of states and refits, which findings say
                found = [*diagnose.of_search(self), *self._system.faults(self, thorough)]
            self._paths, self._diagnoses[thorough] = paths, Diagnosis(found)
        return self._diagnoses[thorough]

    def predict(self, data: Any = None, **settings: Any) -> Any:
        """What the agents do next, or in new data, averaged over the posterior.

        Of roles: draws of the next `steps` observations of every sequence, with the probabilities of the roles; with
        covariates, which these steps need, also means of the observations, such as probabilities of options. Of
        intents, those with rewards too: probabilities (sequence, time, action) of every action given the actions before
        it. Of choices: probabilities (decision, option). Of rewards: `PolicySummary`. Of a query: the assignment. Of an
        imitation: the roll-outs of its policies from the first states of the demonstrations. Of a model of your own: as
        of roles where its distribution of the data has the method ``forecast``; else an xarray Dataset of simulated
        data (draw, sequence, ...), as long as the data, one set for each draw of the parameters.

        Parameters
        ----------
        data : the data of the fit where None.
        settings : ``steps`` (10) and ``num_draws`` (100) of roles, and of models of your own. With covariates ``at``,
            values by name for all steps, (step,) or (sequence, step), where others keep their last ones; or ``future``,
            trajectories of the steps to come with these covariates, one sequence for each of `data`. Of rewards
            ``cell_noise=True``, for policies under the rewards of states with their own noise, not as a function of
            features.
        """
        require_taken(self, "a prediction", self._system.predict, settings)
        return self._system.predict(self, self._data(data), **settings)

    def score(self, data: Any = None, num_draws: int = NUM_DRAWS) -> Score:
        """Log predictive density of data: of new data, a held-out score by which models and algorithms compare.

        The density of an entry is averaged over draws of the parameters, so that it does not depend on labels.
        Sequences of a group count as one entry, whether the model couples them or not. Gelman, Hwang, Vehtari (2014),
        "Understanding predictive information criteria", section 2.2.

        Parameters
        ----------
        data : new data; the data of the fit, which favour large models, where None.
        num_draws : of a variational fit.
        """
        from scipy.special import logsumexp

        given = self._data(data)
        unit = "step" if isinstance(given, Trajectories) else "decision"

        def scored(part: Any) -> tuple[np.ndarray, np.ndarray]:
            values, counts = by_group(part, *self._system.log_densities(self, part, num_draws))
            return (logsumexp(values, axis=0) - np.log(len(values)))[counts > 0], counts[counts > 0]

        parts = map_parts(given, scored, "score") if unit == "step" else [(None, scored(given))]
        entries, counts = map(np.concatenate, zip(*(found for _, found in parts), strict=True))
        if not counts.sum() > 0:
            raise ValueError("data have no observed step or decision to score")
        mean, error = mean_and_error(entries, counts)
        return Score(float(entries.sum()), mean, error, entries, counts, unit)

    def effects(self, probability: float = 0.9) -> Any:
        """How covariates move the switching, and the observations, of a fit with covariates.

        Parameters
        ----------
        probability : of the intervals.

        Returns
        -------
        A pandas DataFrame with one row per change of state and column of the formula: ``mean``, ``sd``, ``lower`` and
        ``upper`` of the log odds of the change against staying, per unit of the column, the ``odds_ratio`` with
        ``odds_lower`` and ``odds_upper``, and ``positive``, the probability that the effect is above 0. Where the
        emission has covariates, rows have the ``part`` and the ``outcome``, too: slopes, and intercepts at the mean of
        the covariates, of each state and option or feature, on the scale of the link; odds are NaN where that is no
        logit. Where it is a logarithm, ``mean_ratio`` with its interval is the factor of the mean. Of `LatentClasses`
        rows are of classes, and log odds of membership against class 0.
        """
        return effects.effects(self, probability)

    def subjects(self, probability: float = 0.9) -> Any:
        """How subjects differ in switching, of a fit with ``Covariates(vary="subject")``.

        Parameters
        ----------
        probability : of the intervals.

        Returns
        -------
        A pandas DataFrame with one row per change of state and subject: ``mean``, ``sd``, ``lower`` and ``upper`` of
        the log odds of the change against staying, at the mean of the covariates, and ``above_population``, the
        probability that they are above those of the population, whose row comes first. Of `LatentClasses` one row per
        subject: its most probable ``class`` and the probabilities of all given its choices, with ``lower`` and
        ``upper`` of that of this class.
        """
        return subjects.subjects(self, probability)

    def plot(self, figure: Any = None, **settings: Any) -> Any:
        """The figure of the system; of a name, such as ``fit.plot("temperature")``, that of a covariate, or of a part.

        That of a covariate has the means of observations by state, such as the probability of an option, the
        probabilities of transitions, and the shares of time of the long run, of those that depend on it, along it, with
        90 % intervals; other covariates have their medians, or their most frequent level. ``fit.plot("dwell")`` has the
        fitted probabilities of dwell times, with 90 % bands, over the bouts of :meth:`dwell_distribution`,
        ``fit.plot("subjects")`` the log odds of every subject of :meth:`subjects`, beside those of the population, and
        ``fit.plot("shrinkage")`` the values of subjects of a choice model, by their own decisions and in the fit.

        Parameters
        ----------
        figure : empty matplotlib Figure to draw into; a new one of pyplot, which notebooks show, where None. Or the
            name of a covariate, ``"dwell"``, ``"subjects"`` or ``"shrinkage"``, in a new one.
        settings : of hidden states ``window``, ``agents`` and ``by``, as of
            :func:`~ethogram.plots.role_timelines`; of rewards also ``grid``, numbers of rows and columns
            where neither names of states, such as ``"0,3"``, nor moves say it, and ``cell_noise=True`` for rewards of
            states with their own noise.

        Returns
        -------
        The figure.
        """
        if isinstance(figure, str) and figure in NAMED_FIGURES:
            return NAMED_FIGURES[figure](self, **settings)
        if isinstance(figure, str):
            return effects.plot_covariate(self, figure, **settings)
        require_taken(self, "a figure", self._system.draw, settings)
        figure = figure_or_new(figure, (11, 5))
        self._system.draw(self, figure, **settings)
        show_plainly(figure)
        return figure

    def to_arviz(self, **options: Any) -> Any:
        """The fit for ArviZ; options are those of :func:`ethogram.to_arviz`.

        An assignment is a group of its own, with its log probability and bounds; it has no chains.
        """
        if not self._system.takes_data:
            return answer_dataset(self.method, self.result)
        if not self.has_draws:
            raise TypeError(f"a fit by {self.method!r} has no draws for ArviZ: read fit.result")
        data = self.data if hasattr(self.data, "metadata") else None  # counts have no layout
        coords = {**self._state_coords(), **(options.pop("coords", None) or {})}
        return to_arviz(self.result, **{"data": data, "key": self._key, "coords": coords, **options})

    def _state_coords(self) -> dict[str, list[str]]:
        """Coordinates of the states where they have names; AgentMarkov's next intents end with all beyond them."""
        if not self._names:
            return {}
        names, rest = list(self.state_names), ["others"] if hasattr(self.model, "truncation") else []
        return {dim: names + (rest if dim == "next_intent" else []) for dim in self.model.label_dims}

    def save(self, path: str | os.PathLike) -> None:
        """Write model, data and result to one file, atomically; read it with ``ethogram.load``.

        Raises
        ------
        FileNotFoundError : there is no such folder.
        TypeError : the policies of an imitation, which files of arrays cannot hold.
        """
        storage.write(path, self.record())

    def record(self) -> dict[str, Any]:
        """What :meth:`save` writes; a TypeError for the policies of an imitation."""
        if hasattr(self.result, "policies"):
            raise TypeError(
                "policies are objects of other libraries, which files of arrays cannot hold: save fit.result.policies "
                "as their library says, and the roles by fit.result.fit.posterior.save"
            )
        names = ("model", "data", "method", "method_reason", "result", "seconds", "_key", "_names", "code")
        return {"fit": {name.lstrip("_"): getattr(self, name) for name in names}}

    def report(self, path: str | os.PathLike) -> Path:
        """Write a page of HTML that needs no other file, for screens of any width.

        What was read, how it was fitted, what was found in words, figure and tables, the parameters folded, the call as
        Python, and how to cite software and model.
        """
        from ethogram.fits.report import write_report

        return write_report(self, path)

    def _data(self, data: Any) -> Any:
        if data is None:
            return self.data
        require_alike(data, self.data, self.model)
        return data
