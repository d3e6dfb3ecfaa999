"""What the terminal shows of comparisons."""

from __future__ import annotations

from typing import Any

from consilience.cli.display import print_table, wide_console
from consilience.reports import tables
from consilience.sampling.comparing import Comparison

_COLUMNS = {
    "": "model", "elpd": "elpd", "se": "se", "difference": "difference", "se of difference": "se_difference",
    "p_loo": "p_loo", "rows": "rows", "bad k": "bad",
}  # fmt: skip


def print_comparison(found: Comparison, by_site: bool) -> None:
    """Models, the best first; of each site if that is wanted, then of all together; and what to make of it."""
    console = wide_console()
    if by_site:
        whole = found.table_by_site()
        for site in found.sites:
            console.print(f"site {site}", style="bold")
            _print(whole.loc[site])
            console.print()
        console.print("all sites", style="bold")
    table = found.table()
    _print(table)
    for line in _words(table):
        console.print(f"\n{line}", highlight=False)


def _print(table: Any) -> None:
    records = table.reset_index().to_dict("records")
    shown = [
        {**one, **{name: f"{one[name]:,.1f}" for name in _DECIMALS if one[name] == one[name]}} for one in records
    ]
    print_table(tables.rows(shown, _COLUMNS))


_DECIMALS = ("elpd", "se", "difference", "se_difference", "p_loo")


def _words(table: Any) -> list[str]:
    """Whether the best is better than the next, and what is not to be trusted."""
    lines = []
    if len(table) > 1:
        best, other = table.index[0], table.index[1]
        ahead, error = -float(table["difference"].iloc[1]), float(table["se_difference"].iloc[1])
        if error != error:
            lines.append(
                f"{best} predicts better than {other} by {ahead:,.1f}. How sure that is cannot be said from sums of "
                "each model alone: compare at every site with --out, then give the files to `consilience compare`."
            )
        elif ahead < 2 * error:
            lines.append(
                f"{best} and {other} cannot be told apart: {ahead:,.1f} with a standard error of {error:,.1f}."
            )
        else:
            lines.append(f"{best} predicts better than {other}: {ahead:,.1f}, standard error {error:,.1f}.")
    bad = int(table["bad"].max())
    if bad:
        lines.append(
            f"Note: of up to {bad:,} rows the estimate is not to be trusted (Pareto k too large): single rows change "
            "the posterior; a model with heavier tails may fit them."
        )
    return lines
