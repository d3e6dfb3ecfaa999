"""Posteriors with known moments, from posteriordb, as problems of several agents: the yardstick's ruler.

    posterior = posteriors.load("eight_schools-eight_schools_noncentered")
    run = cs.sample(posterior.problem(split="natural"), cs.graphs.ring(posterior.num_agents))
    posterior.measured(run.agents[0], agent=0).mean((0, 1)) - posterior.reference.at(posterior.places(agent=0)).mean

Models are on the parameters that posteriordb's models have, and on data in their own units, however badly scaled.
"""

from consilience.posteriors.catalogue import available, load, names
from consilience.posteriors.posterior import SPLITS, Posterior, Split
from consilience.posteriors.reference import Reference

__all__ = ["SPLITS", "Posterior", "Reference", "Split", "available", "load", "names"]
