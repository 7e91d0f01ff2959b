"""Damaged posteriors: errors name file and place, and no other class is built in place of the one expected."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

import ethogram
from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugatePosterior
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles import RoleHMM


@pytest.fixture
def whole(tmp_path):
    """Record and arrays of a file, and its bytes."""
    model = RoleHMM(2, CategoricalEmission(3))
    ConjugatePosterior(model, model.prior()).save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return json.loads(str(arrays.pop("structure"))), arrays, (tmp_path / "whole.npz").read_bytes()


def written(path, record, arrays):
    buffer = io.BytesIO()
    np.savez(buffer, structure=np.array(json.dumps(record)), **arrays)
    path.write_bytes(buffer.getvalue())
    return path


def test_a_field_that_is_missing_or_left_over_is_named(whole, tmp_path):
    record, arrays, _ = whole
    fields = record["content"]["dict"][0][1]["fields"]["model"]["fields"]
    fields["extra"] = 1
    with pytest.raises(
        ValueError, match=r"bad\.npz cannot be read: content\['posterior'\]\.model has .* extra, expected"
    ):
        ethogram.load_posterior(written(tmp_path / "bad.npz", record, arrays))
    del fields["extra"], fields["dwell"]  # which files of earlier versions do not have
    assert ethogram.load_posterior(written(tmp_path / "old.npz", record, arrays)).model.dwell == "geometric"
    del fields["sticky"]
    with pytest.raises(ValueError, match=r"bad\.npz cannot be read: .* expected num_roles, .*sticky"):
        ethogram.load_posterior(written(tmp_path / "bad.npz", record, arrays))


@pytest.mark.parametrize(
    "tag", ["models.roles.RoleHMM", "models.families.Dirichlet", "models.data.Trajectories"]
)
def test_another_class_is_refused(whole, tag, tmp_path):
    record, arrays, _ = whole
    record["content"]["dict"][0][1]["object"] = f"ethogram.{tag}"
    with pytest.raises(ValueError, match=r"bad\.npz cannot be read: "):
        ethogram.load_posterior(written(tmp_path / "bad.npz", record, arrays))


def test_files_of_other_programs_are_refused(whole, tmp_path):
    path, raw = tmp_path / "other.npz", whole[2]
    for damaged in (np.random.default_rng(0).bytes(400), b"", raw[: len(raw) // 2], raw[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"other\.npz cannot be read"):
            ethogram.load_posterior(path)
    np.savez(path, weights=np.ones(3))
    with pytest.raises(ValueError, match=r"other\.npz cannot be read"):
        ethogram.load_posterior(path)
    storage.write(path, {"weights": np.ones(3)})
    with pytest.raises(ValueError, match=r"other\.npz holds no posterior"):
        ethogram.load_posterior(path)
    with pytest.raises(ValueError, match="it is a folder"):
        ethogram.load_posterior(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        ethogram.load_posterior(tmp_path / "nowhere.npz")
