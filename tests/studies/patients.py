"""A small study for tests: patients with age, stage and treatment, at several sites."""

import numpy as np

from consilience.studies import Codebook, Study

COLUMNS = {
    "age": {"kind": "number", "unit": "years", "low": 18, "high": 110, "centre": 60, "scale": 10},
    "stage": {"kind": "category", "levels": ["I", "II", "III"]},
    "treatment": {"kind": "category", "levels": ["usual", "new"]},
    "died": {"kind": "outcome", "one": "yes", "zero": "no"},
    "cost": {"kind": "number", "centre": 100, "scale": 20},
    "visits": {"kind": "number"},
    "trials": {"kind": "number"},
    "years": {"kind": "number"},
}


def book(**changes):
    """The codebook, with entries of some columns changed."""
    columns = {name: {**entries, **changes.get(name, {})} for name, entries in COLUMNS.items()}
    return Codebook(columns=columns)


def study(formula="died ~ age + stage + treatment", family="bernoulli", codebook=None, **entries):
    return Study(formula=formula, family=family, codebook=codebook or book(), **entries)


def rows(count, seed=0, stages=("I", "II", "III")):
    """Columns of some patients; outcomes of every family follow one linear predictor."""
    rng = np.random.default_rng(seed)
    age, stage = rng.normal(60, 10, count).round(1).clip(20, 100), rng.choice(stages, count)
    treatment = rng.choice(["usual", "new"], count)
    eta = 0.5 * (age - 60) / 10 + 0.8 * (stage == "III") - 0.6 * (treatment == "new") - 0.2
    trials, years = rng.integers(1, 8, count), rng.uniform(0.5, 2, count).round(3)
    chance = 1 / (1 + np.exp(-eta))
    return {
        "age": age, "stage": stage, "treatment": treatment,
        "died": np.where(rng.random(count) < chance, "yes", "no"),
        "cost": (100 + 20 * eta + 12 * rng.standard_t(5, count)).round(4),
        "visits": rng.poisson(years * np.exp(eta) * rng.gamma(2, 0.5, count)),
        "trials": trials, "recovered": rng.binomial(trials, chance), "years": years,
    }  # fmt: skip


def write(path, columns, separator=","):
    """Columns as a CSV file."""
    names = list(columns)
    lines = [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([separator.join(names), *lines]) + "\n")
    return path


def split(columns, parts):
    """The columns of several sites, in order."""
    places = np.array_split(np.arange(len(next(iter(columns.values())))), parts)
    return [{name: values[own] for name, values in columns.items()} for own in places]
