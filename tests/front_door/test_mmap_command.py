"""The command `ethogram mmap` as its users meet it: answers, records, exit codes, messages."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from ethogram.command_line import METHODS, main
from ethogram.domains import diagnosis
from ethogram.inference import solve_mmap
from ethogram.models.bif import write_bif
from ethogram.models.uai import write_evidence, write_map_variables, write_network


@pytest.fixture
def files(tmp_path):
    """The heating network, complaints and question as files."""
    query = diagnosis.question()
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
    told = json.loads((files / "answer.json").read_text())
    assert set(told) == {
        "assignment", "log_probability", "possible", "kind", "upper_bound", "proved_optimal", "method", "seconds",
    }  # fmt: skip
    assert set(told["assignment"]) == set(diagnosis.FAULTS)
    assert told["assignment"]["valve stuck"] == "yes"
    assert (told["possible"], told["kind"], told["proved_optimal"]) == (True, "exact", True)
    printed = capsys.readouterr().out
    assert "valve stuck = yes" in printed
    assert "proved" in printed


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


def test_factors_are_a_network_too(tmp_path, capsys):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n1.0 3.0\n4\n2.0 1.0 0.5 5.0\n")
    assert main(["mmap", str(tmp_path / "m.uai"), "--map", "0", "--json", str(tmp_path / "a.json")]) == 0
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["assignment"] == {"x0": 1}
    assert told["log_probability"] == pytest.approx(np.log(3 * 5.5))
    capsys.readouterr()


def test_impossible_evidence_has_its_own_code(tmp_path, capsys):
    (tmp_path / "n.uai").write_text("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n0.5 0.5\n4\n1.0 0.0 0.0 1.0\n")
    (tmp_path / "e.evid").write_text("2 0 0 1 1\n")
    (tmp_path / "f.uai").write_text("BAYES\n1\n2\n1\n1 0\n2\n0.5 0.5\n")
    words = ["mmap", str(tmp_path / "n.uai"), "--map", "0", "--evidence", str(tmp_path / "e.evid")]
    assert main(words) == 2  # the only variable that is asked for is evidence
    (tmp_path / "three.uai").write_text(
        "BAYES\n3\n2 2 2\n3\n1 0\n2 0 1\n1 2\n2\n0.5 0.5\n4\n1.0 0.0 0.0 1.0\n2\n0.5 0.5\n"
    )
    words = ["mmap", str(tmp_path / "three.uai"), "--map", "2", "--evidence", str(tmp_path / "e.evid")]
    assert main(words) == 3
    assert "x0 = 0, x1 = 1 cannot be together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.uai", "--map", "0"], "No such file"),
        (["heating.uai", "--map", "99"], "has 99: variables are 0..39"),
        (["heating.bif.gz", "--map", "nobody"], "which is no variable of the network"),
        (["heating.bif.gz", "--names", "names.json", "--map", "soot"], "has names of its own"),
        (["heating.uai", "--map", "faults.map", "--evidence", "faults.map"], "faults.map"),
        (["names.json", "--map", "0"], "line 1"),
        (["heating.uai", "--names", "heating.uai", "--map", "0"], "is no JSON"),
        (["heating.uai", "--map", ","], "map_variables are none"),
    ],
)
def test_files_and_words_that_do_not_fit(files, words, message, capsys):
    assert run(files, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("ethogram: ")
    assert message in said


def test_methods_of_the_command_are_those_there_are():
    assert set(METHODS) == set(solve_mmap.METHODS)


def test_evidence_beyond_the_factors_of_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1.0 5.0 3.0 9.0\n")
    (tmp_path / "e.evid").write_text("1 2 0\n")
    words = ["mmap", str(tmp_path / "m.uai"), "--map", "0"]
    assert main([*words, "--evidence", str(tmp_path / "e.evid")]) == 2
    assert "--evidence has 2: variables of" in capsys.readouterr().err
    assert main(["mmap", str(tmp_path / "m.uai"), "--map", "2"]) == 2


def test_files_that_are_cut_short_or_no_text(tmp_path, capsys):
    packed = gzip.compress(b"BAYES 1 2 1 1 0 2 0.5 0.5")
    for name, content, message in (
        ("a.uai.gz", packed[:-6], "cannot be unpacked"),
        ("b.uai.gz", b"no gzip", "cannot be unpacked"),
        ("c.uai", b"\xff\xfe\x00", "is no text in UTF-8"),
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
        assert "names.json has" in capsys.readouterr().err
