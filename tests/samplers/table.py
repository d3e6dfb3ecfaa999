"""A constructor, or several, for every sampler in the registry; the contract's tests go through all of them."""

import consilience as cs

FALLING = cs.Polynomial(scale=0.05, offset=3, exponent=0.6)
CONSTRUCTORS = {
    "dula": {
        "constant": lambda: cs.dula(0.01, 0.2),
        "falling": lambda: cs.dula(FALLING, cs.Polynomial(scale=0.25, exponent=0.05)),
        "cold": lambda: cs.dula(0.01, 0.2, temperature=0.3),
        "settled": lambda: cs.dula(0.004, 0.2),
    },
    "sghmc": {
        "constant": lambda: cs.sghmc(0.05, 0.2, friction=1.5),
        "falling": lambda: cs.sghmc(
            cs.Polynomial(scale=0.1, offset=3, exponent=0.3), cs.Polynomial(scale=0.25, exponent=0.05), friction=2.0
        ),
        "cold": lambda: cs.sghmc(0.05, 0.2, friction=1.5, temperature=0.3),
        "settled": lambda: cs.sghmc(0.05, 0.2, friction=2.0),
    },
    "kinetic": {
        "one exchange": lambda: cs.kinetic(0.2, 1, whitening="none"),
        "three exchanges": lambda: cs.kinetic(0.3, 3, friction=1.5, whitening="none"),
        "common noise": lambda: cs.kinetic(0.2, 2, noise="common", whitening="none"),
        "cold": lambda: cs.kinetic(0.2, 2, temperature=0.3, whitening="none"),
    },
    "langevin": {
        "one exchange": lambda: cs.langevin(0.02, 1, whitening="none"),
        "three exchanges": lambda: cs.langevin(0.02, 3, whitening="none"),
        "common noise": lambda: cs.langevin(0.02, 2, noise="common", whitening="none"),
        "cold": lambda: cs.langevin(0.02, 2, temperature=0.3, whitening="none"),
    },
}
"""Samplers by gossip, with numbers for the model's own coordinates."""
TUNED = {
    "nuts": {"plain": lambda: cs.nuts(), "dense": lambda: cs.nuts(0.9, mass="dense", max_depth=8)},
    "hmc": {"plain": lambda: cs.hmc(), "careful": lambda: cs.hmc(0.95)},
}
"""Samplers in unison."""
MADE = {f"{name}, {how}": make for name, ways in CONSTRUCTORS.items() for how, make in ways.items()}
WITHOUT_NUMBERS = {"kinetic": lambda: cs.kinetic(), "langevin": lambda: cs.langevin()}
"""Samplers by gossip that find their numbers in a warm-up."""
