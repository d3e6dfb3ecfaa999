"""Codebooks: entries, what does not fit them, and a first one from a file."""

import re

import pytest

from consilience.errors import DataError
from consilience.studies import Category, Codebook, Number, Outcome
from consilience.studies.checking import check, read_columns
from consilience.studies.filling import fill_here
from consilience.studies.proposing import propose
from tests.studies.patients import book, rows, write


def test_a_codebook_is_the_same_after_it_was_written():
    assert Codebook.from_toml(book().to_toml()) == book()
    assert Codebook.from_toml(book().to_toml()).digest() == book().digest()


def test_the_order_of_levels_counts_and_the_entry_is_named():
    other = book(stage={"levels": ["III", "II", "I"]}, died={"one": "no", "zero": "yes"})
    assert book().differences(other) == ["columns.stage.levels", "columns.died.one", "columns.died.zero"]
    assert book().digest() != other.digest()
    assert book().differences(Codebook(columns={**book().columns, "more": Number()})) == ["columns.more"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns.a]\nkind = 'text'", "kind = 'text': write number, category or outcome"),
        ("[columns.a]\nunit = 'm'", "kind = None: write number, category or outcome"),
        ("[columns.a]\nkind = 'number'\nscale = 0", "greater than 0"),
        ("[columns.a]\nkind = 'number'\nscale = 'wide'", "from sites"),
        ("[columns.a]\nkind = 'number'\nlow = 3\nhigh = 2", "low = 3 is above high = 2"),
        ("[columns.a]\nkind = 'category'\nlevels = ['x', 'x']", "each of them once"),
        ("[columns.a]\nkind = 'category'\nlevels = []", "at least one"),
        ("[columns.a]\nkind = 'category'\nlevels = ['x']\nreference = 'y'", "the reference 'y' is no level"),
        ("[columns.a]\nkind = 'outcome'\none = 1\nzero = '1'", "they must differ"),
        ("[columns.a]\nkind = 'number'\ncenter = 1", "unknown entry"),
        ("missing = 'impute'\n[columns.a]\nkind = 'number'", "missing"),
        ("missing = 'drop'", "columns"),
        ("columns = 3", "columns"),
        ("[columns", "not a TOML document"),
    ],
)
def test_wrong_entries_are_named(tmp_path, text, words):
    (tmp_path / "codebook.toml").write_text(text)
    with pytest.raises(DataError, match=re.escape(words)):
        Codebook.load(tmp_path / "codebook.toml")


def test_the_reference_comes_first():
    assert Category(levels=(1, 2, 3), reference=2).ordered_levels == ("2", "1", "3")
    assert Outcome(one="dead", zero="alive").ordered_levels == ("alive", "dead")


@pytest.fixture
def site(tmp_path):
    def make(**changes):
        columns = {name: list(values) for name, values in rows(20).items()}
        for name, values in changes.items():
            if values is None:
                del columns[name]
            else:
                columns[name][: len(values)] = values
        return write(tmp_path / "site.csv", columns)

    return make


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"stage": ["V", "V", "early"]},
            ["stage: unknown level 'V' in 2 rows", "stage: unknown level 'early' in 1 row"],
        ),
        ({"died": ["dead"]}, ["died: neither 'no' nor 'yes' but 'dead' in 1 row"]),
        ({"age": [0.61, 0.7]}, ["age: values below 18 years (another unit?) in 2 rows"]),
        ({"age": [7300]}, ["age: values above 110 years (another unit?) in 1 row"]),
        ({"age": ["old", "n.a."]}, ["age: text where numbers belong in 2 rows"]),
        ({"age": ["1950-03-01"] * 20}, ["age: dates where numbers belong in 20 rows"]),
        ({"age": [""]}, ["age: missing values, and the codebook says `refuse`, in 1 row"]),
        ({"stage": None}, ["stage: the file has no such column"]),
        ({}, []),
    ],
)
def test_what_does_not_fit_is_said_with_numbers_of_rows(site, changes, words):
    assert [str(one) for one in check(site(**changes), book())] == words


def test_many_unknown_levels_are_counted_and_not_listed(site):
    found = [str(one) for one in check(site(stage=[f"name {k}" for k in range(20)]), book())]
    assert len(found) == 6
    assert found[-1] == "stage: 15 other unknown levels in 15 rows"


def test_rows_with_missing_values_are_left_out_if_all_agreed_on_that(site):
    path = site(age=["", "70"], stage=["I", "NA"])
    loose = Codebook(missing="drop", columns=book().columns)
    found = read_columns(path, loose, ["age", "stage"])
    assert (found.num_rows, found.num_dropped) == (18, 2)
    assert all(len(values) == 18 for values in found.values.values())
    with pytest.raises(DataError, match="a missing value in every row"):
        read_columns(site(age=[""] * 20), loose, ["age"])


def test_a_proposal_fits_its_file_and_holds_no_row(tmp_path):
    columns = {name: list(values) for name, values in rows(200).items()}
    columns |= {"born": ["1950-01-02"] * 200, "name": [f"patient {k}" for k in range(200)], "clinic": ["north"] * 200}
    columns |= {"height": [170] * 200, "empty": [""] * 200}
    path = write(tmp_path / "site.csv", columns)
    found, notes = propose(path)
    assert check(path, found) == []
    assert {name: kind.kind for name, kind in found.columns.items()} == {
        "age": "number", "stage": "category", "treatment": "category", "died": "outcome", "cost": "number",
        "visits": "number", "trials": "number", "recovered": "number", "years": "number", "clinic": "category",
        "height": "number",
    }  # fmt: skip
    assert found.columns["died"].one == "yes"
    told = "\n".join(notes)
    for words in ("born: holds dates", "name: 200 different texts", "empty: empty", "clinic: one level here",
                  "height: constant here", "died: 'yes' counts as 1"):  # fmt: skip
        assert words in told
    exact = {str(value) for value in (min(columns["age"]), max(columns["age"]), sum(columns["age"]) / 200)}
    assert not exact & set(re.findall(r"[\d.]+", found.to_toml()))


def test_open_entries_of_a_constant_column_cannot_be_filled(tmp_path):
    path = write(tmp_path / "site.csv", {"a": [3, 3, 3]})
    with pytest.raises(DataError, match="the same in all rows of all sites, so it has no scale"):
        fill_here(Codebook(columns={"a": {"kind": "number", "scale": "from sites"}}), [path])


def test_numbers_far_from_zero_keep_their_scale(tmp_path):
    files = [write(tmp_path / f"{k}.csv", {"a": [1.6e9 + 10 * k + i for i in range(5)]}) for k in range(3)]
    open_ = Codebook(columns={"a": {"kind": "number", "centre": "from sites", "scale": "from sites"}})
    found = fill_here(open_, files).codebook.columns["a"]
    assert (found.centre, found.scale) == (1.6e9 + 12, 8.3)  # the sd of 0 … 4, 10 … 14 and 20 … 24 is 8.29
