"""The warm-up of corrected samplers by gossip: coordinates, step size and exchanges without a hand-set number.

What it needs of the network is small: sums over the agents (`network.py`), and windows of the sampler's own steps,
which an engine makes. What happens between them is plain arithmetic, the same at every agent.

    start     damped Newton on sums of values, gradients and Hessians (`newton.py`)
    window    some steps of all chains; their moments (`windows.py`)
    between   new coordinates, curvature in them, and from it step size and exchanges (`curvature.py`, `stages.py`)
"""
