"""Draw how a warm-up found its numbers, from a finished run of a sampler that has one.

consilience run examples.silos:problem --sampler kinetic --out runs/silos
python examples/warm_up.py runs/silos warm-up.png

It reads the run's directory alone; the same figure stands in the run's report.
"""

import sys

import consilience as cs
from consilience.reports.warmup_report import windows

if __name__ == "__main__":
    windows(cs.Run(sys.argv[1]).summary["adaptation"]).savefig(sys.argv[2], dpi=90)
