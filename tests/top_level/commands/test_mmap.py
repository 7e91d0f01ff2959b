"""The command `ethogram mmap` as its users meet it: answers, records, exit codes, messages."""

from __future__ import annotations

import builtins
import gzip
import io
import itertools
import json
import math
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from ethogram.commands import METHODS, main
from ethogram.domains import diagnosis
from ethogram.inference import networks
from ethogram.inference.networks import solve_mmap
from ethogram.inference.networks.solve_mmap import METHODS as SOLVERS
from ethogram.models.networks import (
    BayesNet,
    MarginalMAP,
    read_network,
    tokens,
    write_bif,
    write_evidence,
    write_map_variables,
    write_network,
)


@pytest.fixture
def files(tmp_path):
    """The heating network, complaints and MAP variables as files."""
    query = diagnosis.heating_query()
    write_network(tmp_path / "heating.uai", query.network, tmp_path / "names.json")
    write_bif(tmp_path / "heating.bif.gz", query.network)
    write_evidence(tmp_path / "complaints.evid", query.network, diagnosis.COMPLAINTS)
    write_map_variables(tmp_path / "faults.map", query.network, list(diagnosis.FAULTS))
    return tmp_path


def run(files, *words):
    return main(["mmap", *(str(files / word) if "." in word and "/" not in word else word for word in words)])


def test_answer_with_names(files, capsys):
    code = run(
        files, "heating.uai", "--names", "names.json", "--evidence", "complaints.evid", "--map", "faults.map", "--json",
        "answer.json",
    )  # fmt: skip
    assert code == 0
    written = json.loads((files / "answer.json").read_text())
    assert set(written) == {
        "assignment", "log_probability", "possible", "kind", "upper_bound", "proved_optimal", "method", "seconds",
    }  # fmt: skip
    assert set(written["assignment"]) == set(diagnosis.FAULTS)
    assert written["assignment"]["valve stuck"] == "yes"
    assert (written["possible"], written["kind"], written["proved_optimal"]) == (True, "exact", True)
    printed = capsys.readouterr().out
    assert "valve stuck = yes" in printed
    assert "proved optimal" in printed


@pytest.mark.parametrize("network", ["heating.uai", "heating.bif.gz", "factors.uai"])
def test_each_file_is_opened_and_tokenized_once(files, monkeypatch, capsys, network):
    (files / "factors.uai").write_text("MARKOV\n" + (files / "heating.uai").read_text().partition("\n")[2])
    opened, tokenized, (builtin_open, make) = [], [], (open, tokens.Tokens.__init__)

    def counting(file, *args, **kwargs):
        opened.append(Path(str(file)).name)
        return builtin_open(file, *args, **kwargs)

    def tokenizing(self, path, *args):
        tokenized.append(Path(path).name)
        make(self, path, *args)

    monkeypatch.setattr(builtins, "open", counting)
    monkeypatch.setattr(io, "open", counting)
    monkeypatch.setattr(tokens.Tokens, "__init__", tokenizing)
    assert run(files, network, "--evidence", "complaints.evid", "--map", "faults.map", "--method", "mpe") == 0
    monkeypatch.undo()
    for name in (network, "complaints.evid", "faults.map"):
        assert (opened.count(name), tokenized.count(name)) == (1, 1), name
    capsys.readouterr()


def test_numbers_lists_and_bif_say_the_same(files, capsys):
    network = diagnosis.heating()
    numbers = ",".join(str(network.variable(name)) for name in diagnosis.FAULTS)
    assert (
        run(files, "heating.uai", "--evidence", "complaints.evid", "--map", numbers, "--json", "a.json") == 0
    )
    names = ", ".join(diagnosis.FAULTS)
    assert (
        run(files, "heating.bif.gz", "--evidence", "complaints.evid", "--map", names, "--json", "b.json") == 0
    )
    one, other = (json.loads((files / name).read_text()) for name in ("a.json", "b.json"))
    assert one["log_probability"] == pytest.approx(other["log_probability"], rel=1e-12)
    assert list(one["assignment"].values()) == [int(s == "yes") for s in other["assignment"].values()]
    capsys.readouterr()


