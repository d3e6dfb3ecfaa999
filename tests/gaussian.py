"""Linear regression problems, whose dynamics are known exactly."""

import numpy as np

import consilience as cs


def regression(sizes, num_features=2, seed=0, identical_rows=False, **variances):
    """A linear regression with shards of the given sizes, every agent's data about its own centre."""
    rng = np.random.default_rng(seed)
    shards = []
    for size in sizes:
        features = np.ones((size, num_features)) if identical_rows else rng.normal(size=(size, num_features))
        targets = features @ rng.normal(size=num_features) + rng.normal(size=size)
        shards.append((features.astype(np.float32), targets.astype(np.float32)))
    return cs.models.linear_regression(shards, **variances)
