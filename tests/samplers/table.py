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
}
"""Samplers by gossip."""
TUNED = {
    "nuts": {"plain": lambda: cs.nuts(), "dense": lambda: cs.nuts(0.9, mass="dense", max_depth=8)},
    "hmc": {"plain": lambda: cs.hmc(), "careful": lambda: cs.hmc(0.95)},
}
"""Samplers in unison."""
MADE = {f"{name}, {how}": make for name, ways in CONSTRUCTORS.items() for how, make in ways.items()}
