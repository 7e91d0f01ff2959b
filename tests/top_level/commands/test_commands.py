"""The command: what it answers to good and bad arguments, and where compiled programs are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import ethogram
from ethogram import commands as command_line
from ethogram import terminal, tour
from ethogram.commands import play


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        command_line.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"ethogram {ethogram.__version__}\n"


def test_the_package_runs_as_the_command(tmp_path):
    """Without JAX and what else takes long to import."""
    code = "import sys; from ethogram.commands import main; print(main([]), 'jax' in sys.modules)"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert answer.stdout.startswith("usage: ethogram") and answer.stdout.endswith("0 False\n"), answer.stderr
    command = [sys.executable, "-m", "ethogram", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"ethogram {ethogram.__version__}\n", "")


COMMANDS = ("tour", "play", "plan", "mmap", "fit", "doctor")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=["", *COMMANDS])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        command_line.main([*command, "--help"])
    printed = capsys.readouterr().out
    assert stop.value.code == 0 and printed.startswith(" ".join(["usage: ethogram", *command]))
    assert command or all(f"\n    {name} " in printed for name in COMMANDS)


FAULTS = {
    "a command": (["fits"], "ethogram: argument command: invalid choice: 'fits'"),
    "a system": (["tour", "role-hmm", "ghost"], f"no system 'ghost': choose from {', '.join(tour.SYSTEMS)}"),
    "a low seed": (["tour", "--seed", "-1"], "tour: argument --seed: -1 is not between 0 and 4294967295"),
    "a high seed": (["tour", "--seed", "4294967296"], "--seed: 4294967296 is not between 0 and 4294967295"),
    "a word": (["tour", "--seed", "two"], "--seed: 'two' is not an integer"),
    "two lengths": (["tour", "--quick", "--full"], "not allowed with argument"),
    "a file": (
        ["tour", "--out", "taken"],
        "--out taken is not a writable folder (File exists): choose another",
    ),
    "no game": (["play"], "the following arguments are required: GAME\n"),
    "a game": (["play", "chess"], "invalid choice: 'chess'"),
    "a method": (["mmap", "n.uai", "--map", "0", "--method", "luck"], "--method: invalid choice: 'luck'"),
    "no map": (["mmap", "n.uai"], "the following arguments are required: --map"),
    "no model": (["fit", "x.csv", "--out", "out"], "the following arguments are required: --model"),
    "episodes": (["plan", "a", "1", "--episodes", "0"], "--episodes: 0 is below 1"),
    "no number": (
        ["plan", "a", "1", "--seconds", "nan"],
        "--seconds: 'nan' is not a positive number of seconds",
    ),
    "a depth": (["plan", "a", "1", "--depth", "33"], "--depth: 33 is not between 1 and 32"),
}


@pytest.mark.parametrize(("words", "message"), FAULTS.values(), ids=FAULTS)
def test_wrong_arguments_get_one_line_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    try:
        code = command_line.main(words)
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr().err
    assert code == 2 and message in printed and printed.count("\n") == 1, printed
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_game_is_played_from_a_clone_only(monkeypatch, tmp_path, capsys):
    assert (play.EXAMPLES / "play_tetris.py").is_file()
    monkeypatch.setattr(play, "EXAMPLES", tmp_path)
    assert command_line.main(["play", "tetris", "--rows", "8"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("ethogram: play tetris is examples/play_tetris.py of the repository")
    assert printed.count("\n") == 1


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_fitted(monkeypatch, capsys, tmp_path):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(tour, "take_tour", lambda *given, **named: pytest.fail("fitted"))
    assert command_line.main(["tour", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} is not a writable folder (Permission denied): choose" in capsys.readouterr().err


@pytest.fixture
def unprepared(monkeypatch):
    """The process stays as it is, and no tour is imported."""
    monkeypatch.setattr("ethogram.commands.process.prepare", lambda: None)
    monkeypatch.setattr("ethogram.commands.tour.import_module", lambda name: None)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "noisy-mdp.nc"), 2, "noisy-mdp.nc: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(32, "Broken pipe"), 1, "standard output is closed"),
    ],
)
def test_what_stops_a_tour_gets_one_line(unprepared, monkeypatch, capsys, tmp_path, error, code, message):
    def stopped(*given, **named):
        raise error

    monkeypatch.setattr(tour, "take_tour", stopped)
    assert command_line.main(["tour", "role-hmm", "--out", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"ethogram: {message}\n"


INTERRUPTED = """
import os, signal, sys
from ethogram import commands as command_line

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "ethogram.commands.fit_results":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("half imported") from None  # as native extensions do

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background lacks
sys.meta_path.insert(0, Slow())
sys.exit(command_line.main("fit x.csv --model roles --features x --out out".split()))
"""


def test_an_interrupt_during_imports_gets_one_line(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "ethogram: interrupted\n")


def test_output_that_nobody_reads_gets_one_line():
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


@pytest.mark.parametrize(
    ("words", "cores", "processes"),
    [
        (["gp-irl", "role-hmm"], 2, 2),
        (["gp-irl", "role-hmm", "--full"], 8, 2),
        (["--quick"], 8, len(tour.SYSTEMS)),
        ([], 1, 1),
        (["role-hmm", "role-hmm"], 8, 1),
    ],
)
def test_arguments_reach_the_tour(unprepared, monkeypatch, tmp_path, words, cores, processes):
    """One process per core, and at most one per system."""
    seen = {}
    monkeypatch.setattr(terminal, "available_cores", lambda: cores)
    monkeypatch.setattr(tour, "take_tour", lambda *given, **named: seen.update(given=given, named=named))
    out = tmp_path / "a" / "b"
    assert command_line.main(["tour", *words, "--seed", "7", "--out", str(out)]) == 0
    systems = [word for word in dict.fromkeys(words) if not word.startswith("-")]
    assert seen["given"] == (systems or list(tour.SYSTEMS), out) and out.is_dir()
    prepare = seen["named"].pop("prepare")
    assert seen["named"] == {"full": "--full" in words, "seed": 7, "processes": processes}
    assert prepare.__qualname__ == prepare.__name__  # which another process can import


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
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    answer = subprocess.run([sys.executable, "-c", PROBE, *homes], capture_output=True, text=True, env=kept)
    assert answer.returncode == 0, answer.stderr
    nowhere, home, other = json.loads(answer.stdout.splitlines()[-1])
    folder = tmp_path / "home" / "ethogram" / "jax"
    assert nowhere[:3] == [None, None, None]
    assert home == [None, str(folder), str(folder), 0, -1] and any(folder.iterdir())
    assert other[:3] == [str(folder)] * 3 and not (tmp_path / "other").exists()
