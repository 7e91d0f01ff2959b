"""The command `ethogram plan`: episodes, their record, and what is refused."""

import json

import pytest

from ethogram.commands import main

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")

ARGUMENTS = ("--seconds", "5", "--depth", "4", "--mode", "original")


DOMAIN = """
domain lamps {
  requirements = { reward-deterministic };
  types { lamp : {@x, @y}; };
  pvariables {
    on(lamp) : { state-fluent, bool, default = false };
    push(lamp) : { action-fluent, bool, default = false };
  };
  cpfs { on'(?l) = if (push(?l)) then Bernoulli(0.8) else KronDelta(on(?l)); };
  reward = sum_{?l: lamp}[on(?l)];
}
"""
INSTANCE = """
non-fluents nf { domain = lamps; }
instance night { domain = lamps; non-fluents = nf; max-nondef-actions = 1; horizon = 6; discount = 1.0; }
"""


@pytest.mark.slow
def test_episodes_and_an_unfinished_record(tmp_path, capsys):
    record, domain, instance = (tmp_path / name for name in ("record.json", "domain.rddl", "instance.rddl"))
    domain.write_text(DOMAIN)
    instance.write_text(INSTANCE)
    arguments = ["plan", str(domain), str(instance), *ARGUMENTS, "--json", str(record)]
    assert main([*arguments, "--episodes", "1"]) == 0
    assert "of 1 episodes" in capsys.readouterr().out
    first = record.read_text()
    assert main([*arguments, "--episodes", "2"]) == 0
    assert "standard error" in capsys.readouterr().out
    both = record.read_text()
    assert both.startswith(first)
    settings, *episodes = map(json.loads, both.splitlines())
    assert settings["settings"]["seed"] == 0 and [len(each["rewards"]) for each in episodes] == [6, 6]
    assert main([*arguments, "--episodes", "2", "--seed", "1"]) == 2
    assert "seed 0 in place of 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("SysAdmin", "1"), "did you mean SysAdmin_MDP_ippc2011?"),
        (("sysadmn_mdp", "1"), "did you mean SysAdmin_MDP_ippc2011"),
        (("nofile", "1"), "nor a domain nofile: `ethogram plan --list` prints the names of domains\n"),
        (("SysAdmin_MDP_ippc2011", "11"), "has no instance 11"),
        (("SysAdmin_POMDP_ippc2011", "1"), "hidden state"),
        (("nothing.rddl", "1"), "there is no file nothing.rddl"),
        (
            ("SysAdmin_MDP_ippc2011", "1", "--json", "no/folder.json"),
            "--json is 'no/folder.json', but there is",
        ),
    ],
)
def test_what_is_refused_has_exit_code_2(arguments, message, capsys):
    try:
        code = main(["plan", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2 and message in capsys.readouterr().err


def test_names_of_domains_are_listed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--list"])
    names = capsys.readouterr().out.split()
    assert not stop.value.code and "SysAdmin_MDP_ippc2011" in names
    refused = ("SysAdmin_POMDP_ippc2011", "Elevators", "HVAC", "Pong_arcade")  # hidden, of integers, of reals
    assert names == sorted(names) and not set(refused) & set(names)
