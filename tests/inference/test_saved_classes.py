"""Tags of saved classes: unique, complete, and the same for files written before classes had tags."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference import saved_classes, storage
from ethogram.inference.conjugate.run import FitState
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.families.exponential_family import Beta, ConjugateBlock
from ethogram.models.model_object import model_object

WRITTEN = Path(__file__).parent / "written_before"
"""Files of version 0.1.0 as it was when it recorded the path of a module beside the name of each class."""

EXPECTED = json.loads((WRITTEN / "expected.json").read_text())


def modules_of(package):
    """Every module of a package, imported."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def test_every_tag_leads_to_its_class():
    names = [name.lstrip("_") for names in saved_classes.HOMES.values() for name in names]
    assert len(set(names)) == len(names)
    for module, classes in saved_classes.HOMES.items():
        for name in classes:
            cls = getattr(importlib.import_module(module), name)
            assert saved_classes.tag_of(cls) == f"ethogram.{name.lstrip('_')}"
            assert saved_classes.find_class(saved_classes.tag_of(cls)) is cls


def test_every_conjugate_block_and_public_model_has_a_tag():
    """Blocks are what a checkpoint holds, models what a posterior carries."""
    blocks = [
        cls
        for module in modules_of(ethogram.models)
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__ and issubclass(cls, ConjugateBlock)
    ]
    models = [ethogram.RoleHMM, ethogram.AgentMarkov, ethogram.GPIRL, ethogram.NoisyMDP, ethogram.BayesNet]
    assert len(blocks) > 5
    untagged = [
        cls.__name__
        for cls in blocks + models
        if cls is not ConjugateBlock and saved_classes.tag_of(cls) is None
    ]
    assert untagged == []


@pytest.mark.parametrize("name", ["role_hmm", "agent_markov"])
def test_posteriors_written_before_there_were_tags(name):
    mean = ethogram.load_posterior(WRITTEN / f"{name}.npz").mean()
    assert set(mean) == set(EXPECTED[name])
    for site, value in EXPECTED[name].items():
        np.testing.assert_allclose(mean[site], value, rtol=1e-5, atol=1e-6, err_msg=site)


def test_a_reward_written_before_there_were_tags():
    """Mean and standard deviation of 10 000 draws against those of 40 000 of before, within five standard errors."""
    posterior = ethogram.load_posterior(WRITTEN / "gp_irl.npz")
    reward = np.asarray(posterior.sample(jax.random.key(1), 10_000)["reward"])
    np.testing.assert_allclose(reward.mean(0), EXPECTED["gp_irl"]["mean"], atol=0.17)
    np.testing.assert_allclose(reward.std(0), EXPECTED["gp_irl"]["sd"], rtol=0.05)


def test_rewards_of_many_states_written_before_there_were_conditionals(tmp_path):
    """They had the full conditional covariance, whatever the number of states."""
    corridor = ethogram.MDP.deterministic(np.arange(2100)[:, None], discount=0.9)
    of_today = {"family": "inducing", "inducing": np.arange(3), "conditional": "full", "relevance_prior": 1.0}
    storage.write(tmp_path / "model", ethogram.GPIRL(corridor, np.arange(2100.0)[:, None], **of_today))
    with np.load(tmp_path / "model") as archive:
        arrays = dict(archive)
    structure = json.loads(str(arrays["structure"]))
    del structure["content"]["fields"]["conditional"]
    with open(tmp_path / "older", "wb") as file:
        np.savez(file, **(arrays | {"structure": np.array(json.dumps(structure))}))
    assert storage.read(tmp_path / "older").conditional == "full"


def test_a_checkpoint_written_before_there_were_tags():
    content = storage.read(WRITTEN / "role_hmm_checkpoint.npz")
    assert isinstance(content["state"], FitState)
    assert content["state"].step == 2


def test_a_file_says_no_module_path(tmp_path):
    ethogram.load_posterior(WRITTEN / "agent_markov.npz").save(tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as archive:
        written = str(archive["structure"])
    assert "ethogram.AgentMarkov" in written
    assert "ethogram.models" not in written and "ethogram.inference" not in written


def test_former_names_of_classes_are_read():
    """Posterior became ConjugatePosterior: by its path, as the oldest files hold it, and by its tag."""
    for recorded in ("ethogram.inference.posterior:Posterior", "ethogram.Posterior"):
        assert saved_classes.find_class(recorded) is ethogram.ConjugatePosterior
    assert saved_classes.tag_of(ethogram.ConjugatePosterior) == "ethogram.ConjugatePosterior"
    assert not set(saved_classes.FORMER) & {name for names in saved_classes.HOMES.values() for name in names}


@model_object
class Own(ConjugateModel):
    """A model that this package does not have."""

    share: float = 0.5

    def prior(self):
        return {"share": Beta.from_standard(1.0, 1.0)}

    def log_normalizer(self, expected, batch):
        return 0.0


def test_models_of_ones_own_are_read_where_they_are_defined(tmp_path):
    storage.write(tmp_path / "own", Own(0.25))
    assert saved_classes.tag_of(Own) == f"{__name__}:Own"
    assert storage.read(tmp_path / "own").share == 0.25
    assert saved_classes.find_class("notebook:Own") is Own  # it has moved, or was defined in a notebook
    for recorded in ("elsewhere:Lost", "builtins:list"):
        with pytest.raises(ValueError, match=f"it refers to {recorded}, .* define it, or import it from"):
            saved_classes.find_class(recorded)
    assert "elsewhere" not in sys.modules
