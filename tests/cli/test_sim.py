"""`kohort sim` as a person uses it."""

from __future__ import annotations

from kohort.cli.main import main


def test_one_seed_is_one_run(capsys):
    assert main(["sim", "--seed", "3", "--minutes", "2"]) == 0
    first = capsys.readouterr().out.split("all invariants held")[0]
    assert main(["sim", "--seed", "3", "--minutes", "2"]) == 0
    assert capsys.readouterr().out.split("all invariants held")[0] == first
    assert "rebalances" in first


def test_it_goes_on_until_there_were_enough_rebalances(capsys):
    assert main(["sim", "--seed", "9", "--minutes", "1", "--rebalances", "40"]) == 0
    assert "every invariant held" in capsys.readouterr().out


def test_a_fault_that_does_not_exist_names_those_that_do(capsys):
    assert main(["sim", "--faults", "earthquake"]) == 1
    assert "crash" in capsys.readouterr().err


def test_numbers_that_make_no_sense(capsys):
    assert main(["sim", "--members", "0"]) == 1
    assert "--members" in capsys.readouterr().err


def test_transactions_are_simulated_too(capsys):
    asked = ["sim", "--transactions", "--members", "2", "--minutes", "0.1"]
    assert main(asked) == 0
    assert "every invariant held" in capsys.readouterr().out
    assert main([*asked, "--consumers"]) == 1
    assert "--consumers" in capsys.readouterr().err


def test_groups_of_the_new_protocol_are_simulated_too(capsys):
    asked = ["sim", "--consumer-groups", "--members", "3", "--minutes", "0.5"]
    assert main([*asked, "--seeds", "2"]) == 0
    assert "every invariant held" in capsys.readouterr().out


def test_a_simulation_of_its_own_kind_stands_alone(capsys):
    assert main(["sim", "--shares", "--consumer-groups"]) == 1
    assert "stands alone" in capsys.readouterr().err