@pytest.mark.parametrize("method", ["mpe", "mpbp", "sequential"])
def test_other_methods(files, method, capsys):
    words = ["heating.uai", "--evidence", "complaints.evid", "--map", "faults.map", "--method", method]
    assert run(files, *words, "--time-limit", "2", "--json", "a.json") == 0
    assert json.loads((files / "a.json").read_text())["method"] == method
    assert "not proved" in capsys.readouterr().out


def test_all_variables_without_evidence(tmp_path, capsys):
    """Which may be of factors; a comma, or a folder, tells a variable or a file of this name apart."""
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n1.0 3.0\n4\n2.0 1.0 0.5 5.0\n")
    words = ["mmap", str(tmp_path / "m.uai"), "--format", "json", "--map"]
    for evidence, expected in (([], {"x0": 1, "x1": 1}), (["--evidence", "x1=0"], {"x0": 0})):
        assert main([*words, "all", *evidence]) == 0
        assert json.loads(capsys.readouterr().out)["assignment"] == expected
    assert main([*words, "all", "--evidence", "x0=0,x1=0"]) == 2
    assert "--map is all, and every variable has evidence" in capsys.readouterr().err
    assert main([*words, "all,"]) == 2
    assert "no variable is named 'all'" in capsys.readouterr().err


def test_factors_are_a_network_too(tmp_path, capsys):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n1.0 3.0\n4\n2.0 1.0 0.5 5.0\n")
    assert main(["mmap", str(tmp_path / "m.uai"), "--map", "0", "--json", str(tmp_path / "a.json")]) == 0
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["assignment"] == {"x0": 1}
    assert written["log_probability"] == pytest.approx(np.log(3 * 5.5))
    capsys.readouterr()


def test_impossible_evidence_has_its_own_code(tmp_path, capsys):
    (tmp_path / "n.uai").write_text("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n0.5 0.5\n4\n1.0 0.0 0.0 1.0\n")
    (tmp_path / "e.evid").write_text("2 0 0 1 1\n")
    (tmp_path / "f.uai").write_text("BAYES\n1\n2\n1\n1 0\n2\n0.5 0.5\n")
    words = ["mmap", str(tmp_path / "n.uai"), "--map", "0", "--evidence", str(tmp_path / "e.evid")]
    assert main(words) == 2  # the only MAP variable is evidence
    (tmp_path / "three.uai").write_text(
        "BAYES\n3\n2 2 2\n3\n1 0\n2 0 1\n1 2\n2\n0.5 0.5\n4\n1.0 0.0 0.0 1.0\n2\n0.5 0.5\n"
    )
    words = ["mmap", str(tmp_path / "three.uai"), "--map", "2", "--evidence", str(tmp_path / "e.evid")]
    assert main(words) == 3
    assert "x0 = 0, x1 = 1 contradict each other" in capsys.readouterr().err


def test_no_possible_assignment_is_no_answer(tmp_path, capsys):
    (tmp_path / "n.uai").write_text("BAYES\n2\n2 2\n2\n1 0\n1 1\n2\n0.5 0.5\n2\n1.0 0.0\n")
    words = ["mmap", str(tmp_path / "n.uai"), "--map", "0"]
    found = solve_mmap(jax.random.key(0), MarginalMAP(read_network(tmp_path / "n.uai"), {}, [0]), "exact")
    nothing = found._replace(log_probability=-math.inf, proved_optimal=False)
    with mock.patch.object(networks, "solve_mmap", return_value=nothing):
        assert main([*words, "--json", str(tmp_path / "a.json")]) == 4
    printed = capsys.readouterr()
    assert "x0" not in printed.out and "no assignment of positive probability was found" in printed.err
    written = json.loads((tmp_path / "a.json").read_text())
    assert (written["assignment"], written["possible"], written["log_probability"]) == (None, False, None)


