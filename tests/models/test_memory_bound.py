"""What a few characters declare is refused before memory is taken, with how much it is and how to allow it."""

import io
import json
import threading
import zipfile

import jax
import numpy as np
import pytest

import ethogram
from ethogram import AgentMarkov, Decisions, GaussianEmission, NoisyMDP, PoissonEmission, RoleHMM
from ethogram.inference.choices import PXDA
from ethogram.models.memory_bound import memory_bound, most_bytes_now, require_room


def archive(path, shape, num_bytes):
    """A file of ethogram whose one array has this shape by its header, and so many zeros."""
    record = json.dumps({"format": "ethogram 1", "content": {"array": "array_0", "device": False}})
    structure = io.BytesIO()
    np.save(structure, np.array(record))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("structure.npy", structure.getvalue())
        with file.open("array_0.npy", "w") as member:
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            member.write(bytes(num_bytes))
    return path


def test_the_bound_is_of_a_block_and_of_a_thread():
    declared = ("matrix", (3, 2**40), float, "give fewer columns")
    with pytest.raises(
        ValueError, match=r"matrix would have shape \(3, 1099511627776\) and take 2\.46e\+04 GiB"
    ):
        require_room(*declared)
    seen = []
    with memory_bound(most_bytes=2**45):
        require_room(*declared)
        thread = threading.Thread(target=lambda: seen.append(most_bytes_now()))
        thread.start()
        thread.join()
    assert seen == [most_bytes_now()] == [2**31]
    with pytest.raises(ValueError, match="more than 2"):
        require_room("matrix", (10**400,), float, "give fewer columns")
    with pytest.raises(ValueError, match="most_bytes must be at least 1"), memory_bound(0):
        pass


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RoleHMM(2**32 + 1, GaussianEmission(2)), "initial"),
        (lambda: RoleHMM(200_000, GaussianEmission(2)), "transition"),
        (lambda: RoleHMM(10_000, GaussianEmission(200)), "the prior of the emission"),
        (lambda: GaussianEmission(10**400), "scale"),
        (lambda: PoissonEmission(2**40), "shape"),
        (lambda: AgentMarkov(2**63, 2), "the policies of all intents"),
        (lambda: AgentMarkov(5, 2, truncation=10**9), "the policies of all intents"),
    ],
)  # fmt: skip
def test_models_of_too_many_states(make, name):
    with pytest.raises(ValueError, match=f"^{name} would have shape .*memory_bound"):
        make()


@pytest.mark.parametrize(("shape", "num_bytes"), [((2**29,), 64), ((2**12,), 2**16)])
def test_archives_say_how_much_they_hold(tmp_path, shape, num_bytes):
    """By the header of a member, or by the directory of the archive where it holds more than the header says."""
    path = archive(tmp_path / "fit", shape, num_bytes)
    with memory_bound(2**15), pytest.raises(ValueError, match=r"^arrays of .*fit would have shape"):
        ethogram.load(path)


def test_weights_and_subjects_far_beyond_the_decisions():
    rows = [np.eye(3)[:, :2]] * 3
    with pytest.raises(ValueError, match=r"subject\[2\] is far beyond the 3 decisions"):
        Decisions.from_list(rows, [0, 1, 2], subject=[0, 1, 2**32])
    model, heavy = NoisyMDP(4.0, kind="features"), Decisions.from_list(rows, [0, 1, 2], weight=[1, 1, 10**15])
    with pytest.raises(
        ValueError, match=r"decisions, by their weight, would have shape \(1000000000000002, 3, 2\)"
    ):
        PXDA(model).init(jax.random.key(0), 1, None, (heavy,), {})
