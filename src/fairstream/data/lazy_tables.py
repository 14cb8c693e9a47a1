"""Readers of tables that other libraries compute or hold: they answer with Arrow batches whenever asked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from fairstream.data.cutting import closing_early
from fairstream.data.databases import duckdb_batches
from fairstream.data.other_libraries import lazy_kind
from fairstream.data.table_readers import READ_ROWS, FrontToBack, TableReader, Typed, first_line, reading

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None


def lazy_reader(data: Any) -> TableReader:
    """Return the reader of a lazy table."""
    kind = lazy_kind(data)
    assert kind is not None
    return _READERS[kind](data)


class LazyFrameReader(FrontToBack):
    """A polars LazyFrame; its streaming engine computes only the columns asked for."""

    place = "the polars LazyFrame"

    def __init__(self, frame: Any) -> None:
        if not hasattr(frame, "collect_batches"):
            raise ValueError(f"{self.place} is of a polars before 1.34: update polars, or collect() it")
        self._frame = frame
        self.schema = frame.head(0).collect().to_arrow().schema

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches in the order of the frame."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        frames = self._frame.select(columns).collect_batches(chunk_size=READ_ROWS, maintain_order=True)
        for frame in frames:
            yield from frame.to_arrow().cast(schema).to_batches()


class DatasetReader(FrontToBack):
    """A pyarrow Dataset, scanned file after file."""

    place = "the pyarrow Dataset"

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.schema = dataset.schema.remove_metadata()

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches in the order of the files."""
        scanner = self._dataset.scanner(
            columns=list(columns), batch_size=READ_ROWS, batch_readahead=2, fragment_readahead=1
        )
        with reading(self.place), scanner.to_reader() as reader:
            for batch in reader:
                yield batch.replace_schema_metadata(None)


class RelationReader(FrontToBack):
    """A DuckDB relation; its connection gives one result at a time."""

    place = "the DuckDB relation"

    def __init__(self, relation: Any) -> None:
        self._relation = relation
        with closing(duckdb_batches(relation.limit(0))) as reader:
            self.schema = reader.schema.remove_metadata()

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as DuckDB computes them."""
        chosen = self._relation.project(", ".join(map(quoted, columns)))
        with reading(self.place):
            try:
                reader = duckdb_batches(chosen)
            except Exception as error:  # DuckDB's own, which are no Arrow errors
                raise ValueError(
                    f"{self.place} cannot be read: {first_line(error)}; its connection gives one result at a "
                    "time, so finish what else is read from it"
                ) from None
            with reader:
                yield from reader

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to pickle what belongs to a connection."""
        raise TypeError(
            f"{self.place} cannot be pickled: open its file by URL, as in duckdb:///people.duckdb"
        )


class HuggingFaceReader(Typed):
    """A Hugging Face Dataset; class labels are read as their names."""

    place = "the Hugging Face Dataset"

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset.with_format("arrow")
        self._names = class_names(dataset.features)
        self.schema = _with_names(self._dataset[:0], self._names).schema

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._dataset)

    @property
    def cuts(self) -> range:
        """Rows that a part may begin at: any."""
        return range(self.n_rows + 1)

    def part(self, start: int, stop: int) -> HuggingFaceReader:
        """Return rows start..stop."""
        other = copy.copy(self)
        other._dataset = self._dataset.select(range(start, stop))
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches, each from one slice of the data set."""
        for table in self._dataset.select_columns(list(columns)).iter(batch_size=READ_ROWS):
            yield from _with_names(table, self._names).to_batches()


class HuggingFaceStreamReader(FrontToBack):
    """A Hugging Face IterableDataset, which starts again at every pass."""

    place = "the Hugging Face IterableDataset"

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset.with_format("arrow")
        self._names = class_names(dataset.features or {})
        known = getattr(dataset.features, "arrow_schema", None)
        if known is not None:
            first = known.empty_table()
        else:
            with closing(closing_early(self._dataset.iter(batch_size=64))) as tables:  # type: ignore[type-var]
                first = next(tables, None)
            if first is None:
                raise ValueError(f"{self.place} is empty: pass one with rows")
        self.schema = _with_names(first, self._names).schema

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as the data set gives them."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for table in closing_early(self._dataset.iter(batch_size=READ_ROWS // 8)):
            yield from _with_names(table, self._names).select(list(columns)).cast(schema).to_batches()


def class_names(features: Any) -> dict[str, list[str]]:
    """Return the names of the classes of every column of class labels."""
    return {column: [*feature.names] for column, feature in features.items() if hasattr(feature, "int2str")}


def _with_names(table: Any, names: dict[str, list[str]]) -> Any:
    """Return a table with the names of classes in place of their numbers; -1 is no class."""
    table = table.replace_schema_metadata(None)
    for position, column in enumerate(table.column_names):
        if column in names:
            numbers = table.column(column).combine_chunks().cast(pa.int64())
            known = pa.compute.if_else(pa.compute.less(numbers, 0), None, numbers)
            labels = pa.DictionaryArray.from_arrays(known, pa.array(names[column], pa.string()))
            table = table.set_column(position, column, labels)
    return table


def quoted(name: str) -> str:
    """Return the name of a column as SQL wants it.

    Examples
    --------
    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


_READERS: dict[str, Callable[[Any], TableReader]] = {
    "polars": LazyFrameReader,
    "pyarrow": DatasetReader,
    "duckdb": RelationReader,
    "hugging face": HuggingFaceReader,
    "hugging face stream": HuggingFaceStreamReader,
}
