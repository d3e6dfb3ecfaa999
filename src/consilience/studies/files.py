"""CSV and Parquet files as tables of text, numbers and dates, with mistakes told in words; rows are never shown.

A CSV may have a byte-order mark, commas, semicolons or tabs between its fields, and quoted fields. Columns that the
codebook calls categories are read as the text that stands there, so that `01` stays `01`. In files with semicolons
numbers may have a decimal comma.
"""

from __future__ import annotations

import csv
import importlib.util
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from consilience.errors import DataError

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A", "<NA>")
"""What a CSV says for a missing value, unless the codebook has a level of that name."""
_SEPARATORS = ",;\t|"


def require_packages() -> None:
    """Check that what studies need is installed."""
    missing = [name for name in ("formulaic", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(f"studies need {', '.join(missing)}: where Consilience is cloned, pip install '.[glm]'")


def column_names(path: str | Path) -> list[str]:
    """The names of a file's columns, in order."""
    path = _require_file(path)
    if _is_parquet(path):
        import pyarrow.parquet

        try:
            found = list(pyarrow.parquet.read_schema(path).names)
        except Exception as error:  # Arrow has many kinds
            raise DataError(f"{path} cannot be read as Parquet: {_one_line(error)}") from None
    else:
        found = _header(path)[0]
    return _require_names(path, found)


def read_table(path: str | Path, columns: Collection[str] | None = None, levels: Collection[str] = ()) -> Any:
    """A file's columns as a pandas table; what is missing is NaN, text stays text.

    Args:
        path: a `.csv`, `.tsv` or `.txt` file, or `.parquet`.
        columns: which to read, all by default; each must be there.
        levels: texts that mean a level, even if they look like a missing value.
    """
    path = _require_file(path)
    there = column_names(path)
    wanted = there if columns is None else list(columns)
    absent = [name for name in wanted if name not in there]
    if absent:
        raise DataError(f"{path} has no column {', '.join(map(repr, absent))}: it has {', '.join(there)}")
    found = _read_parquet(path, wanted) if _is_parquet(path) else _read_csv(path, wanted, levels)
    if not len(found):
        raise DataError(f"{path} has a header and no rows: a site needs at least one row")
    return found[wanted]


def as_text(column: Any) -> Any:
    """A column as the text that a CSV would have, `None` where it is missing; whole floats lose their `.0`.

    >>> import pandas
    >>> as_text(pandas.Series([1.0, None, 2.0])).tolist()
    ['1', None, '2']
    """
    import pandas

    if isinstance(column.dtype, pandas.CategoricalDtype):
        column = column.astype(object)
    missing = column.isna().to_numpy()
    if pandas.api.types.is_float_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        if np.all(missing | (values == np.floor(values))):
            text = np.where(missing, 0, values).astype(np.int64).astype(str).astype(object)
        else:
            text = values.astype(str).astype(object)
    else:
        text = column.astype(str).str.strip().to_numpy(dtype=object)
    text[missing] = None
    return pandas.Series(text, dtype=object)


def as_numbers(column: Any, decimal_comma: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, NaN where there is none; and where text stands that is no number."""
    import pandas

    missing = column.isna().to_numpy()
    kinds = pandas.api.types
    if kinds.is_datetime64_any_dtype(column.dtype):
        return np.full(len(column), np.nan), ~missing
    if kinds.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return np.where(np.isfinite(values), values, np.nan), ~missing & ~np.isfinite(values)
    text = column.astype(str).str.strip()
    if decimal_comma and not text.str.contains(".", regex=False)[~missing].any():
        text = text.str.replace(",", ".", regex=False)
    values = pandas.to_numeric(text.where(~missing, None), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan), ~missing & ~np.isfinite(values)


def has_decimal_commas(path: str | Path) -> bool:
    """Whether numbers in a file may be written with a decimal comma: its fields are separated by semicolons."""
    path = Path(path)
    return not _is_parquet(path) and _header(path)[1] == ";"


def looks_like_dates(column: Any) -> bool:
    """Whether a column holds dates."""
    import pandas

    if pandas.api.types.is_datetime64_any_dtype(column.dtype):
        return True
    text = column.dropna().astype(str).str.strip()
    if pandas.api.types.is_numeric_dtype(column.dtype) or not len(text):
        return False
    return bool(text.str.match(r"^\d{4}-\d{1,2}-\d{1,2}|^\d{1,2}[./]\d{1,2}[./]\d{2,4}").mean() > 0.5)


def _read_parquet(path: Path, wanted: list[str]) -> Any:
    import pandas

    try:
        return pandas.read_parquet(path, columns=wanted, engine="pyarrow").reset_index(drop=True)
    except Exception as error:  # Arrow has many kinds
        raise DataError(f"{path} cannot be read as Parquet: {_one_line(error)}") from None


def _read_csv(path: Path, wanted: list[str], levels: Collection[str]) -> Any:
    """By Arrow, which counts fields: a comma that nobody quoted would else move values into other columns."""
    import pyarrow
    import pyarrow.csv

    names, separator = _header(path)
    other_lengths: Counter[int] = Counter()

    def note(row: Any) -> str:
        other_lengths[row.actual_columns] += 1
        return "skip"

    try:
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, pyarrow.string())
            ),
        )
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8: save it as CSV in UTF-8") from None
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read as CSV: {_one_line(error)}") from None
    if other_lengths:
        count, lengths = sum(other_lengths.values()), " or ".join(map(str, sorted(other_lengths)))
        raise DataError(
            f"{path} has {count:,} line{'s' * (count > 1)} with {lengths} fields, and its first line names "
            f"{len(names)}: every line needs as many; put quotes around text that contains {separator!r}"
        )
    return _without_missing(table, [one for one in MISSING if one not in set(levels)]).to_pandas()


def _without_missing(table: Any, missing: list[str]) -> Any:
    """The table with spaces around its texts taken away, and nothing where a text means that nothing is known."""
    import pyarrow
    import pyarrow.compute as compute

    none, words = pyarrow.scalar(None, pyarrow.string()), pyarrow.array(missing, pyarrow.string())
    for place, name in enumerate(table.column_names):
        text = compute.utf8_trim_whitespace(table.column(place))
        table = table.set_column(place, name, compute.if_else(compute.is_in(text, words), none, text))
    return table


def _header(path: Path) -> tuple[list[str], str]:
    """The names in a CSV's first line, and what separates them."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8: save it as CSV in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not line.strip():
        raise DataError(f"{path} is empty: a CSV has its columns' names in the first line, then a line for each row")
    separator = max(_SEPARATORS, key=lambda one: (len(_split(line, one)), -_SEPARATORS.index(one)))
    return [name.strip() for name in _split(line, separator)], separator


def _split(line: str, separator: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")], delimiter=separator, skipinitialspace=True))


def _require_file(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".parquet", ".pq"):
        raise DataError(f"{path} is neither CSV nor Parquet: give a file that ends in .csv, .tsv, .txt or .parquet")
    if not path.is_file():
        raise DataError(f"there is no data file {path}")
    return path


def _require_names(path: Path, names: list[str]) -> list[str]:
    if any(not name for name in names):
        raise DataError(f"{path} has a column without a name: name every column in the first line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called {twice[0]!r}: give them different names")
    return names


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
