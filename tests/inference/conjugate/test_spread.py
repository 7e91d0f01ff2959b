"""One fit on several devices is that of one device: statistics are sums over sequences."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap

import jax
import pytest

import ethogram

SCRIPT = """
    import sys
    import jax
    if len(sys.argv) > 2:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))
    import numpy as np
    import ethogram

    random = np.random.default_rng(0)
    role = np.arange(12) // 4 % 2
    frames = [random.normal(size=(12, 1)) + 4 * role[:, None] for _ in range(14)]
    group = np.repeat(np.arange(7), 2)
    pairs = ethogram.Trajectories.from_list(frames, group=group, agent=np.tile([0, 1], 7))
    traces = ethogram.Trajectories.from_list(
        states=[random.integers(0, 3, 12) for _ in range(9)], actions=[random.integers(0, 2, 12) for _ in range(9)]
    )
    with jax.enable_x64(True):
        emission = ethogram.GaussianEmission(1)
        cases = [
            (ethogram.RoleHMM(2, emission), pairs.take(range(11)), {"restarts": 2}),
            (ethogram.RoleHMM(2, emission, exclusive="per_sequence"), pairs, {"restarts": 1}),
            (ethogram.AgentMarkov(3, 2, 3), traces, {"restarts": 2}),
        ]
        for model, data, settings in cases[: int(sys.argv[1])]:
            traces = []
            for mesh in (None, jax.make_mesh((jax.device_count(),), ("data",))):
                run = ethogram.ConjugateSVI(model, mesh).run
                fit = run(jax.random.key(1), data, 30, progress_bar=False, **settings)
                traces.append(fit.restart_traces)
            assert jax.device_count() > 1 and traces[0].shape == traces[1].shape
            np.testing.assert_allclose(*traces, rtol=1e-10)
"""


def run(folder, devices, *arguments):
    script = folder / "spread.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_four_devices_are_as_one(tmp_path):
    process = run(tmp_path, 4, "3")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed


@pytest.mark.slow
def test_two_processes_are_as_one_device(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [run(tmp_path, 1, "1", address, str(rank)) for rank in range(2)]
    for process in processes:
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, printed


def test_what_is_no_mesh_is_refused():
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    with pytest.raises(TypeError, match="mesh is int"):
        ethogram.ConjugateSVI(model, 2)
    mesh = jax.sharding.Mesh([[jax.devices()[0]]], ("a", "b"))
    with pytest.raises(ValueError, match="mesh has the axes a, b"):
        ethogram.ConjugateSVI(model, mesh)
    one = jax.make_mesh((1,), ("data",))
    data = model.simulate(jax.random.key(0), num_groups=8, lengths=5).data
    with pytest.raises(ValueError, match="leave batch_size out"):
        ethogram.ConjugateSVI(model, one).run(jax.random.key(1), data, 5, batch_size=2, progress_bar=False)
