"""`consilience`: the commands, and how errors reach the user: one line, never a traceback for his own mistake."""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any

import typer

from consilience.cli import answers, codebook, commands, data, network, page, planning
from consilience.deployment.supervision import is_child
from consilience.errors import ConsilienceError, InputError, Interrupted
from consilience.version import __version__

if "JAX_COMPILATION_CACHE_DIR" in os.environ and not is_child():
    # Before JAX is loaded: on some processors XLA prints kilobytes for every program that it takes from such a cache.
    # What matters comes as an exception. A process of several keeps its words: its parent reads them.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_UsageError: Any = typer.BadParameter.__base__  # what the parser raises for any wrong option

_TRY = """Three to try, a minute or less each:

[bold]consilience run gmm --agents 5 --sampler nuts[/]   five agents sample the paper's mixture

[bold]consilience check gmm[/]   is its plan stable, and inside the theorems?

[bold]consilience experiments[/]   what else `run` knows by name; your own: run MODULE:ATTRIBUTE"""

app = typer.Typer(
    name="consilience",
    help="Bayesian learning without a centre: agents that keep their data sample one posterior.",
    epilog=_TRY,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SAMPLE, _DEPLOY, _UNDERSTAND, _DATA = "Sample", "Deploy", "Understand", "Data"

app.command("run", rich_help_panel=_SAMPLE)(commands.run)
app.command("resume", rich_help_panel=_SAMPLE)(commands.resume)
app.command("reproduce", rich_help_panel=_SAMPLE)(commands.reproduce)
app.command("experiments", rich_help_panel=_SAMPLE)(commands.experiments)
app.add_typer(network.app, name="network", rich_help_panel=_DEPLOY)
app.command("node", rich_help_panel=_DEPLOY)(network.node)
app.add_typer(planning.mesh, name="mesh", rich_help_panel=_DEPLOY)
app.command("watch", rich_help_panel=_UNDERSTAND)(page.watch)
app.command("check", rich_help_panel=_UNDERSTAND)(planning.check)
app.command("suggest", rich_help_panel=_UNDERSTAND)(planning.suggest)
app.command("theory", rich_help_panel=_UNDERSTAND)(planning.theory)
app.command("report", rich_help_panel=_UNDERSTAND)(commands.report)
app.command("predict", rich_help_panel=_UNDERSTAND)(answers.predict)
app.command("compare", rich_help_panel=_UNDERSTAND)(answers.compare)
app.add_typer(data.app, name="data", rich_help_panel=_DATA)
app.add_typer(codebook.app, name="codebook", rich_help_panel=_DATA)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"consilience {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program as a whole."""


def main() -> None:
    """Run the command line and exit: 0 done, 2 the user's mistake, 130 interrupted, 1 anything else."""
    gc.set_threshold(50_000, 20)  # programs and figures are many objects that stay: to search them costs a tenth
    sys.path.insert(0, os.getcwd())  # so that module:attribute finds the user's own modules
    try:
        code = app(prog_name="consilience", standalone_mode=False)
    except _UsageError as error:
        _fail(_usage(error), 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except Interrupted as error:
        _fail(str(error), 130)
    except InputError as error:
        _fail(str(error), 2)
    except ConsilienceError as error:
        _fail(str(error), 1)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Any) -> str:
    """What is wrong with how a command was called, and whose help says more; nothing if that was just shown."""
    words, context = getattr(error, "format_message", error.__str__)(), getattr(error, "ctx", None)
    asked = "consilience" if context is None else context.command_path
    return f"{words} ({asked} --help lists commands and options)" if words else ""


def _fail(message: str, code: int) -> None:
    if message:
        print(f"Error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
