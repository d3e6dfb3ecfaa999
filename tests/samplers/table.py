"""A constructor, or several, for every sampler in the registry; the contract's tests go through all of them."""

import consilience as cs

FALLING = cs.Polynomial(scale=0.05, offset=3, exponent=0.6)
CONSTRUCTORS = {
    "dula": {
        "constant": lambda: cs.dula(0.01, 0.2),
        "falling": lambda: cs.dula(FALLING, cs.Polynomial(scale=0.25, exponent=0.05)),
        "cold": lambda: cs.dula(0.01, 0.2, temperature=0.3),
    },
}
MADE = {f"{name}, {how}": make for name, ways in CONSTRUCTORS.items() for how, make in ways.items()}
