import pytest

import consilience as cs
from consilience.errors import PlanError


def plan(**changes):
    entries = {"graph": cs.graphs.ring(5), "sampler": cs.dula(1e-3, 0.3), "num_steps": 1000}
    return cs.Plan(**{**entries, **changes})


@pytest.mark.parametrize(
    "made",
    [
        plan(),
        plan(
            problem="gmm",
            batch_size=7,
            batches="replacement",
            num_chains=3,
            dtype="float64",
            graph=cs.graphs.erdos_renyi(9, seed=4),
            sampler=cs.dula(cs.FromTo(start=0.1, end=0.01, num_steps=9, exponent=0.5), 0.2, temperature=0.0),
        ),
        plan(graph=cs.graphs.from_edges(3, [(0, 1), (1, 2)], [1.0, 0.5])),
    ],
)
def test_plans_survive_a_file(made, tmp_path):
    (tmp_path / "plan.toml").write_text(made.to_toml())
    read = cs.Plan.load(tmp_path / "plan.toml")
    assert read == made
    assert read.digest() == made.digest()


def test_every_entry_counts_for_the_identity_of_a_run():
    digests = {plan(**change).digest() for change in ({}, {"seed": 1}, {"num_steps": 999}, {"dtype": "float64"})}
    assert len(digests) == 4


def test_draws_are_counted_after_burn_in():
    thinned = plan(burn_in=100, store_every=7)
    assert thinned.num_stored == 900 // 7
    assert [thinned.draws_after(k) for k in (0, 100, 106, 107, 10**6)] == [0, 0, 0, 1, 128]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_step = 5", "unknown entry 'num_step', did you mean 'num_steps'"),
        (
            "[sampler]\nkind = 'dula'\nstep_sise = 1",
            "'sampler': .*unknown entry 'step_sise', did you mean 'step_size'",
        ),
        ("[sampler]\nkind = 'dula'\nstep_size = {kind = 'polynomial', scale = 1, exponant = 1}", "mean 'exponent'"),
        ("num_steps = 0", "'num_steps': .* got 0"),
        ("num_steps = 'many'", "'num_steps'"),
        ("seed = 5", "entry 'num_steps' is missing"),
        ("[graph]\nkind = 'hexagon'", "unknown graph kind 'hexagon'"),
        ("[graph]\nkind = 'edges'\nnum_agents = 3\nedges = [[0, 1]]", "2 parts"),
        ("num_steps = = 5", "not a TOML document"),
    ],
)
def test_mistakes_in_a_file_are_named(text, words, tmp_path):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(PlanError, match=words):
        cs.Plan.load(tmp_path / "plan.toml")


def test_plans_that_store_nothing_are_refused():
    with pytest.raises(PlanError, match="stores no draw"):
        plan(burn_in=1000)
    with pytest.raises(PlanError, match="there is no plan file"):
        cs.Plan.load("nowhere.toml")


@pytest.mark.parametrize(("entries", "message"), [
    ({"num_steps": 100}, "counts draws: take num_warmup and num_draws in place of 'num_steps'"),
    ({"burn_in": 100}, "in place of 'burn_in'"),
    ({"store_every": 2}, "in place of 'store_every'"),
    ({"batch_size": 4}, "needs the gradients of all rows.*kinetic"),
    ({"dtype": "float32"}, "needs double precision"),
    ({"num_draws": 10, "max_draws": 100}, "leave out max_draws, or num_draws"),
    ({"num_warmup": 5}, "num_warmup"),
])  # fmt: skip
def test_what_a_sampler_that_tunes_itself_does_not_take(entries, message):
    with pytest.raises(PlanError, match=message):
        cs.Plan(graph=cs.graphs.ring(3), sampler=cs.nuts(), **entries)


@pytest.mark.parametrize("name", ["num_warmup", "num_draws", "max_draws"])
def test_what_a_sampler_with_given_step_sizes_does_not_take(name):
    with pytest.raises(PlanError, match=f"'{name}' is for samplers that tune themselves"):
        cs.Plan(graph=cs.graphs.ring(3), sampler=cs.dula(0.01, 0.2), num_steps=10, **{name: 100})


def test_steps_follow_from_draws():
    graph = cs.graphs.ring(3)
    exactly = cs.Plan(graph=graph, sampler=cs.nuts(), num_warmup=50, num_draws=20)
    assert (exactly.num_steps, exactly.burn_in, exactly.num_stored, exactly.num_chains) == (70, 50, 20, 4)
    assert not exactly.stops_itself
    until = cs.Plan(graph=graph, sampler=cs.hmc())
    assert until.stops_itself
    assert (until.num_warmup, until.max_draws, until.num_steps) == (1000, 10_000, 11_000)
    assert until.replace(max_draws=500).num_steps == 1500
    assert until.replace(num_draws=7).num_stored == 7
    assert until.replace(num_draws=7).max_draws is None
    assert "num_steps" not in until.to_toml()
    assert cs.Plan.from_toml(until.to_toml()) == until
    steps = until.replace(sampler=cs.dula(0.01, 0.2), num_steps=90)
    assert (steps.num_chains, steps.dtype, steps.num_draws) == (1, "float32", None)
    assert until.digest() != exactly.digest()
