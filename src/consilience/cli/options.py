"""Options that several commands share, declared once.

A command that takes a plan's options is decorated with `takes_plan` and gets them together as `Wishes`. The options
of samplers come from the samplers themselves.
"""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.samplers import SAMPLERS, Option

if TYPE_CHECKING:
    from consilience.sampling.targets import Wishes

Target = Annotated[
    str, typer.Argument(help="An experiment (see `experiments`), PLAN.toml, STUDY.toml, or module:attribute.")
]
Data = Annotated[
    list[Path] | None,
    typer.Option("--data", help="Of a study: a site's CSV or Parquet file, once for each site, in order."),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results on standard output.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Directory for the run (by default runs/NAME-TIME).")]
CheckpointSeconds = Annotated[float, typer.Option("--checkpoint-seconds", min=0.0, help="How often to checkpoint.")]

_OF_PLANS: dict[str, Any] = {
    "num_agents": Annotated[int | None, typer.Option("--agents", "-n", min=1, help="Number of agents.")],
    "graph": Annotated[
        str | None,
        typer.Option(
            "--graph",
            help="ring, path, star, complete, grid, torus, barbell, erdos-renyi, watts-strogatz, random-geometric; "
            "of an experiment several, to compare its results: ring,star.",
        ),
    ],
    "num_steps": Annotated[int | None, typer.Option("--steps", min=1, help="Number of steps (dula, sghmc).")],
    "num_draws": Annotated[
        int | None,
        typer.Option("--draws", min=4, help="Draws of each chain; without it, until converged (not dula, sghmc)."),
    ],
    "num_warmup": Annotated[
        int | None,
        typer.Option("--warmup", min=20, help="Moves of the warm-up (nuts, hmc), or its most steps."),
    ],
    "max_draws": Annotated[
        int | None, typer.Option("--max-draws", min=100, help="The most draws, if it stops when converged.")
    ],
    "burn_in": Annotated[int | None, typer.Option("--burn-in", min=0, help="First steps that are not stored.")],
    "store_every": Annotated[
        int | None, typer.Option("--store-every", min=1, help="Store a draw every so many steps.")
    ],
    "num_chains": Annotated[
        int | None,
        typer.Option("--chains", "--runs", min=1, help="Independent copies of the network: repetitions of a series."),
    ],
    "seed": Annotated[int | None, typer.Option("--seed", min=0, help="Decides every random number.")],
    "batch_size": Annotated[int | None, typer.Option("--batch-size", min=1, help="Rows in a minibatch.")],
    "dtype": Annotated[str | None, typer.Option("--dtype", help="float32 or float64.")],
    "sampler": Annotated[str | None, typer.Option("--sampler", help=f"{', '.join(SAMPLERS)}.")],
    "allow": Annotated[
        list[str] | None,
        typer.Option("--allow", help="A module that PLAN.toml may name as its problem, which runs it; repeatable."),
    ],
    "data": Data,
    "summation": Annotated[
        str | None, typer.Option("--summation", help="How nodes make sums (nuts, hmc): tree or flood.")
    ],
    "unmasked": Annotated[
        bool, typer.Option("--unmasked", help="Do not hide each node's part of a sum from the others (nuts, hmc).")
    ],
    "auto": Annotated[bool, typer.Option("--auto", help="Choose the sampler's numbers by `suggest`.")],
}
_FLAGS = ("auto", "unmasked")
_ENTRIES = (
    "num_draws",
    "num_warmup",
    "max_draws",
    "summation",
    "burn_in",
    "store_every",
    "num_chains",
    "seed",
    "batch_size",
    "dtype",
)


def _of_samplers() -> dict[str, Any]:
    """An option for each number that some sampler takes."""
    found: dict[str, Option] = {}
    for sampler in SAMPLERS.values():
        for name, option in sampler.options.items():
            found.setdefault(name, option)
    return {
        name: Annotated[
            float | None, typer.Option(f"--{name.replace('_', '-')}", help=option.help, min=option.minimum)
        ]
        for name, option in found.items()
    }


def takes_plan(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of plans and samplers; its parameter `wishes` gets what the user said.

    Args:
        without: names of options that the command does not take.
    """
    of_samplers = _of_samplers()
    offered = {name: kind for name, kind in {**_OF_PLANS, **of_samplers}.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [
            parameter.replace(
                annotation=eval(parameter.annotation, command.__globals__)
            )  # its module has them as text
            for name, parameter in signature.parameters.items()
            if name != "wishes"
        ]
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name in _FLAGS else None, annotation=kind
            )
            for name, kind in offered.items()
        ]
        needed = [one for one in own if one.default is inspect.Parameter.empty]
        rest = [one for one in own if one.default is not inspect.Parameter.empty]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*needed, *added, *rest)]

        @functools.wraps(command)
        def call(**given: Any) -> None:
            said = {name: given.pop(name) for name in offered}
            command(**given, wishes=_wishes(said, of_samplers))

        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorate


def _wishes(said: dict[str, Any], of_samplers: dict[str, Any]) -> Wishes:
    from consilience.sampling.targets import Wishes

    given = {name: value for name, value in said.items() if value is not None}
    return Wishes(
        num_agents=given.get("num_agents"),
        graph=given.get("graph"),
        num_steps=given.get("num_steps"),
        sampler=given.get("sampler"),
        numbers={name: given[name] for name in of_samplers if name in given},
        auto=given.get("auto", False),
        entries={
            **{name: given[name] for name in _ENTRIES if name in given},
            **({"masked": False} if given.get("unmasked") else {}),
        },
        allow=given.get("allow", ()),
        data=tuple(given.get("data", ())),
    )


def default_path(target: str, prefix: str = "") -> Path:
    """`runs/NAME-TIME`."""
    name = Path(target).stem if target.endswith(".toml") else target.split(":")[0].split(".")[-1]
    return Path("runs") / f"{prefix}{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
