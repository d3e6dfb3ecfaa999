"""Six sites, each with its own sensor readings: one linear model, nobody's readings leave their site.

The sites hold between 10 and 70 readings. `problem` is what `examples/gaussian.toml` names; because every local
posterior is Gaussian, the right answer is known (`cs.theory.GaussianNetwork.of(problem, graph).posterior`).
"""

import numpy as np

import consilience as cs

WEIGHTS = np.array([1.5, -0.8, 0.3])  # two readings and an intercept
SITE_SIZES = (10, 15, 20, 30, 45, 70)


def readings(site: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Features `(size, 3)` and targets `(size,)` of one site; each site works in another range."""
    rng = np.random.default_rng([2020, site])
    features = np.column_stack([rng.normal(0.2 * site - 0.5, 1.0, (size, 2)), np.ones(size)])
    return features, features @ WEIGHTS + rng.normal(size=size)


problem = cs.models.linear_regression(
    [readings(site, size) for site, size in enumerate(SITE_SIZES)], noise_variance=1.0, prior_variance=10.0
)
