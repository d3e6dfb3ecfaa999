"""What several tests of nodes use."""

import pytest

from tests.engines.peers.test_network import ring_of_five
from tests.engines.peers.virtual import Laboratory


@pytest.fixture
def laboratory(tmp_path, monkeypatch):
    """Makes networks in memory on a clock that the test turns, `laboratory(plan, **options of the nodes)`."""
    made = []

    def make(plan, problem=None, **options):
        place = tmp_path / f"network-{len(made)}"
        made.append(Laboratory(plan, place, problem or ring_of_five(), monkeypatch, **options))
        return made[-1]

    yield make
    for one in made:
        one.clock.abandon()
