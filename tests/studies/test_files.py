"""CSV and Parquet as hospitals write them: each oddity is read, or refused in words; rows are never shown."""

import numpy as np
import pandas
import pytest

from consilience.errors import DataError
from consilience.studies import files


def written(tmp_path, text, name="site.csv", encoding="utf-8"):
    (tmp_path / name).write_bytes(text.encode(encoding))
    return tmp_path / name


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("a,b\n1,x\n2,y\n", "utf-8"),
        ("a,b\r\n1,x\r\n2,y\r\n", "utf-8"),
        ("a,b\n1,x\n2,y\n", "utf-8-sig"),
        ("a;b\n1;x\n2;y\n", "utf-8-sig"),
        ("a\tb\n1\tx\n2\ty\n", "utf-8"),
        ('"a", "b"\n 1 , x\n2,"y"\n\n', "utf-8"),
        ("b,a\nx,1\ny,2", "utf-8"),
    ],
    ids=[
        "plain",
        "Windows",
        "byte-order mark",
        "semicolons",
        "tabs",
        "spaces and quotes",
        "other order, no last line",
    ],
)
def test_the_same_table_in_many_writings(tmp_path, text, encoding):
    path = written(tmp_path, text, encoding=encoding)
    table = files.read_table(path, ["a", "b"])
    assert files.as_numbers(table["a"])[0].tolist() == [1, 2]
    assert files.as_text(table["b"]).tolist() == ["x", "y"]


def test_a_quoted_separator_belongs_to_its_field(tmp_path):
    table = files.read_table(written(tmp_path, 'a,b\n1,"x, y"\n2,"say ""no"""\n'))
    assert table["b"].tolist() == ["x, y", 'say "no"']


@pytest.mark.parametrize("columns", [None, ["a"]], ids=["all columns", "one column"])
def test_a_separator_that_nobody_quoted_moves_no_value_into_another_column(tmp_path, columns):
    path = written(tmp_path, "a,b\n1,x\n2,y, z\n3,u, v\n")
    with pytest.raises(DataError, match=r"2 lines with 3 fields, and its first line names 2: .*put quotes"):
        files.read_table(path, columns)


def test_decimal_commas_where_fields_are_separated_by_semicolons(tmp_path):
    path = written(tmp_path, "a;b\n1,5;x\n-2,25;y\n")
    assert files.has_decimal_commas(path)
    numbers, wrong = files.as_numbers(files.read_table(path)["a"], True)
    assert numbers.tolist() == [1.5, -2.25]
    assert not wrong.any()


def test_codes_keep_their_zeros_and_missing_values_their_names(tmp_path):
    table = files.read_table(written(tmp_path, "a,b\n01,NA\nNaN,\n1,null\n"), levels=["NaN"])
    assert files.as_text(table["a"]).tolist() == ["01", "NaN", "1"]
    assert table["b"].isna().all()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("site.csv", b"", "is empty"),
        ("site.csv", b"\xef\xbb\xbf", "is empty"),
        ("site.csv", b"a,b\n", "has a header and no rows"),
        ("site.csv", b"a,,b\n1,2,3\n", "a column without a name"),
        ("site.csv", b"a,a\n1,2\n", "two columns called 'a'"),
        ("site.csv", "größe\n1\n".encode("latin-1"), "not text in UTF-8"),
        ("site.csv", b"a,b\n1,\xe9\n", "not text in UTF-8|cannot be read as CSV"),
        ("site.parquet", b"no parquet", "cannot be read as Parquet"),
        ("site.xlsx", b"", "neither CSV nor Parquet"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        files.read_table(tmp_path / name, None)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="there is no data file"):
        files.read_table(tmp_path / "site.csv")
    with pytest.raises(DataError, match="has no column 'c': it has a"):
        files.read_table(written(tmp_path, "a\n1\n"), ["c"])


def test_parquet_is_read_as_csv_is(tmp_path):
    table = pandas.DataFrame({
        "a": [1, 2, 3], "b": pandas.Categorical(["x", None, "y"]), "c": [1.0, np.nan, 2.0], "d": [True, False, True],
        "e": pandas.to_datetime(["2020-01-01", "2020-01-02", None]),
    })  # fmt: skip
    table.to_parquet(tmp_path / "site.parquet")
    found = files.read_table(tmp_path / "site.parquet")
    assert files.column_names(tmp_path / "site.parquet") == list("abcde")
    assert files.as_text(found["a"]).tolist() == ["1", "2", "3"]
    assert files.as_text(found["b"]).tolist() == ["x", None, "y"]
    assert files.as_text(found["c"]).tolist() == ["1", None, "2"]
    np.testing.assert_array_equal(files.as_numbers(found["c"])[0], [1, np.nan, 2])
    assert files.looks_like_dates(found["e"])
    assert files.as_numbers(found["e"])[1].tolist() == [True, True, False]
