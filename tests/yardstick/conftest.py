"""Cells that take no time."""

import pytest

import consilience as cs
from consilience.errors import DivergedError
from consilience.yardstick import METHODS, table
from tests.yardstick.made_up import ROW


@pytest.fixture
def made(monkeypatch):
    """The cells that were made, by a sampler that takes no time and fails for D-ULA."""
    done = []

    def sampled(posterior, cell, request, where, show):
        if METHODS[cell.method].has_graph:
            cs.graphs.named(cell.graph, cell.num_agents)
        done.append(cell)
        if cell.method == "dula":
            raise DivergedError("agent 1 left all bounds")
        return ROW

    monkeypatch.setattr(table, "sampled", sampled)
    monkeypatch.setattr(table, "combined", sampled)
    return done
