"""An experiment makes the shards of the agents that are asked for, and they are those of the whole problem."""

import numpy as np
import pytest

from consilience import experiments
from consilience.datasets import Labelled
from consilience.experiments import a9a, mnist


@pytest.fixture
def small_data(monkeypatch):
    rng = np.random.default_rng(0)
    images = Labelled(rng.random((40, 28, 28), np.float32), rng.integers(0, 10, 40).astype(np.int32), 10, "none")
    monkeypatch.setattr(mnist, "_images", lambda name, part: images)
    table = rng.integers(0, 2, (a9a._ROWS, 123)).astype(np.float32), rng.integers(0, 2, a9a._ROWS).astype(np.int32)
    monkeypatch.setattr(a9a, "_table", lambda: table)


@pytest.mark.parametrize("name", ["gmm", "a9a", "mnist", "mnist-even", "digits"])
def test_the_shards_of_some_agents_are_those_of_the_whole(name, small_data):
    plan = experiments.EXPERIMENTS[name].plan(5).replace(num_chains=2)
    whole, agents = experiments.load_problem(plan), [3, 1]
    part = experiments.load_problem(plan, agents)
    assert part.network_size == 5
    assert part.shard_digests() == [whole.shard_digests()[agent] for agent in agents]


def test_no_other_agents_images_are_enlarged(small_data, monkeypatch):
    seen, original = [], mnist._enlarged
    monkeypatch.setattr(mnist, "_enlarged", lambda images: seen.append(len(images)) or original(images))
    experiments.load_problem(experiments.EXPERIMENTS["mnist"].plan(5), [3, 1])
    assert seen == [8, 8]


def test_images_are_held_out_whatever_the_seed_and_the_split(small_data):
    held_out = {image.tobytes() for image in mnist.validation_images().inputs}
    assert len(held_out) == 40 // 12
    for name in ("mnist-even", "mnist-skewed", "mnist-choice"):
        experiment = experiments.EXPERIMENTS[name]
        for seed in (0, 3):
            problem = experiment.problem_of(experiment.plan(2).replace(seed=seed))
            trained = {image.tobytes() for inputs, _ in problem.shards for image in inputs}
            assert len(trained) == 40 - len(held_out)
            assert not trained & held_out
    everything = {image.tobytes() for inputs, _ in experiments.load_problem(
        experiments.EXPERIMENTS["mnist"].plan(2)).shards for image in inputs}  # fmt: skip
    assert held_out < everything  # the control: without holding out they are trained with


def test_skewed_agents_have_few_labels(monkeypatch):
    rng = np.random.default_rng(0)
    images = Labelled(rng.random((2400, 28, 28), np.float32), rng.integers(0, 10, 2400).astype(np.int32), 10, "none")
    monkeypatch.setattr(mnist, "_images", lambda name, part: images)

    def largest_share(name):
        problem = experiments.EXPERIMENTS[name].problem_of(experiments.EXPERIMENTS[name].plan(5))
        shares = [np.bincount(labels, minlength=10) / len(labels) for _, labels in problem.shards]
        return np.max(shares, 1).mean()

    assert largest_share("mnist-even") < 0.16 < 0.25 < largest_share("mnist-skewed")
