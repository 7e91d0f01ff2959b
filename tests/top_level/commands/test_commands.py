"""The command: what it answers to good and bad arguments, and where compiled programs are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import ethogram
from ethogram import commands as command_line
from ethogram import tour

COMMAND = "ethogram.commands.command_line"


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        command_line.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"ethogram {ethogram.__version__}\n"


def test_the_package_runs_as_the_command(tmp_path):
    command = [sys.executable, "-m", "ethogram", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"ethogram {ethogram.__version__}\n", "")


def test_without_a_command_help_is_printed(capsys):
    assert command_line.main([]) == 0
    assert "tour" in capsys.readouterr().out


def test_an_unknown_system_is_refused_with_the_list(capsys, tmp_path):
    assert command_line.main(["tour", "role-hmm", "ghost", "--out", str(tmp_path / "new")]) == 2
    told = capsys.readouterr().err
    assert "'ghost'" in told and all(name in told for name in tour.SYSTEMS)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("seed", "reason"),
    [
        ("-1", "-1 is not between 0 and 4294967295"),
        ("4294967296", "4294967296 is not between 0 and 4294967295"),
        ("two", "'two' is not an integer"),
    ],
)
def test_a_seed_that_no_key_takes_is_refused_in_one_line(capsys, seed, reason):
    with pytest.raises(SystemExit) as stop:
        command_line.main(["tour", "--seed", seed])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"ethogram tour: argument --seed: {reason}\n"


def test_a_file_where_the_folder_should_be_is_refused(capsys, tmp_path):
    (tmp_path / "taken").write_text("")
    assert command_line.main(["tour", "--out", str(tmp_path / "taken")]) == 2
    assert "taken is not a writable folder (File exists)" in capsys.readouterr().err


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_fitted(monkeypatch, capsys, tmp_path):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(tour, "take_tour", lambda *given, **named: pytest.fail("fitted"))
    assert command_line.main(["tour", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path} is not a writable folder (Permission denied): choose" in told


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(28, "No space left on device", "noisy-mdp.nc"), 2, "noisy-mdp.nc: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(32, "Broken pipe"), 1, "standard output is closed"),
    ],
)
def test_what_stops_a_tour_is_told_in_one_line(monkeypatch, capsys, tmp_path, error, code, told):
    def stopped(*given, **named):
        raise error

    monkeypatch.setattr(f"{COMMAND}._prepare", lambda: None)
    monkeypatch.setattr(f"{COMMAND}.import_module", lambda name: None)
    monkeypatch.setattr(tour, "take_tour", stopped)
    assert command_line.main(["tour", "role-hmm", "--out", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"ethogram: {told}\n"


INTERRUPTED = """
import os, signal, sys
from ethogram import commands as command_line

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "ethogram.commands.play_tetris":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("half imported") from None  # as native extensions do

sys.meta_path.insert(0, Slow())
sys.exit(command_line.main(["play", "tetris"]))
"""


def test_an_interrupt_during_imports_is_told_in_one_line(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "ethogram: interrupted\n")


def test_output_that_nobody_reads_is_told_in_one_line():
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from ethogram.commands import main; sys.exit(main(['--version']))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    os.close(writing)
    assert (answer.returncode, answer.stderr) == (1, "ethogram: standard output is closed\n")


@pytest.mark.parametrize("words", [[], ["--quick"], ["--full"]])
def test_arguments_reach_the_tour(monkeypatch, tmp_path, words):
    seen = {}
    monkeypatch.setattr(tour, "available_cores", lambda: 2)
    monkeypatch.setattr(tour, "take_tour", lambda *given, **named: seen.update(given=given, named=named))
    out = tmp_path / "a" / "b"
    assert command_line.main(["tour", "gp-irl", "role-hmm", "--seed", "7", "--out", str(out), *words]) == 0
    assert seen["given"] == (["gp-irl", "role-hmm"], out)
    prepare = seen["named"].pop("prepare")
    assert seen["named"] == {"full": words == ["--full"], "seed": 7, "processes": 2}
    assert out.is_dir() and prepare.__module__ == COMMAND


@pytest.mark.parametrize(
    ("cores", "systems", "processes"), [(1, [], 1), (8, [], len(tour.SYSTEMS)), (8, ["role-hmm"] * 2, 1)]
)
def test_a_process_a_core_and_at_most_one_a_system(monkeypatch, tmp_path, cores, systems, processes):
    seen = {}
    monkeypatch.setattr(f"{COMMAND}._prepare", lambda: None)
    monkeypatch.setattr(f"{COMMAND}.import_module", lambda name: None)
    monkeypatch.setattr(tour, "available_cores", lambda: cores)
    monkeypatch.setattr(tour, "take_tour", lambda *given, **named: seen.update(named))
    assert command_line.main(["tour", *systems, "--out", str(tmp_path)]) == 0
    assert seen["processes"] == processes


def test_the_short_form_and_the_long_one_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as stop:
        command_line.main(["tour", "--quick", "--full"])
    assert stop.value.code == 2 and "not allowed with argument" in capsys.readouterr().err


PROBE = """
import json, os, sys, jax
from ethogram.commands import use_compilation_cache
names = ("compilation_cache_dir", "persistent_cache_min_compile_time_secs", "persistent_cache_min_entry_size_bytes")
seen = []
for home in sys.argv[1:]:
    os.environ["XDG_CACHE_HOME"] = home
    before = jax.config.jax_compilation_cache_dir
    folder = use_compilation_cache()
    seen.append([before, folder and str(folder), *(getattr(jax.config, "jax_" + name) for name in names)])
jax.jit(lambda x: 2 * x)(1.0)
print(json.dumps(seen))
"""


def test_compiled_programs_are_kept_in_the_users_cache_folder(tmp_path):
    """There is none where no folder can be made, and one that is set already stays."""
    (tmp_path / "file").write_text("")
    homes = [str(tmp_path / name) for name in ("file", "home", "other")]
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    answer = subprocess.run([sys.executable, "-c", PROBE, *homes], capture_output=True, text=True, env=kept)
    assert answer.returncode == 0, answer.stderr
    nowhere, home, other = json.loads(answer.stdout.splitlines()[-1])
    folder = tmp_path / "home" / "ethogram" / "jax"
    assert nowhere[:3] == [None, None, None]
    assert home == [None, str(folder), str(folder), 0, -1] and any(folder.iterdir())
    assert other[:3] == [str(folder)] * 3 and not (tmp_path / "other").exists()