def test_a_search_that_finds_nothing_possible_in_time_does_not_answer(tmp_path, capsys):
    """Eleven pigeons in ten holes, no two in one: impossible, but too hard to prove in half a second."""
    pairs, same = list(itertools.combinations(range(11), 2)), np.eye(10)
    tables = (np.full(10, 0.1),) * 11 + (np.stack((same, 1 - same), -1),) * len(pairs)
    network = BayesNet(tables, ((),) * 11 + tuple(pairs))
    write_network(tmp_path / "pigeons.uai", network)
    write_evidence(tmp_path / "apart.evid", network, {11 + i: 1 for i in range(len(pairs))})
    words = ["mmap", str(tmp_path / "pigeons.uai"), "--evidence", str(tmp_path / "apart.evid"), "--map", "0"]
    assert main([*words, "--time-limit", "0.5", "--json", str(tmp_path / "a.json")]) == 4
    assert "no assignment of positive probability was found" in capsys.readouterr().err
    written = json.loads((tmp_path / "a.json").read_text())
    assert (written["assignment"], written["possible"], written["proved_optimal"]) == (None, False, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.uai", "--map", "0"], "No such file"),
        (
            ["heating.uai", "--map", "99"],
            "no variable is named 99; there are x0, x1, x2, x3, x4, x5 and 34 more, or by number 0..39",
        ),
        (["heating.bif.gz", "--map", "nobody"], "no variable is named 'nobody'"),
        (["heating.bif.gz", "--names", "names.json", "--map", "soot"], "is BIF and has its own names"),
        (["heating.uai", "--map", "faults.map", "--evidence", "faults.map"], "faults.map"),
        (["names.json", "--map", "0"], "line 1"),
        (["heating.bif.gz", "--map", "soot", "--json", "none/a.json"], "cannot be written: the folder"),
        (["heating.uai", "--names", "heating.uai", "--map", "0"], "not JSON"),
        (["heating.uai", "--map", ","], "map_variables is empty"),
    ],
)
def test_files_and_words_that_do_not_fit(files, words, message, capsys):
    assert run(files, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("ethogram: ")
    assert message in said


def test_methods_of_the_command_are_those_there_are():
    assert set(METHODS) == set(SOLVERS)


def test_evidence_beyond_the_factors_of_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1.0 5.0 3.0 9.0\n")
    (tmp_path / "e.evid").write_text("1 2 0\n")
    words = ["mmap", str(tmp_path / "m.uai"), "--map", "0"]
    assert main([*words, "--evidence", str(tmp_path / "e.evid")]) == 2
    assert "--evidence: variable 2 is outside 0..1" in capsys.readouterr().err
    assert main(["mmap", str(tmp_path / "m.uai"), "--map", "2"]) == 2


def test_files_that_are_cut_short_or_no_text(tmp_path, capsys):
    packed = gzip.compress(b"BAYES 1 2 1 1 0 2 0.5 0.5")
    for name, content, message in (
        ("a.uai.gz", packed[:-6], "cannot be decompressed"),
        ("b.uai.gz", b"no gzip", "cannot be decompressed"),
        ("c.uai", b"\xff\xfe\x00", "is not UTF-8 text"),
    ):
        (tmp_path / name).write_bytes(content)
        assert main(["mmap", str(tmp_path / name), "--map", "0"]) == 2
        said = capsys.readouterr().err
        assert message in said and name in said
    (tmp_path / "n.uai").write_bytes(b"BAYES 1 2 1 1 0 2 0.5 0.5")
    for text in (
        '{"names": 5}',
        '{"names": "a"}',
        '{"names": ["a"], "states": 3}',
        '{"names": ["a"], "states": [3]}',
    ):
        (tmp_path / "names.json").write_text(text)
        words = ["mmap", str(tmp_path / "n.uai"), "--map", "0", "--names", str(tmp_path / "names.json")]
        assert main(words) == 2
        assert "names.json: " in capsys.readouterr().err


def test_evidence_by_name_says_the_same_as_by_number(files, capsys):
    network = diagnosis.heating()
    pairs = [
        (
            network.names[network.variable(name)],
            network.state_names[network.variable(name)][network.state(network.variable(name), state)],
        )
        for name, state in diagnosis.COMPLAINTS.items()
    ]
    (files / "lines.txt").write_text("".join(f"{name} = {state}\n" for name, state in pairs))
    (files / "object.json").write_text(json.dumps(dict(pairs)))
    (files / "names.txt").write_text("\n".join(diagnosis.FAULTS))
    listed = ", ".join(f"{name}={state}" for name, state in pairs)
    answers = []
    for evidence in ("complaints.evid", "lines.txt", "object.json", listed):
        words = ["heating.bif.gz", "--evidence", evidence, "--map", "names.txt", "--format", "json"]
        assert run(files, *words) == 0
        answers.append(json.loads(capsys.readouterr().out))
        del answers[-1]["seconds"]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["assignment"]["valve stuck"] == "yes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--evidence", "soot=maybe"],
            "--evidence (not a file): soot has no state 'maybe'; its states are no, yes",
        ),
        (
            ["--evidence", "nothing.txt"],
            "--evidence (not a file): expected 'variable = state', found",
        ),
        (["--evidence", "nobody=yes"], "--evidence (not a file): no variable is named 'nobody'"),
        (["--evidence", "soot=yes,soot=no"], "--evidence (not a file): variable soot appears twice"),
        (["--evidence", ""], "--evidence is empty"),
        (["--evidence", "soot=yes", "--sample", "0"], "--evidence is a list"),
        (["--sample", "0"], "there is no --evidence"),
    ],
)
def test_evidence_that_does_not_fit(files, words, message, capsys):
    assert run(files, "heating.bif.gz", "--map", "pump worn", *words) == 2
    assert message in capsys.readouterr().err


