"""Codebooks that the sites of a network fill in together, in memory on a clock that the tests turn."""

import threading

import numpy as np
import pytest

import consilience as cs
from consilience.deployment import codebooks
from consilience.deployment.networks import make_network, node_files, require_data, set_data
from consilience.engines.peers.membership import Membership
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.sum_wire import SumWire
from consilience.errors import NetworkError
from consilience.studies import Codebook, Study, fill_from_files, of_run
from tests.engines.peers.virtual import KilledError, VirtualClock

STUDY = Study(
    formula="died ~ age + stage",
    family="bernoulli",
    codebook={
        "columns": {
            "age": {"kind": "number", "unit": "years", "centre": "from sites", "scale": "from sites"},
            "stage": {"kind": "category", "levels": "from sites", "reference": "II"},
            "died": {"kind": "outcome", "one": "yes", "zero": "no"},
            "weight": {"kind": "number", "centre": "from sites"},  # not in the formula: nobody is asked for it
        }
    },
)
FILES = (
    "age,stage,died\n60.5,I,yes\n70.25,II,no\n",
    "age,stage,died\n51,II,no\n48,III,no\n80,II,yes\n",
    "age,stage,died\n66,IV,no\n",
    "age,stage,died\n59,I,no\n61,II,no\n",
)


class Sites:
    """A network whose nodes fill in their codebooks; each may be killed in an operation."""

    def __init__(self, place, graph, study=STUDY, **options):
        self.clock, self.network, self.kill = VirtualClock(), MemoryNetwork(), {}
        plan = cs.Plan(graph=graph, sampler=cs.nuts(), study=study.entries(), **options)
        self.nodes = [NodeSettings.load(path) for path in make_network(plan, place / "network", insecure=True)]
        self.plan, self.data, self.turns = plan, [], {}
        for agent in range(graph.num_agents):
            self.data.append(place / f"site-{agent}.csv")
            self.data[-1].write_text(FILES[agent])

    def start(self, agent, plan=None):
        settings = self.nodes[agent]
        join = self.network.connect(agent, settings.neighbours)

        def job():
            result = codebooks.plan_of_node(
                plan or self.plan, settings, self.data[agent], lambda handlers: Line(self, agent, join(handlers)),
                self.clock, threading.Event(),
            )  # fmt: skip
            self.sample(agent, result[1])
            return result

        self.turns[agent] = self.clock.start(f"agent {agent}", job)

    def sample(self, agent, found):
        """Answer as a node that samples by now."""
        members = Membership(agent, self.nodes[agent].neighbours, self.plan.num_agents)
        wire = SumWire(agent, "sampling", members, self.plan.model_dump(mode="json"), self.clock, 10_000)
        wire.found = found
        wire.open(self.network.connect(agent, self.nodes[agent].neighbours))

    def finish(self, agents=None):
        """Let agents end; their studies."""
        for agent in self.turns if agents is None else agents:
            self.clock.run_until(lambda agent=agent: self.turns[agent].ended, f"the end of agent {agent}")
            if self.turns[agent].error is not None:
                raise self.turns[agent].error
        return {agent: of_run(turn.result[0]).entries() for agent, turn in self.turns.items() if turn.ended}


class Line:
    """A node's end, where a test may kill it before it says its next word."""

    def __init__(self, sites, agent, transport):
        self._sites, self._agent, self._transport = sites, agent, transport
        self.ask, self.notify, self.close = transport.ask, transport.notify, transport.close

    def send(self, neighbour, content):
        left = self._sites.kill.get(self._agent)
        if left is not None and self._sites.clock.whose_turn() == f"agent {self._agent}":
            self._sites.kill[self._agent] = left - 1
            if left == 0:
                del self._sites.kill[self._agent]
                raise KilledError
        self._transport.send(neighbour, content)


def filled_here(sites):
    return fill_from_files(STUDY, sites.data)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (cs.graphs.path(4), {}),
        (cs.graphs.ring(4), {"summation": "flood", "masked": False}),
        (cs.graphs.path(2), {}),
    ],
    ids=["masked on a tree", "by flooding", "two sites"],
)
def test_all_sites_find_what_their_files_say_together(tmp_path, graph, options):
    sites = Sites(tmp_path, graph, **options)
    for agent in range(graph.num_agents):
        sites.start(agent)
    found = sites.finish()
    here, said = filled_here(sites)
    assert all(study == here.entries() for study in found.values())
    assert len({turn.result[0].digest() for turn in sites.turns.values()}) == 1
    pooled = np.concatenate([np.loadtxt(path, delimiter=",", skiprows=1, usecols=0, ndmin=1) for path in sites.data])
    age = here.codebook.columns["age"]
    assert age.centre == pytest.approx(pooled.mean(), abs=0.5)
    assert age.scale == pytest.approx(pooled.std(), rel=0.05)
    assert said[
        0
    ] == f"age: centre {age.centre:g} years, scale {age.scale:g} years, from {len(pooled)} values at " + (
        f"{graph.num_agents} sites"
    )
    assert here.codebook.columns["weight"].centre == "from sites"
    assert not list(tmp_path.glob("network/runs/*.key"))


