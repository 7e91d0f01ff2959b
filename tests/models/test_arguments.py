"""Checks of arguments: what they let through, and what they name."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from ethogram.inference.roles import infer_roles
from ethogram.models import arguments
from ethogram.models.arguments import (
    common_batch,
    is_concrete,
    read_reals,
    require,
    require_covariance,
    require_integer,
    require_key,
    require_number,
    require_one_of,
    require_reals,
)
from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values

NAN = float("nan")


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3)])
def test_integers_pass_as_python_integers(value):
    assert type(require_integer("count", value, 3, 3)) is int
    assert require_integer("count", value) == 3


@pytest.mark.parametrize(
    ("value", "bounds", "error", "message"),
    [
        (2.0, (), TypeError, "count must be an integer, not 2.0"),
        (True, (), TypeError, "count must be an integer, not True"),
        (np.bool_(True), (), TypeError, "count must be an integer"),
        ("2", (), TypeError, "count must be an integer, not '2'"),
        (0, (1,), ValueError, "count must be at least 1, not 0"),
        (4, (1, 3), ValueError, "count must be at most 3, not 4"),
    ],
)
def test_other_integers_are_refused(value, bounds, error, message):
    with pytest.raises(error, match=f"^{message}"):
        require_integer("count", value, *bounds)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0)])
def test_numbers_pass_as_python_floats(value):
    number = require_number("rate", value, 1, 1, above=0, below=2)
    assert type(number) is float and number == 1


@pytest.mark.parametrize(
    ("value", "bounds", "error", "message"),
    [
        ("1", {}, TypeError, "rate must be a real number, not '1'"),
        (True, {}, TypeError, "rate must be a real number, not True"),
        (None, {}, TypeError, "rate must be a real number, not None"),
        (1j, {}, TypeError, "rate must be a real number"),
        (np.ones(1), {}, TypeError, "rate must be a real number"),
        (np.array(True), {}, TypeError, "rate must be a real number"),
        (NAN, {}, ValueError, "rate must be finite, not nan"),
        (NAN, dict(least=0), ValueError, "rate must be at least 0, not nan"),
        (np.inf, dict(least=0), ValueError, "rate must be finite and at least 0, not inf"),
        (-0.1, dict(least=0), ValueError, "rate must be at least 0, not -0.1"),
        (0, dict(above=0, most=1), ValueError, "rate must be greater than 0 and at most 1, not 0"),
        (1.01, dict(above=0, most=1), ValueError, "rate must be greater than 0 and at most 1, not 1.01"),
        (1, dict(least=0, below=1), ValueError, "rate must be at least 0 and less than 1, not 1"),
    ],
)
def test_other_numbers_are_refused(value, bounds, error, message):
    with pytest.raises(error, match=f"^{message}$" if error is ValueError else f"^{message}"):
        require_number("rate", value, **bounds)


def test_one_of_several():
    require_one_of("by", "group", ("sequence", "group"))
    require_one_of("by", None, ("sequence", None))
    with pytest.raises(ValueError, match=r"^by must be 'a', 'b' or None, not 'c'$"):
        require_one_of("by", "c", ("a", "b", None))
    with pytest.raises(ValueError, match=r"^by must be 'a', not array"):
        require_one_of("by", np.array(["a", "b"]), ("a",))


def test_keys():
    require_key(jax.random.key(0))
    for wrong, came in ((0, "int"), (np.zeros(2, np.uint32), "ndarray"), (None, "NoneType")):
        with pytest.raises(
            TypeError, match=rf"^seed must be one typed key, not {came}: pass jax\.random\.key"
        ):
            require_key(wrong, "seed")
    with pytest.raises(TypeError, match=r"not keys of shape \(2,\)"):
        require_key(jax.random.split(jax.random.key(0)))


def test_a_process_that_was_forked_after_jax_had_started_is_told_to_be_spawned(monkeypatch):
    """Its programs wait for ever; before JAX starts, nothing is said."""
    monkeypatch.setattr(arguments, "_FORKED", False)
    arguments._note_fork()
    with pytest.raises(RuntimeError, match=r'forked after JAX had started.*get_context\("spawn"\)'):
        require_key(jax.random.key(0))
    for without_key in (lambda: soft_values(None, [0.0]), lambda: infer_roles(None, None)):
        with pytest.raises(RuntimeError, match="forked after JAX had started"):
            without_key()
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(_backends={}))
    arguments._note_fork()
    require_key(jax.random.key(0))


@pytest.mark.slow
def test_a_fit_in_a_forked_process_ends_with_the_cure(tmp_path):
    """The child has half a minute; without the error it takes for ever."""
    (tmp_path / "forking.py").write_text(
        "import os, signal, jax\nfrom ethogram.models.arguments import require_key\nkey = jax.random.key(0)\n"
        "child = os.fork()\n"
        "if child == 0:\n    signal.alarm(30)\n    try:\n        require_key(key)\n"
        "    except RuntimeError as error:\n        os.write(2, str(error).encode())\n    os._exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    ran = subprocess.run(
        [sys.executable, tmp_path / "forking.py"], capture_output=True, text=True, check=True
    )
    assert 'multiprocessing.get_context("spawn")' in ran.stderr and ran.stdout.split() == ["0"]


def test_the_first_wrong_place_is_named():
    values = np.array([[1.0, 2.0], [-3.0, -4.0]])
    require(values > -9, "rate", values, "is low", "raise it")
    with pytest.raises(ValueError, match=r"^rate\[1, 0\] is negative \(it is -3\.\): raise it$"):
        require(values >= 0, "rate", values, "is negative", "raise it")
    with pytest.raises(ValueError, match=r"^rate\[1\] is low \(it is \[-3\., -4\.\]\): raise it$"):
        require(values.sum(1) > 0, "rate", values, "is low", "raise it")
    with pytest.raises(ValueError, match=r"^rate is negative \(it is -1\.\): raise it$"):
        require(False, "rate", -1.0, "is negative", "raise it")


def test_batches():
    assert common_batch("shapes", (2, 1), (3,), ()) == (2, 3)
    with pytest.raises(ValueError, match=r"^shapes \(2,\) and \(3,\): give batch axes that broadcast$"):
        common_batch("shapes (2,) and (3,)", (2,), (3,))


def test_covariances():
    matrices = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 0.5], [0.0, 1.0]])])
    require_covariance("spread", matrices[0])
    require_covariance("spread", matrices, [(0,)])
    with pytest.raises(ValueError, match=r"^spread\[1\] is not positive definite"):
        require_covariance("spread", matrices)
    with pytest.raises(ValueError, match=r"^spread\[2\] is not symmetric (?s:.*)pass \(M \+ M\.T\) / 2$"):
        require_covariance("spread", matrices, [(2,)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1, 2]), r"^x has dtype int64, not a float type: pass x\.astype\(float\)$"),
        (np.array([True]), "^x has dtype bool"),
        ([1.0, [2.0]], "^x is .* neither a real number nor an array"),
        ("a", "neither a real number"),
        (True, "neither a real number"),
        (None, "neither a real number"),
    ],
)
def test_what_is_not_real_is_refused(value, message):
    with pytest.raises(TypeError, match=message):
        require_reals("x", value)


def test_reals_share_one_type_and_are_finite():
    one, other = read_reals(one=[1, 2], other=np.float32(3))
    assert one.dtype == other.dtype == np.float32
    assert is_concrete(one, 2.0, None)
    with pytest.raises(ValueError, match=r"^x\[1\] is not finite \(it is nan\): remove or impute it$"):
        read_reals(x=[1.0, NAN])


@pytest.mark.parametrize("value", [[1.0, -1e300], np.array([1.0, -1e300])])
def test_reals_that_single_precision_makes_infinite_are_refused(value):
    (kept,) = read_reals(x=value)
    assert kept[1] == -1e300
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"^x\[1\] is beyond the range of float32 \(it is -1.e\+300\)"):
            read_reals(x=value)
        with pytest.raises(ValueError, match=r"observations\[0, 1, 0\] is beyond the range of float32"):
            Trajectories.from_list([np.reshape(value, (2, 1))])
        with pytest.raises(ValueError, match=r"features\[0, 1, 0\] is beyond the range of float32"):
            Decisions.from_list([np.reshape(value, (2, 1))], [0])
        with pytest.raises(ValueError, match=r"reward\[0, 0\] is beyond the range of float32"):
            MDP.from_gymnasium({0: {0: [(1.0, 0, value[1], False)]}}, discount=0.9)


@pytest.mark.parametrize(
    "read", [lambda table: read_reals(x=table)[0], lambda table: MDP.dense(table).transitions.probabilities]
)
def test_results_share_no_memory_with_what_was_given(read):
    """JAX shares arrays of NumPy that begin at a multiple of 64 bytes, and would change with them."""
    memory = np.zeros(8 * 4 * 8 + 8)
    first = -memory.ctypes.data % 64 // 8
    table = memory[first : first + 8 * 4 * 8].reshape(8, 4, 8)
    table[..., 0] = 1
    kept = read(table)
    before = np.array(kept)
    table[...] = np.nan
    np.testing.assert_array_equal(kept, before)
