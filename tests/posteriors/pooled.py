"""The density that the agents of a problem have together, and places where to look at it."""

import jax
import jax.numpy as jnp
import numpy as np

from consilience.kernel.parameters import Parameters, potential


def pooled_parameters(posterior):
    """The layout of all parameters together, those of all groups among them."""
    return Parameters.of(posterior.problem("random", 1), jnp.float64)


def site_values(posterior):
    """What the reference says of the model's sites, and zeros for those that it does not know."""
    reference, found, start = posterior.drawn_reference, {}, 0
    for one in posterior.content["parameters"]:
        size = int(np.prod(one["dims"], dtype=int))
        found[one["name"]] = jnp.asarray(reference.mean[start : start + size].reshape(one["dims"]))
        start += size
    groups = posterior.recipe.groups
    if groups is not None:
        found = {name: value for name, value in found.items() if name not in groups.effects}
        found["z"] = jnp.zeros(int(posterior.data[groups.number]))
    return found


def summed_energy(problem, pooled):
    """`values -> Σ_i U_i` over the agents of a problem; `pooled` is the layout of all parameters together."""
    parameters = Parameters.of(problem, jnp.float64) if problem.private else pooled

    def own(values, rows, weights):
        return potential(problem, parameters, parameters.ravel(values), rows, weights, 1.0)

    return lambda values: _over_agents(problem, own, values)


def summed_density(problem, values):
    """The log-density of constrained values, `Σ_i log p(X_i|w, z_i) + log p(z_i|w) + (1/n) log p(w)`."""

    def own(values, rows, weights):
        private = problem.log_private(values) if problem.private else 0.0
        likelihood = (problem.log_likelihood(values, rows) * weights).sum()
        return likelihood + private + problem.prior_share * problem.log_prior(values)

    return _over_agents(problem, own, values)


def _over_agents(problem, own, values):
    """The sum of what each agent says of its own values and rows; rows of filling weigh nothing."""
    agents, sizes = problem.num_agents, problem.shard_sizes

    def of_each(name, value):
        if name in problem.private:
            return value.reshape(agents, -1)
        return jnp.broadcast_to(value, (agents, *jnp.shape(value)))

    each = {name: of_each(name, value) for name, value in values.items()}
    weights = np.arange(sizes.max()) < sizes[:, None]
    return jax.vmap(own)(each, problem.stacked_shards(jnp.float64), weights).sum()
