import json

import numpy as np
import pytest
import xarray

from consilience.runs.growing import GrowingGroup, Variable


@pytest.fixture(params=["", "posterior"])
def group(tmp_path, request):
    variables = {
        "a": Variable(("chain", "draw"), (2, 1000), "float32"),
        "b": Variable(("chain", "draw", "b_dim_0"), (2, 1000, 3), "float64"),
    }
    fixed = {"chain": (("chain",), np.arange(2))}
    return GrowingGroup.create(tmp_path / "g.zarr", "draw", variables, fixed, {"note": "x"}, request.param)


def opened(group):
    return xarray.open_zarr(group.path, group=group.group or None)


def values(start, stop):
    numbers = np.arange(start, stop)
    return {
        "a": np.stack([numbers, -numbers]).astype("float32"),
        "b": np.repeat(np.stack([numbers, -numbers])[..., None], 3, -1).astype("float64"),
    }


def test_readers_see_what_was_appended(group):
    assert opened(group).sizes["draw"] == 0
    group.append(values(0, 7))
    group.append(values(7, 500))
    seen = opened(group)
    assert seen.sizes == {"chain": 2, "draw": 500, "b_dim_0": 3}
    assert (seen["a"].values[1] == -np.arange(500)).all()
    assert seen.attrs["note"] == "x"
    assert seen["chain"].values.tolist() == [0, 1]


def test_written_but_not_committed_entries_are_not_seen(group, monkeypatch):
    """A crash after the arrays were written and before the commit leaves the group as it was."""
    group.append(values(0, 10))

    def crash(length):
        raise KeyboardInterrupt

    monkeypatch.setattr(group, "commit", crash)
    with pytest.raises(KeyboardInterrupt):
        group.append(values(10, 20))
    seen = opened(group)
    assert seen.sizes["draw"] == 10
    reopened = GrowingGroup(group.path, "draw", group.group)
    assert reopened.length == 10
    reopened.append(values(10, 30))
    assert (opened(group)["a"].values[0] == np.arange(30)).all()


def test_commit_can_cut_back(group):
    group.append(values(0, 100))
    group.commit(40)
    group.append({name: array + 0 for name, array in values(40, 60).items()})
    assert (opened(group)["b"].values[0, :, 2] == np.arange(60)).all()


def test_the_commit_is_one_file(group):
    group.append(values(0, 100))
    before = {path: path.read_bytes() for path in group.path.rglob("zarr.json")}
    group.commit(50)
    changed = [path for path, content in before.items() if path.read_bytes() != content]
    assert changed == [group.path / "zarr.json"]
    assert json.loads(changed[0].read_text())["consolidated_metadata"]["metadata"][f"{group.group}/a".strip("/")][
        "shape"
    ] == [2, 50]


def test_a_tree_shows_the_same(group):
    group.append(values(0, 12))
    tree = xarray.open_datatree(group.path, engine="zarr")
    assert (tree[group.group] if group.group else tree).sizes["draw"] == 12
