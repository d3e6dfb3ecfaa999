"""Models compared by sums over sites: which of them predicts rows best that it has not seen, and how sure that is.

With `elpd_ai` of row `i` under model `a`, a site knows its number of rows `N` and, for all models at once,

    S_a = Σ_i elpd_ai        P_ab = Σ_i elpd_ai elpd_bi

and only these travel; they add up over sites. From the totals

    elpd_a = S_a                          se_a² = P_aa − S_a²/N
    elpd_a − elpd_b = S_a − S_b           se²   = P_aa − 2 P_ab + P_bb − (S_a − S_b)²/N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import InputError


@dataclass(frozen=True)
class Sums:
    """What some rows say about models.

    Attributes:
        rows: how many there are.
        elpd: `(models,)` sums of the rows' scores.
        products: `(models, models)` sums of their products; not a number for two models whose rows were not compared.
        lppd: `(models,)` sums of the same without leaving a row out.
        bad: `(models,)` how many rows' estimates are not to be trusted.

    >>> one = Sums(2, np.array([-3.0]), np.array([[5.0]]), np.array([-2.5]), np.array([0]))
    >>> both = one + one
    >>> both.rows, both.elpd.tolist(), both.error(0)
    (4, [-6.0], 1.0)
    """

    rows: int
    elpd: np.ndarray
    products: np.ndarray
    lppd: np.ndarray
    bad: np.ndarray

    @classmethod
    def of_rows(cls, elpd: Sequence[np.ndarray], lppd: Sequence[float], bad: Sequence[int]) -> Sums:
        """From the scores of the same rows under each model."""
        scores = np.stack(elpd)
        return cls(scores.shape[1], scores.sum(1), scores @ scores.T, np.asarray(lppd, float), np.asarray(bad))

    @classmethod
    def beside(cls, models: Sequence[Sums]) -> Sums:
        """Of single models each, whose rows were not compared with those of the others."""
        if len({one.rows for one in models}) > 1:
            counts = " and ".join(f"{one.rows:,}" for one in models)
            raise InputError(f"the models were fitted to {counts} rows: only models of the same rows can be compared")
        products = np.full((len(models), len(models)), np.nan)
        np.fill_diagonal(products, [one.products[0, 0] for one in models])
        elpd, lppd, bad = (np.concatenate([getattr(one, name) for one in models]) for name in ("elpd", "lppd", "bad"))
        return cls(models[0].rows, elpd, products, lppd, bad)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.rows + other.rows, self.elpd + other.elpd, self.products + other.products, self.lppd + other.lppd,
            self.bad + other.bad,
        )  # fmt: skip

    @property
    def parameters(self) -> np.ndarray:
        """`(models,)` the effective numbers of parameters, `p_loo`."""
        return self.lppd - self.elpd

    def error(self, model: int) -> float:
        """The standard error of a model's score."""
        return self._spread(self.products[model, model], self.elpd[model])

    def error_of_difference(self, model: int, other: int) -> float:
        """The standard error of the difference of two scores; not a number if their rows were not compared."""
        if model == other:
            return 0.0
        square = self.products[model, model] - 2 * self.products[model, other] + self.products[other, other]
        return self._spread(square, self.elpd[model] - self.elpd[other])

    def _spread(self, square: float, total: float) -> float:
        return float(np.sqrt(np.maximum(square - total**2 / self.rows, 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """For a file; what is not a number is nothing there."""
        products = [[None if np.isnan(one) else float(one) for one in line] for line in self.products]
        return {
            "rows": self.rows, "elpd": self.elpd.tolist(), "products": products, "lppd": self.lppd.tolist(),
            "bad": self.bad.tolist(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Sums:
        """From a file."""
        try:
            products = np.array([[np.nan if one is None else one for one in line] for line in entries["products"]])
            return cls(
                int(entries["rows"]), np.array(entries["elpd"], float), products.astype(float),
                np.array(entries["lppd"], float), np.array(entries["bad"], int),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"these are no sums of a comparison ({error}): give files of `consilience compare`"
            ) from None
