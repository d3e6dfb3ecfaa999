"""Draw the picture of the README from a finished run of the mixture: the true posterior beside the agents'.

consilience run gmm --agents 5 --out runs/mixture
python examples/posteriors.py runs/mixture posteriors.png

It reads the run's directory alone, as any program of yours can.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

import consilience as cs
from consilience.experiments.gmm import comparison_draws, read_reference

SHOWN = ((-1.1, 2.2), (-2.7, 2.7))


def draw(run: cs.Run) -> Figure:
    truth = read_reference(run)
    x, y, density = (truth[name].to_numpy() for name in ("theta_1", "theta_2", "density"))
    ordered = np.sort(density.ravel())
    levels = [ordered[np.searchsorted(np.cumsum(ordered), mass * ordered.sum())] for mass in (0.05, 0.2, 0.5, 0.8)]
    agents = run.plan.num_agents
    figure = Figure(figsize=(1.9 * (agents + 1), 2.5), layout="constrained")
    axes = figure.subplots(1, agents + 1, sharex=True, sharey=True)
    for number, axis in enumerate(axes):
        if number == 0:
            axis.pcolormesh(x, y, density.T, cmap="magma", shading="auto", rasterized=True)
        else:
            counts, *edges = np.histogram2d(*comparison_draws(run, number - 1).T, bins=90, range=SHOWN)
            axis.pcolormesh(*edges, gaussian_filter(counts, 2.0).T, cmap="magma", rasterized=True)
            axis.contour(x, y, density.T, levels=levels, colors="white", linewidths=0.6, alpha=0.8)
        axis.set_title(f"Agent {number}" if number else "True posterior", weight="normal" if number else "bold")
        axis.set(xlim=SHOWN[0], ylim=SHOWN[1], xlabel="$θ_1$", facecolor="black")
    axes[0].set_ylabel("$θ_2$")
    return figure


if __name__ == "__main__":
    draw(cs.Run(sys.argv[1])).savefig(sys.argv[2], dpi=110)
