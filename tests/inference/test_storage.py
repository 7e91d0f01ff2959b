"""Files: what goes in comes out, whole or not at all, and nothing foreign is built."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import stat
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference import storage
from ethogram.models.data.trajectories import Metadata
from ethogram.models.families.exponential_family import DirichletCoordinates, Known


def test_nested_content_round_trip(tmp_path):
    path = tmp_path / "content"
    content = {
        "numbers": [1, 2.5, True, None, "text", -np.inf],
        "pair": (np.arange(6).reshape(2, 3), [np.array(True), np.float32(0.1)]),
        3: {"device": jnp.arange(3.0), "empty": np.zeros((0, 4), np.int16)},
        "named": DirichletCoordinates(np.array([1.0, np.nan])),
        "object": Known((np.ones(2), np.eye(2))),
        "static": Metadata(feature_names=("x", "y"), frame_rate=25.0),
    }
    storage.write(path, content)
    back = storage.read(os.fspath(path))
    assert list(back) == list(content)
    assert back["numbers"] == content["numbers"]
    assert isinstance(back["pair"], tuple)
    np.testing.assert_array_equal(back["pair"][0], content["pair"][0])
    assert back["pair"][1][1].dtype == np.float32
    assert isinstance(back[3]["device"], jax.Array)
    assert isinstance(back[3]["empty"], np.ndarray)
    assert back[3]["empty"].shape == (0, 4)
    assert type(back["named"]) is DirichletCoordinates
    np.testing.assert_array_equal(back["named"].concentration, [1.0, np.nan])
    assert type(back["object"]) is Known
    assert back["static"] == content["static"]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_survive(tmp_path, impl):
    keys = jax.random.split(jax.random.key(7, impl=impl))
    storage.write(tmp_path / "keys", {"keys": keys})
    back = storage.read(tmp_path / "keys")["keys"]
    assert back.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(keys))
    assert jax.random.uniform(back[0]) == jax.random.uniform(keys[0])


def test_precision_survives_where_jax_has_it(tmp_path):
    with jax.enable_x64(True):
        storage.write(tmp_path / "double", [jnp.array([1 / 3])])
        assert storage.read(tmp_path / "double")[0].dtype == np.float64
    with jax.enable_x64(False):
        (single,) = storage.read(tmp_path / "double")
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, 1 / 3, rtol=1e-6)


@dataclasses.dataclass
class Foreign:
    value: int


class ForeignTuple(NamedTuple):
    value: int


def test_what_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "content"
    storage.write(path, 1)
    for bad in (Foreign(1), ForeignTuple(1), {1, 2}, object(), len, Known):
        with pytest.raises(
            TypeError, match="cannot be saved: it is neither an array nor an object of ethogram"
        ):
            storage.write(path, [bad])
    for nowhere, error in ((3, TypeError), (None, TypeError), ("a\0b", ValueError)):
        with pytest.raises(error, match=r"^path is .*: give that of a file"):
            storage.write(nowhere, 1)
    assert storage.read(path) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["content"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "content"
    storage.write(path, [1])

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    for name in ("os.replace", "os.fsync", "numpy.savez"):
        with monkeypatch.context() as patch:
            patch.setattr(name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                storage.write(path, [2])
        assert storage.read(path) == [1]
        assert [file.name for file in tmp_path.iterdir()] == ["content"]
    storage.write(path, [3])
    assert storage.read(path) == [3]
    with pytest.raises(FileNotFoundError):
        storage.write(tmp_path / "nowhere" / "content", [1])


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_have_the_permissions_that_the_user_chose(tmp_path):
    before = os.umask(0o027)
    try:
        storage.write(tmp_path / "content", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "content").stat().st_mode) == 0o640


def test_broken_files_are_named(tmp_path):
    path = tmp_path / "broken.npz"
    storage.write(path, {"a": np.arange(5.0), "b": jnp.ones(2), "object": Known(1.0)})
    good = path.read_bytes()
    message = r"broken\.npz cannot be read: truncated, or not written by ethogram \("
    for size in range(0, len(good), max(len(good) // 40, 1)):
        path.write_bytes(good[:size])
        with pytest.raises(ValueError, match=message):
            storage.read(path)
    rng = np.random.default_rng(0)
    for _ in range(60):
        spoiled = bytearray(good)
        spoiled[rng.integers(len(good))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(spoiled))
        try:
            storage.read(path)
        except ValueError as error:
            assert "broken.npz cannot be read" in str(error)
    for other in (b"some text", b"\x93NUMPY", b"PK\x03\x04"):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=message):
            storage.read(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ValueError, match=message):
        storage.read(path)
    with pytest.raises(FileNotFoundError):
        storage.read(tmp_path / "nowhere")


def write_by_hand(path, record):
    buffer = io.BytesIO()
    np.savez(buffer, structure=np.array(json.dumps(record)))
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "os.system",
        "ethogram_other:Known",
        "subprocess.Popen",
        "ethogram.inference.storage:os.stat_result",
        "ethogram.write",
        "ethogram.models.roles.np",
        "ethogram.inference.storage.write",
        "ethogram.__main__.main",
        "ethogram.models.data.checks:np.ndarray",
        "ethogram.nowhere:Thing",
        "ethogram.",
        "Known",
    ],
)
@pytest.mark.parametrize("kind", ["object", "named"])
def test_foreign_classes_are_not_built(tmp_path, kind, name):
    path = tmp_path / "crafted"
    write_by_hand(path, {"format": storage.FORMAT, "content": {kind: name, "fields": {}}})
    with pytest.raises(
        ValueError, match=rf"crafted cannot be read.*it refers to {name}, which is not a class"
    ):
        storage.read(path)


@pytest.mark.parametrize(
    "name", ["ethogram.models.families.Known", "numpyro.Nothing", "numpyro.kl_divergence"]
)
def test_what_is_no_distribution_is_not_built(tmp_path, name):
    path = tmp_path / "crafted"
    write_by_hand(path, {"format": storage.FORMAT, "content": {"distribution": name, "arguments": {}}})
    with pytest.raises(ValueError, match=rf"crafted cannot be read.*{name}, which is not a distribution"):
        storage.read(path)


def test_other_formats_are_refused(tmp_path):
    write_by_hand(tmp_path / "later", {"format": "ethogram 99", "content": 1})
    with pytest.raises(ValueError, match="its format is 'ethogram 99', not 'ethogram 1'"):
        storage.read(tmp_path / "later")


def test_fingerprints_are_those_of_the_numbers():
    base = {"a": np.arange(4.0), "b": [1, "x"], "key": jax.random.key(0)}
    same = {"a": jnp.arange(4.0, dtype=jnp.float32), "b": [1, "x"], "key": jax.random.key(0)}
    assert storage.fingerprint(base) == storage.fingerprint(dict(base))
    assert storage.fingerprint({**base, "a": np.arange(4, dtype=np.float32)}) == storage.fingerprint(same)
    changes = [
        {"a": np.arange(4, dtype=np.float32)},
        {"a": np.arange(4.0).reshape(2, 2)},
        {"a": np.nextafter(np.arange(4.0), 9)},
        {"b": [1, "y"]},
        {"b": (1, "x")},
        {"key": jax.random.key(1)},
    ]
    prints = {storage.fingerprint(base), *(storage.fingerprint(base | change) for change in changes)}
    assert len(prints) == 7
    assert storage.fingerprint(np.asfortranarray(np.eye(3) + 1)) == storage.fingerprint(np.eye(3) + 1)
    assert storage.fingerprint(Foreign(1)) != storage.fingerprint(Foreign(2))
    with pytest.raises(TypeError, match="object cannot be saved"):
        storage.fingerprint(object())
