"""The first screen: commands in groups, and three to try that exist."""

import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import consilience as cs
from consilience.cli.main import app, main
from consilience.errors import ConditionError, PlanError
from consilience.experiments import EXPERIMENTS, import_problem
from consilience.sampling.targets import plans_for
from consilience.sampling.wishes import Wishes
from consilience.theory import require_dula


def test_commands_stand_in_groups_and_three_are_there_to_try():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
    assert re.findall(r"^╭─ (\w+) ─", shown, re.MULTILINE) == ["Options", "Sample", "Deploy", "Understand", "Data"]
    tried = re.findall(r"^ *consilience (\w+) ?(\w*)", shown.partition("to try")[2], re.MULTILINE)
    assert len(tried) == 3
    commands = typer.main.get_command(app).commands
    assert {command for command, _ in tried} <= set(commands)
    assert {target for _, target in tried if target and target != "what"} <= set(EXPERIMENTS)


@pytest.mark.parametrize(
    ("called", "shown", "told"),
    [
        ([], "Three to try", ""),
        (["network"], "Run all nodes of a network", ""),
        (["rum"], "", "Error: No such command 'rum'. Did you mean 'run', 'resume'? (consilience --help lists"),
        (["watch"], "", "Error: Missing argument 'path'. (consilience watch --help lists commands and options)\n"),
    ],
)
def test_without_a_command_the_help_is_enough_and_mistakes_name_their_own_help(
    called, shown, told, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["consilience", *called])
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert shown in said.out
    assert said.err.startswith(told)
    assert bool(said.err) == bool(told)


def test_help_and_the_reference_agree_where_a_node_s_log_goes():
    shown = CliRunner().invoke(app, ["node", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    reference = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
    assert "Log a JSON object a line on standard error; at the end the summary on standard output." in shown
    said = " ".join(reference.partition("## consilience node")[2].partition("## ")[0].split())
    assert (
        "With `--json` the log is one JSON object a line, still on standard error, and standard output gets" in said
    )


@pytest.mark.parametrize(
    ("reference", "words"),
    [("consilience.models:logistic_regresion", "did you mean 'logistic_regression'"), ("gmn", "did you mean 'gmm'")],
)
def test_a_name_that_is_nearly_right_gets_a_suggestion(reference, words):
    with pytest.raises(PlanError, match=words):
        import_problem(reference, 3)


@pytest.mark.parametrize("kind", ["hmc", "nuts", "kinetic", "langevin"])
def test_the_theory_declines_other_samplers_and_says_what_to_do(kind, tmp_path):
    asked = ["theory", "gmm", "--agents", "5", "--sampler", kind, "--out", str(tmp_path / "theory")]
    declined = CliRunner().invoke(app, asked).exception
    assert isinstance(declined, ConditionError)
    assert f"the theorems are about D-ULA, and say nothing about {kind}" in str(declined)
    assert "take --sampler dula" in str(declined)
    assert not (tmp_path / "theory").exists()


def test_the_theory_declines_momentum_with_steps_by_hand():
    with pytest.raises(ConditionError, match="say nothing about sghmc: `consilience check` says whether the plan is"):
        require_dula(cs.sghmc(1e-3, 0.2, 1.0))


def test_no_two_experiments_have_one_title():
    assert len({experiment.title for experiment in EXPERIMENTS.values()}) == len(EXPERIMENTS)


def test_auto_without_steps_is_told_to_give_steps_and_not_auto():
    with pytest.raises(PlanError) as found:
        plans_for("tests.deployment.test_merging:sensors", Wishes(num_agents=3, auto=True))
    assert "with --steps" in str(found.value)
    assert "or --auto" not in str(found.value)
