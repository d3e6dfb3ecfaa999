"""One contestant of the comparisons of `mesh`: a process with its own devices and cores, that runs when told to.

`python -m benchmarks.mesh_worker ENGINE DEVICES CORES`. For each line on standard input it makes the steps once and
prints the seconds of one step.
"""

from __future__ import annotations

import os
import sys

NUM_AGENTS = 1000
NUM_STEPS = 128


def main(kind: str, devices: int, cores: int) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from consilience.engines.mesh.devices import DeviceSettings, prepare_devices

    prepare_devices(devices)
    from benchmarks.setting import all_steps
    from benchmarks.timing import seconds_of
    from consilience.engines.base import Stepper
    from consilience.engines.mesh.engine import MeshSimulation
    from consilience.engines.simulate import Simulation
    from consilience.experiments import EXPERIMENTS

    plan = EXPERIMENTS["a9a"].plan(NUM_AGENTS).replace(num_steps=NUM_STEPS, num_chains=1, store_every=NUM_STEPS)
    problem = EXPERIMENTS["a9a"].problem_of(plan)
    if kind == "mesh":
        engine: Stepper = MeshSimulation(problem, plan, DeviceSettings(devices=devices))
    else:
        engine = Simulation(problem, plan)
    engine.compile()

    all_steps(engine, plan)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(seconds_of(lambda: all_steps(engine, plan)) / plan.num_steps, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
