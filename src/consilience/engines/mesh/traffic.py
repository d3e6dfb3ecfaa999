"""What a device sends in one run of a compiled program, read from the program's own text.

Every collective operation is counted, as often as the loops around it turn where the compiler knows that number (the
loop over the agents of a device); other loops (over blocks and steps) are counted once. What a device sends in an
operation among `g` devices, by algorithms that share the work evenly:

    collective-permute   what it holds
    all-gather           (g − 1)/g of the result
    reduce-scatter       (g − 1) times the result
    all-reduce           2 (g − 1)/g of the result
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(r"= (.*?) (collective-permute|all-gather|reduce-scatter|all-reduce)(-start)?\(.*?$")
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+))\[([\d,]*)\]")
_GROUP = re.compile(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\])")
_CALLED = re.compile(r"(?:body|to_apply|calls)=%?([\w.\-]+)")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Traffic(NamedTuple):
    """What a device sends, by kind of operation."""

    bytes: Counter[str]
    messages: Counter[str]
    """How many messages go out one after the other."""


def traffic_of(program: str) -> Traffic:
    """What a device sends in a run of a compiled program.

    >>> text = '''ENTRY %main (a: f32[2,3]) -> f32[2,3] {
    ...   %b = f32[2,3]{1,0} collective-permute(%a), channel_id=1
    ...   %c = f32[4,3]{1,0} all-gather(%b), replica_groups={{0,1},{2,3}}
    ... }'''
    >>> dict(traffic_of(text).bytes)
    {'collective-permute': 24, 'all-gather': 24}
    """
    computations, first = _computations(program)
    total = Traffic(Counter(), Counter())

    def add(name: str, times: int) -> None:
        for line in computations.get(name, ()):
            found = _COLLECTIVE.search(line)
            if found:
                kind, size, devices = found.group(2), _bytes(found), _devices(line)
                shares = {
                    "collective-permute": (1.0, 1),
                    "all-gather": ((devices - 1) / devices, math.ceil(math.log2(devices))),
                    "reduce-scatter": (devices - 1, math.ceil(math.log2(devices))),
                    "all-reduce": (2 * (devices - 1) / devices, 2 * math.ceil(math.log2(devices))),
                }
                share, messages = shares[kind]
                total.bytes[kind] += round(times * share * size)
                total.messages[kind] += times * messages
                continue
            turns = _TURNS.search(line)
            for called in _CALLED.findall(line):
                add(called, times * (int(turns.group(1)) if turns else 1))

    add(first, 1)
    return total


def _computations(program: str) -> tuple[dict[str, list[str]], str]:
    """The lines of every computation, and the name of the one that is run."""
    found: dict[str, list[str]] = {}
    name = first = ""
    for line in program.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            name = head.group(2)
            found[name] = []
            first = name if head.group(1) else first
        elif name:
            found[name].append(line)
    return found, first


def _bytes(found: re.Match[str]) -> int:
    """The size of an operation's result; one that only starts lists its argument before it."""
    sizes = [
        int(bits or 8) // 8 * math.prod(int(length) for length in shape.split(",") if length)
        for bits, shape in _ARRAY.findall(found.group(1))
    ]
    return sizes[1] if found.group(3) and len(sizes) > 1 else sum(sizes)


def _devices(line: str) -> int:
    """How many devices take part in one operation."""
    found = _GROUP.search(line)
    if found is None:
        return 1
    return len(found.group(1).split(",")) if found.group(1) else int(found.group(2))