def test_a_word_that_is_a_file_and_a_list_is_refused(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    (files / "soot").write_text("pump worn\n")
    (files / "soot=yes").write_text("soot = no\n")
    words = ["mmap", "heating.bif.gz", "--format", "uai", "--method", "mpe", "--map"]
    assert main([*words, "soot"]) == 2
    assert "--map: 'soot' is a file and a list as well: write './soot' for the file, or 'soot,' for the" in (
        capsys.readouterr().err
    )
    assert main([*words, "pump worn", "--evidence", "soot=yes"]) == 2
    assert "--evidence: 'soot=yes' is a file and a list as well" in capsys.readouterr().err
    network = diagnosis.heating()
    for text, name in (("./soot", "pump worn"), ("soot,", "soot")):
        assert main([*words, text]) == 0
        assert capsys.readouterr().out.split()[:3] == ["MMAP", "1", str(network.variable(name))]
    (files / "pump worn").mkdir()
    assert main([*words, "pump worn"]) == 0


def test_samples_are_chosen_and_never_guessed(tmp_path, capsys):
    (tmp_path / "n.uai").write_text("BAYES 2 2 2 2 1 0 2 0 1 2 .6 .4 4 .9 .1 .2 .8")
    (tmp_path / "e.evid").write_text("2\n1 1 0\n1 1 1\n")
    words = [
        "mmap",
        str(tmp_path / "n.uai"),
        "--map",
        "0",
        "--evidence",
        str(tmp_path / "e.evid"),
        "--format",
        "uai",
    ]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "e.evid contains 2 evidence samples; pass sample=0..1 (or --sample)" in said
    for sample in (0, 1):
        assert main([*words, "--sample", str(sample)]) == 0
        assert capsys.readouterr().out == f"MMAP\n1 0 {sample}\n"
    assert main([*words, "--sample", "2"]) == 2
    assert "sample is 2, but" in capsys.readouterr().err
    for wrong in ("-1", "first"):
        with pytest.raises(SystemExit) as caught:
            main([*words, "--sample", wrong])
        assert caught.value.code == 2
        assert "--sample" in capsys.readouterr().err


def test_the_result_of_the_competitions(files, capsys):
    words = ["heating.uai", "--evidence", "complaints.evid", "--map", "faults.map", "--json", "answer.json"]
    assert run(files, *words, "--format", "uai") == 0
    task, solution = capsys.readouterr().out.splitlines()
    network = diagnosis.heating()
    numbers = list(map(int, solution.split()))
    assert (task, numbers[0], len(numbers)) == ("MMAP", len(diagnosis.FAULTS), 1 + 2 * len(diagnosis.FAULTS))
    assert numbers[1::2] == [network.variable(name) for name in diagnosis.FAULTS]
    written = json.loads((files / "answer.json").read_text())["assignment"]
    assert numbers[2::2] == list(written.values())


def test_a_network_of_pgmpy_is_said_to_be_one(tmp_path, capsys):
    (tmp_path / "n.uai").write_text("BAYES 2 2 2 2 1 0 2 0 1 2 .6 .4 4 .9 .2 .1 .8")
    words = ["mmap", str(tmp_path / "n.uai"), "--map", "0", "--evidence", "x1=1", "--format", "uai"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.out == "MMAP\n1 0 1\n" and "as pgmpy writes" in printed.err
