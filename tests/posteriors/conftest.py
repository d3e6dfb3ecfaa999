"""Posteriors whose files are large are found beside the repository; where they are not, their tests are skipped."""

import os
from pathlib import Path

import pytest

from consilience import posteriors

BESIDE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def load(monkeypatch):
    if "CONSILIENCE_DATA" not in os.environ and BESIDE.is_dir():
        monkeypatch.setenv("CONSILIENCE_DATA", str(BESIDE))

    def loaded(name):
        if name not in posteriors.available():
            pytest.skip(f"the file of {name} is not here")
        return posteriors.load(name)

    return loaded
