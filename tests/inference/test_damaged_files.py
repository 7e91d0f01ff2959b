"""Damaged posteriors: every field that is dropped, poisoned or reshaped raises an error that names file and field."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import ethogram
from ethogram.inference import storage
from ethogram.inference.checkpoint import read_checkpoint, write_checkpoint
from ethogram.inference.conjugate.run import FitState
from ethogram.inference.rewards.natural_gradient import SearchState

WRITTEN = Path(__file__).parent / "written_before"
NAMES = ("role_hmm", "agent_markov", "gp_irl")


def contents(name):
    """Record and arrays of a file."""
    with np.load(WRITTEN / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return json.loads(str(arrays.pop("structure"))), arrays


def written(path, record, arrays):
    buffer = io.BytesIO()
    np.savez(buffer, structure=np.array(json.dumps(record)), **arrays)
    path.write_bytes(buffer.getvalue())
    return path


def fields_of(node):
    """Every dict of fields in a record."""
    for key, item in node.items() if isinstance(node, dict) else enumerate(node):
        if key in ("fields", "arguments"):
            yield item
        if isinstance(item, dict | list):
            yield from fields_of(item)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_before_is_read_exactly_and_may_be_saved_again(name, tmp_path):
    found = ethogram.load_posterior(WRITTEN / f"{name}.npz")
    found.save(tmp_path / "again.npz")
    _, before = contents(name)
    with np.load(tmp_path / "again.npz") as archive:
        after = {key: archive[key] for key in archive.files if key != "structure"}
    assert before.keys() == after.keys()
    for key, array in before.items():
        np.testing.assert_array_equal(array, after[key], err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_is_missing_or_left_over_is_named(name, tmp_path):
    record, arrays = contents(name)
    for fields in fields_of(record):
        for key in list(fields):
            kept = fields.pop(key)
            with pytest.raises(ValueError, match=rf"bad\.npz cannot be read: .*\.{key} is missing: expected"):
                ethogram.load_posterior(written(tmp_path / "bad.npz", record, arrays))
            fields[key] = kept
        fields["extra"] = 1
        with pytest.raises(ValueError, match=r"bad\.npz cannot be read: .*\.extra is not one of its fields"):
            ethogram.load_posterior(written(tmp_path / "bad.npz", record, arrays))
        del fields["extra"]


@pytest.mark.parametrize("name", NAMES)
def test_an_array_that_is_missing_left_over_poisoned_or_reshaped_is_named(name, tmp_path):
    record, arrays = contents(name)
    path = tmp_path / "bad.npz"

    def refused(changed, message=""):
        with pytest.raises(ValueError, match=rf"bad\.npz cannot be read: .*{message}"):
            ethogram.load_posterior(written(path, record, changed))

    for key, array in arrays.items():
        refused({k: v for k, v in arrays.items() if k != key}, f"should be the array {key}, which")
        if array.dtype.kind == "f":
            poisoned = array.copy()
            poisoned.flat[-1] = np.nan
            refused(arrays | {key: poisoned}, "posterior")
        refused(arrays | {key: array[..., None, None, None, None]}, "posterior")
        if array.ndim:
            refused(arrays | {key: array[:-1]}, "posterior")
    refused(arrays | {"stowaway": np.ones(2)}, "array stowaway, which belongs to no field")


@pytest.mark.parametrize("name", NAMES)
def test_another_class_is_refused(name, tmp_path):
    record, arrays = contents(name)
    posterior = record["content"]["dict"][0][1]
    for tag in ("ethogram.RoleHMM", "ethogram.Known", "ethogram.Dirichlet", "ethogram.FitState"):
        wrong = {"object": tag, "fields": posterior["fields"]}
        changed = {"format": record["format"], "content": {"dict": [["posterior", wrong]]}}
        with pytest.raises(ValueError, match=r"bad\.npz cannot be read: "):
            ethogram.load_posterior(written(tmp_path / "bad.npz", changed, arrays))


def test_files_of_other_programs_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    whole = (WRITTEN / "role_hmm.npz").read_bytes()
    for raw in (np.random.default_rng(0).bytes(400), b"", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(raw)
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


@pytest.mark.parametrize("gone", ["signature", "steps", "traces"])
def test_a_checkpoint_without_one_of_its_parts_is_refused(gone, tmp_path):
    content = storage.read(WRITTEN / "role_hmm_checkpoint.npz")
    signature = content["signature"]
    del content[gone]
    storage.write(tmp_path / "fit.ckpt", content)
    with pytest.raises(ValueError, match=rf"fit\.ckpt is a checkpoint without '{gone}', which was expected"):
        read_checkpoint(tmp_path / "fit.ckpt", signature, FitState, "steps", "traces")


def test_a_search_of_before_the_paired_gains_cannot_be_resumed(tmp_path):
    """Its state had the fields of `climb` in place of it."""
    path = tmp_path / "search.ckpt"
    write_checkpoint(path, "signature", SearchState(*[0] * len(SearchState._fields)))
    with np.load(path) as archive:
        record = json.loads(str(archive["structure"]))
    (fields,) = fields_of(record)
    del fields["climb"]
    fields |= {"q": 0, "best": 0, "shrunk": 0}
    with pytest.raises(
        ValueError, match=r"search\.ckpt cannot be .*climb is missing.* version .*: remove it"
    ):
        read_checkpoint(written(path, record, {}), "signature", SearchState)