def test_the_levels_are_those_of_all_sites_and_the_reference_stays(tmp_path):
    sites = Sites(tmp_path, cs.graphs.path(4))
    study, said = filled_here(sites)
    assert study.codebook.columns["stage"].levels == ("I", "II", "III", "IV")
    assert study.coefficients == ("Intercept", "age", "stage[I]", "stage[III]", "stage[IV]")
    assert said[1] == "stage: levels I, II (the reference), III, IV, from 4 sites"


@pytest.mark.parametrize("words", range(0, 9, 2))
def test_a_site_that_is_killed_and_started_again_changes_nothing(tmp_path, words):
    sites = Sites(tmp_path, cs.graphs.path(3))
    sites.kill[1] = words  # the tree's root, through whom everything goes
    for agent in range(3):
        sites.start(agent)
    sites.clock.run_until(lambda: sites.turns[1].ended, "the end of agent 1")
    if isinstance(sites.turns[1].error, KilledError):
        sites.start(1)
    assert all(study == filled_here(sites)[0].entries() for study in sites.finish().values())


def test_one_that_comes_late_asks_those_that_are_sampling(tmp_path):
    """The others have what they found, and answer with it from their connections as nodes."""
    sites = Sites(tmp_path, cs.graphs.path(3))
    for agent in range(3):
        sites.start(agent)
    sites.finish()
    kept = sites.nodes[0].run.with_name("agent-0.codebook.toml")
    assert kept.is_file()
    kept.unlink()
    sites.start(0)
    assert sites.finish([0])[0] == filled_here(sites)[0].entries()


def test_what_a_neighbour_says_is_not_taken_for_more_than_the_open_entries(tmp_path):
    wanted = STUDY.used_codebook
    sites = Sites(tmp_path, cs.graphs.path(2))
    found = {"run": "x", "said": ["age: …"], "codebook": filled_here(sites)[0].used_codebook.model_dump(mode="json")}
    assert codebooks._checked(found, wanted)["said"] == ["age: …"]
    swapped = Codebook(**found["codebook"]).model_dump(mode="json")
    swapped["columns"]["died"] |= {"one": "no", "zero": "yes"}
    with pytest.raises(NetworkError, match=r"differs in columns\.died\.one, columns\.died\.zero"):
        codebooks._checked({**found, "codebook": swapped}, wanted)
    with pytest.raises(NetworkError, match="cannot be used"):
        codebooks._checked({"run": "x"}, wanted)


def test_nodes_inside_a_run_are_told_where_their_files_are_now(tmp_path):
    sites = Sites(tmp_path, cs.graphs.path(3))
    network = tmp_path / "network"
    set_data(network, sites.data)
    assert [NodeSettings.load(path).data for path in node_files(network)] == sites.data
    require_data(network, tmp_path)
    sites.data[1].rename(tmp_path / "moved.csv")
    with pytest.raises(NetworkError, match=r"site-1\.csv, and no file is there now: .*( --data FILE){3}"):
        require_data(network, tmp_path)
    set_data(network, [sites.data[0], tmp_path / "moved.csv", sites.data[2]])
    require_data(network, tmp_path)
    with pytest.raises(NetworkError, match="3 nodes, but 1 data files"):
        set_data(network, sites.data[:1])


def test_sites_with_other_codebooks_say_which_entry_differs(tmp_path, caplog):
    sites = Sites(tmp_path, cs.graphs.path(2))
    entries = STUDY.entries()
    entries["codebook"]["columns"]["died"] = {"kind": "outcome", "one": "no", "zero": "yes"}
    sites.start(0)
    sites.start(1, sites.plan.replace(study=entries))
    with caplog.at_level("ERROR", "consilience.peers"):
        sites.clock.run_until(lambda: "another plan" in caplog.text, "a word about it")
    assert "it differs in study.codebook.columns.died.one, study.codebook.columns.died.zero" in caplog.text
    sites.clock.abandon()
