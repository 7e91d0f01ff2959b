"""Pictures show the numbers of the posterior, on labelled axes with units."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest
from matplotlib.patches import Ellipse

from ethogram import plots
from ethogram.fits.methods import num_groups
from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.conjugate.score_curve import PeerScore, ScoreCurve
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission, VonMisesEmission
from ethogram.models.families.exponential_family import Dirichlet, NormalInverseWishart
from ethogram.models.intents import AgentMarkov
from ethogram.models.roles.role_hmm import RoleHMM

CENTRES = np.array([[-10.0, 5.0], [0.0, -8.0], [12.0, 1.0]])
SCALES = np.array([[[90.0, 30.0], [30.0, 40.0]], [[20.0, 0.0], [0.0, 80.0]], [[50.0, -20.0], [-20.0, 30.0]]])
DOF = 13.0
COUNTS = np.array([[8.0, 1.0, 1.0], [2.0, 6.0, 0.5], [1.0, 3.0, 16.0]])


class Traces(NamedTuple):
    """The parts of a result that its trace is drawn from."""

    restart_traces: np.ndarray
    restart_elbos: np.ndarray
    evaluated: np.ndarray


@pytest.fixture(scope="module")
def posterior() -> ConjugatePosterior:
    blocks = {
        "initial": Dirichlet.from_standard(np.ones(3)),
        "transition": Dirichlet.from_standard(COUNTS),
        "mean_covariance": NormalInverseWishart.from_standard(
            CENTRES, np.full(3, 7.0), np.full(3, DOF), SCALES
        ),
    }
    return ConjugatePosterior(RoleHMM(3, GaussianEmission(2)), blocks)


@pytest.fixture(scope="module")
def draws(posterior) -> dict:
    return {name: site[0] for name, site in posterior.draws_for_export(jax.random.key(0), 20).sites.items()}


def test_an_ellipse_lies_at_the_mean_along_the_eigenvectors_of_the_mean_covariance(posterior):
    axes = plots.role_ellipses(posterior)
    thick = [patch for patch in axes.patches if isinstance(patch, Ellipse) and patch.get_linewidth() > 1]
    assert len(thick) == 3
    for ellipse, centre, scale in zip(thick, CENTRES, SCALES, strict=True):
        covariance = scale / (DOF - 2 - 1)  # the mean of an inverse Wishart in two dimensions
        np.testing.assert_allclose(ellipse.center, centre, atol=1e-4)
        turned = np.deg2rad(ellipse.angle)
        along = np.array([np.cos(turned), np.sin(turned)])
        across = np.array([-np.sin(turned), np.cos(turned)])
        np.testing.assert_allclose(ellipse.width / 2, np.sqrt(along @ covariance @ along), rtol=1e-4)
        np.testing.assert_allclose(ellipse.height / 2, np.sqrt(across @ covariance @ across), rtol=1e-4)
        np.testing.assert_allclose(along @ covariance @ across, 0, atol=1e-3)


def test_thin_ellipses_are_the_draws(posterior, draws):
    named = Metadata(feature_names=("east", "north"), feature_units=("cm", "km"))
    data = Trajectories.from_list([np.zeros((2, 2))], metadata=named)
    axes = plots.role_ellipses(posterior, data=data)
    thin = [patch for patch in axes.patches if patch.get_linewidth() < 1]
    np.testing.assert_allclose([patch.center for patch in thin], draws["mean"].reshape(-1, 2), atol=1e-4)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("east (cm)", "north (km)")
    assert {text.get_text() for text in axes.texts} == {"0", "1", "2"}


def test_ellipses_on_a_pitch_keep_its_limits(posterior):
    axes = plots.pitch(length=100, width=60)
    limits = axes.get_xlim(), axes.get_ylim()
    assert axes.get_xlabel() == "x, m"
    assert plots.role_ellipses(posterior, axes) is axes
    assert (axes.get_xlim(), axes.get_ylim()) == limits
    thin = [p.center for p in axes.patches if isinstance(p, Ellipse) and p.get_linewidth() < 1]
    middle = np.reshape(thin, (20, 3, 2)).mean(0)  # means have deviations of at most 9 / sqrt(7)
    np.testing.assert_allclose(middle, CENTRES, atol=5 * 9 / np.sqrt(7 * 20))


def test_twenty_draws_of_all_chains_are_drawn_thin(posterior):
    sites = posterior.draws_for_export(jax.random.key(1), 40).sites
    sampled = SampledPosterior(posterior.model, {name: site.repeat(2, 0) for name, site in sites.items()}, {})
    axes = plots.role_ellipses(sampled)
    thin = [patch.center for patch in axes.patches if patch.get_linewidth() < 1]
    np.testing.assert_allclose(thin, np.tile(sites["mean"][0, ::4].reshape(-1, 2), (2, 1)))


def test_posteriors_without_ellipses_are_refused(posterior):
    symbols = RoleHMM(2, CategoricalEmission(5))
    with pytest.raises(ValueError, match="ellipses need the mean"):
        plots.role_ellipses(ConjugatePosterior(symbols, symbols.prior()))
    with pytest.raises(ValueError, match=r"features is \(0, 2\)"):
        plots.role_ellipses(posterior, features=(0, 2))


def test_marginals_of_a_posterior_without_an_emission_are_refused(plays):
    intents = AgentMarkov(2, 2, truncation=2)
    with pytest.raises(
        TypeError, match="posterior is of a AgentMarkov, which has no emission: give that of a RoleHMM"
    ):
        plots.role_marginals(ConjugatePosterior(intents, intents.prior()), plays, np.full((4, 4, 3), 1 / 3))


def test_traces_are_those_of_the_restarts():
    traces = np.array([[-50.0, -20.0, -12.0], [-90.0, -15.0, -11.0], [-np.inf, -np.inf, -np.inf]])
    axes = plots.elbo_traces(Traces(traces, traces[:, -1], np.array([0, 5, 9])))
    lines = axes.get_lines()
    shown = [lines[0], lines[-1]]  # the best one above the others
    np.testing.assert_array_equal([line.get_xdata() for line in shown], [[0, 5, 9]] * 2)
    np.testing.assert_array_equal([line.get_ydata() for line in shown], traces[:2])
    assert lines[-1].get_linewidth() > lines[0].get_linewidth()
    assert axes.get_ylim()[0] < -12 and axes.get_ylim()[1] > -11
    assert axes.get_ylabel() == "ELBO (nats)" and "step" in axes.get_xlabel()
    assert axes.get_legend().get_texts()[0].get_text() == "best of 3: -11.0"


def test_one_restart_of_one_step_can_be_drawn():
    axes = plots.elbo_traces(Traces(np.array([[-7.0]]), np.array([-7.0]), np.array([0])))
    axes.figure.canvas.draw()


def test_a_score_curve_has_both_scores_in_order():
    elbo, heldout = np.array([-20.0, -40.0, -10.0]), np.array([-3.0, -5.0, -4.0])
    curve = ScoreCurve(np.array([4, 2, 8]), elbo, heldout, (), np.array([0.0, 0.1, 0.2]), train_steps=10)
    axes = plots.score_curve(curve)
    assert axes.figure.axes == [axes]  # one scale for both
    (heldout, *_), (elbo, *_) = axes.containers
    np.testing.assert_allclose(heldout.get_xydata(), [[2, -2], [4, 0], [8, -1]])
    np.testing.assert_allclose(elbo.get_xydata(), [[2, -3], [4, -1], [8, 0]])
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"held-out log likelihood, best -3", "training ELBO, best -1"} < set(named)
    assert axes.get_lines()[-1].get_xdata() == [4, 4]
    assert "nats per step" in axes.get_ylabel()
    assert axes.get_xlabel() == "number of roles"


def test_peers_are_lines_of_their_own_height():
    """Relative to the best size, as the curve is; a peer that finds the data impossible has no line."""
    peers = {"table": PeerScore(-3.5, 0.1), "better": PeerScore(-2.9, 0.1), "never": PeerScore(-np.inf, 0.0)}
    curve = ScoreCurve(np.array([2, 4]), np.zeros(2), np.array([-5.0, -3.0]), (), np.zeros(2), 10, peers)
    axes = plots.score_curve(curve, unit="intents")
    lines = {line.get_label(): line.get_ydata()[0] for line in axes.get_lines()}
    assert lines["the largest offered: the score still rises"] == 0  # the vertical line starts at the axis
    assert lines["table, -3.5"] == -0.5 and np.isclose(lines["better, -2.9"], 0.1)
    assert not any(label.startswith("never") for label in lines)
    assert axes.get_xlabel() == "number of intents"


def test_colours_differ():
    for count in (3, 10, 16):
        assert len(set(plots.category_colours(count))) == count


def test_a_sequence_without_a_group_is_a_group():
    data = Trajectories.from_list([np.zeros((n, 1)) for n in (3, 4, 2)], agent=[0, 0, 1], group=[-1, -1, 5])
    assert num_groups(data) == 3 and num_groups(data._replace(group=None)) == 3


def test_ellipses_have_equal_scales_where_units_are_known_and_the_same(posterior):
    def aspect(*units):
        data = Trajectories.from_list([np.zeros((2, 2))], metadata=Metadata(feature_units=units or None))
        return plots.role_ellipses(posterior, data=data).get_aspect()

    assert aspect("m", "m") == 1 and aspect("m", "rad/s") == aspect() == "auto"


def test_the_axis_of_the_elbo_spans_more_than_rounding():
    final = np.array([-2.0e6, -2.0e6 + 0.25])
    axes = plots.elbo_traces(Traces(np.stack([final - 9, final], 1), final, np.arange(2)))
    assert np.ptp(axes.get_ylim()) > 5 * 2e6 * np.finfo(np.float32).eps
    final = np.array([-100.0, -100.001])
    assert np.ptp(plots.elbo_traces(Traces(final[:, None], final, np.arange(1))).get_ylim()) > 0.1


def test_marginals_of_a_sampled_posterior_average_densities_over_draws():
    """Two draws of one von Mises distribution whose directions lie on both sides of the cut: no mean of angles."""
    from scipy.stats import vonmises

    model = RoleHMM(1, VonMisesEmission())
    sites = {"direction": np.array([3.1, -3.1]), "concentration": np.array([4.0, 4.0])}
    sampled = SampledPosterior(model, {name: site.reshape(1, 2, 1, 1) for name, site in sites.items()}, {})
    metadata = Metadata(feature_names=("turn",), feature_units=("rad",))
    x = np.random.default_rng(0).vonmises(np.pi, 4.0, size=(30, 1))
    data = Trajectories.from_list([x], metadata=metadata)
    axes = plots.role_marginals(sampled, data, np.ones((1, 30, 1)), names=["ahead"])
    line = axes.get_lines()[0]
    given = np.mean([vonmises.pdf(line.get_xdata(), 4.0, loc) for loc in (3.1, -3.1)], axis=0)
    np.testing.assert_allclose(line.get_ydata(), given, atol=0.1)  # of fifty draws, some more of one
    assert line.get_label() == "ahead" and line.get_ydata()[200] < 0.01


def test_marginals_of_symbols_are_their_probabilities():
    model = RoleHMM(2, CategoricalEmission(3))
    posterior = ConjugatePosterior(model, model.prior())
    data = Trajectories.from_list([np.array([[0.0], [2.0], [1.0], [2.0]])])
    axes = plots.role_marginals(posterior, data, np.full((1, 4, 2), 0.5))
    shares = np.asarray(posterior.mean()["probs"] if "probs" in posterior.mean() else next(
        site for site in posterior.mean().values() if np.shape(site) == (2, 3)))  # fmt: skip
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), 0.5 * shares[0], rtol=1e-5)
