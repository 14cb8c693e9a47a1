"""The table source: opens frames and files of tables, and yields blocks of numbers with group labels."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from operator import attrgetter
from os import PathLike
from typing import Any

from fairstream.data.alignment import paired
from fairstream.data.arrow_columns import (
    column_kind,
    encode_labels,
    missing_rows,
    plain_columns,
    target_values,
    with_nulls,
)
from fairstream.data.arrow_files import ArrowReader
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.csv_dialect import listed_tokens
from fairstream.data.csv_files import CsvReader
from fairstream.data.cutting import check_block_size, default_block_size, recut
from fairstream.data.databases import QueryReader
from fairstream.data.file_search import FileSet, find_files
from fairstream.data.files_as_one import FileReader, FilesAsOne
from fairstream.data.groups import encode_groups
from fairstream.data.ids import checked_ids
from fairstream.data.json_lines import JsonLinesReader
from fairstream.data.lazy_tables import lazy_reader
from fairstream.data.list_columns import fixed_types, with_fixed_lists, with_types
from fairstream.data.parquet_files import ParquetReader
from fairstream.data.parts import check_part, rows_worth_a_task
from fairstream.data.progress import reported
from fairstream.data.roles import LabelledSource, listed_names, refuse_roles_as_features
from fairstream.data.table_encoding import Identifiers, TableEncoder
from fairstream.data.table_errors import MissingValuesError, no_rows
from fairstream.data.table_readers import FrameReader, StreamReader, TableReader
from fairstream.errors import AbsentColumnsError

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None

_READERS: dict[str, Callable[..., FileReader]] = {
    "csv": CsvReader,
    "jsonl": JsonLinesReader,
    "parquet": ParquetReader,
    "arrow": ArrowReader,
}
# pandas stores the row labels of a frame under such a name: identifiers, not features.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class TableSource:
    """Blocks of a table with named columns, numeric and categorical.

    Categories that are not given, `standardize` and `impute` take a first pass over the columns concerned. It
    runs at the first iteration or the first look at `n_features` or `feature_names`, once; a pickled source
    carries what it learned.
    """

    def __init__(
        self,
        reader: TableReader,
        *,
        sensitive_features: Sequence[str] = (),
        features: Sequence[str] | None = None,
        exclude: Iterable[str] | None = (),
        target: str | None = None,
        ids: str | None = None,
        keep_sensitive: bool = False,
        categories: Mapping[str, Sequence[Hashable] | None] | None = None,
        standardize: bool = False,
        impute: str | None = None,
        encoding: Mapping[str, Any] | None = None,
        unseen: str | None = None,
        max_categories: int | None = None,
        keep: Iterable[str] | None = (),
        block_size: int | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self._reader = reader
        self._sensitive = tuple(sensitive_features)
        self._target, self._id_column = target, ids
        exclude, keep = _names(exclude, "exclude"), _names(keep, "keep")
        if encoding is not None:
            beside: dict[str, Any] = {"features": features, "categories": categories, "impute": impute}
            beside |= {"standardize": standardize or None, "keep_sensitive": keep_sensitive or None}
            beside |= {"max_categories": max_categories, "exclude": exclude or None}
            for argument, value in beside.items():
                if value is not None:
                    raise ValueError(
                        f"{argument} does not apply beside encoding, which settles it: leave it out"
                    )
            features = [column["name"] for column in encoding["columns"]]
        if features is not None and not (features := _names(features, "features")):
            raise ValueError("features is []: pass a list of column names")
        if exclude and features is not None:
            raise ValueError("exclude does not apply beside features: leave one of them out")
        if keep_sensitive and (features is not None or not (sensitive_features or hidden)):
            other = "features" if features is not None else "no sensitive column"
            raise ValueError(f"keep_sensitive does not apply beside {other}: leave it out")
        targets = () if target is None else (target,)
        if ids is not None and not isinstance(ids, str):
            raise ValueError(f"ids={ids!r}: pass the name of a column, or one id per row")
        owners = () if ids is None else (ids,)
        if not reader.schema.names:
            raise ValueError(f"{reader.place} has no columns: pass a table with columns")
        check_columns(
            reader,
            sensitive_features=sensitive_features,
            features=(features or ()) if encoding is None else (),
            encoding=() if encoding is None else (features or ()),
            exclude=exclude,
            target=targets,
            ids=owners,
            keep=keep,
        )
        if features is not None and encoding is None:
            labels = dict.fromkeys([*sensitive_features, *hidden])
            refuse_roles_as_features(
                features, {"sensitive": labels, "the target": targets, "the ids": owners}
            )
        self.kept_names = tuple(keep)
        apart = {target, *owners, *keep, *exclude}
        unused = apart if keep_sensitive else {*apart, *sensitive_features, *hidden}
        chosen = (
            [name for name in reader.schema.names if name not in unused and not _PANDAS_INDEX.fullmatch(name)]
            if features is None
            else [*features]
        )
        if not chosen:
            raise ValueError(
                f"{reader.place} has no column left for the features: name them with features=[...]"
            )
        if features is None:
            _refuse_namesakes(reader, chosen, exclude)
        reader.check_text([*chosen, *sensitive_features, *targets, *owners, *keep])
        _check_labels(reader, sensitive_features)
        _refuse_no_rows(reader, chosen)
        self._features = tuple(chosen)
        read: dict[str, Any] = {"null_values": reader.null_values, "unread": reader.unread}
        self._lists = fixed_types(reader, chosen, encoding)
        schema = with_types(reader.schema, self._lists)
        if encoding is not None:
            self._encoder = TableEncoder.restored(schema, encoding, unseen=unseen, **read)
        else:
            self._encoder = TableEncoder.plan(
                schema,
                chosen,
                categories=categories or {},
                standardize=standardize,
                impute=impute,
                unseen=unseen,
                max_categories=max_categories,
                excluded=exclude if features is None else None,
                **read,
            )
        # The parser of CSV has read them as missing, other readers have not.
        self._nulls = tuple(text for text in self._encoder.null_values if text not in read["null_values"])
        self._identifiers = None if encoding is not None else Identifiers(reader.schema, chosen)
        self._block_size = check_block_size(block_size)
        self._first_row = 0
        self._n_rows: int | None = None
        if reader.one_shot and self._encoder.columns_to_learn:
            raise ValueError(
                f"{reader.place} can be read once only, and column {self._encoder.columns_to_learn[0]!r} "
                "needs a first pass: give its categories, leave standardize and impute out, or pass a Table"
            )

    @property
    def block_size(self) -> int:
        """Rows of every block but the last."""
        return self._block_size or default_block_size(8 * self.n_features)

    @property
    def n_features(self) -> int:
        """Number of columns of every block (makes the first pass if one is needed)."""
        self._learn()
        return self._encoder.width

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns, "column=category" for one-hot ones (makes the first pass if needed)."""
        self._learn()
        return self._encoder.feature_names

    @property
    def encoding(self) -> dict[str, Any]:
        """How columns become features, as plain data: pass it as `encoding` to read another table alike."""
        self._learn()
        return self._encoder.to_state()

    @property
    def n_rows(self) -> int | None:
        """Number of rows; for text and streams known after the first full pass."""
        if self._n_rows is None:
            self._n_rows = self._reader.n_rows
        return self._n_rows

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows that a part may begin at: those that begin a row group, any of a frame; None for a stream."""
        return self._reader.cuts

    @property
    def part_rows(self) -> int:
        """Rows that are worth a task of their own (makes the first pass if one is needed)."""
        return rows_worth_a_task(8 * self.n_features)

    def part(self, start: int, stop: int) -> TableSource:
        """Return a source over rows start..stop, encoded as the whole is (makes the first pass if needed)."""
        check_part(self, start, stop)
        self._learn()
        other = copy.copy(self)
        other._reader, other._n_rows = self._reader.part(start, stop), stop - start
        other._first_row = self._first_row + start
        return other

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order; files are open only while this runs."""
        self._learn()
        columns = self._columns
        start = self._first_row
        identifiers = copy.copy(self._identifiers)
        for table in _exact_tables(self._batches(columns), self.block_size):
            if identifiers is not None:
                identifiers.look(table)
            block = self._block(table, start)
            start += table.num_rows
            del table  # the block is a copy: no need to hold both while it is used
            yield block
            del block
        if identifiers is not None and self._first_row == 0:
            identifiers.warn()
            self._identifiers = None  # once is enough

    def _block(self, table: Any, start: int) -> Block:
        """Return some rows as a block; `start` is the number of the first, for messages."""
        groups = {name: encode_labels(name, table.column(name)) for name in self._sensitive}
        y = None if self._target is None else target_values(table.column(self._target))
        ids = None if self._id_column is None else _ids(table.column(self._id_column), self._id_column)
        kept = plain_columns(table, self.kept_names) if self.kept_names else None
        return Block(self._encoder.encode(table, start), groups, y, ids=ids, kept=kept)

    @property
    def _columns(self) -> list[str]:
        """All columns that are read."""
        apart = [name for name in (self._target, self._id_column) if name is not None]
        return list(dict.fromkeys([*self._features, *self._sensitive, *apart, *self.kept_names]))

    @property
    def skipped_rows(self) -> int:
        """Rows that the last pass left out because they did not fit, see `bad_rows` of `open_source`."""
        return self._reader.skipped_rows

    def _learn(self) -> None:
        columns = self._encoder.columns_to_learn
        if columns and not self._encoder.learned:
            # A failed pass must leave nothing half-learned behind: learn on a fresh copy, then keep it.
            encoder = self._encoder.blank()
            try:
                encoder.learn(reported(self._batches(columns), self.n_rows), self._reader.place)
            except MissingValuesError as found:
                raise self._with_all_missing(found) from None
            self._encoder = encoder

    def _with_all_missing(self, found: MissingValuesError) -> MissingValuesError:
        """Return the error with the columns that the first pass did not read: better told at once."""
        counts = Counter(found.counts)
        rest = [name for name in self._features if name not in self._encoder.columns_to_learn]
        for batch in self._batches(rest) if rest else ():
            for name in rest:
                counts[name] += missing_rows(batch.column(name))
        return found.of(+counts)

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        apart = {*self._sensitive, self._target, self._id_column, *self.kept_names}
        numbers = set(self._encoder.number_names) - apart
        # Which rows are skipped depends on the columns that are read: they must be the same in every pass.
        more = self._columns if self._reader.skips_rows else ()
        wanted = list(dict.fromkeys([*columns, *more]))
        count = 0
        for batch in self._reader.batches(wanted, [name for name in wanted if name in numbers]):
            count += batch.num_rows
            chosen = batch.select(list(columns)) if more else batch
            chosen = with_fixed_lists(chosen, self._lists) if self._lists else chosen
            yield with_nulls(chosen, self._nulls) if self._nulls else chosen
        expected = self.n_rows
        if expected is None:
            self._n_rows = count
        elif count != expected:
            raise ValueError(
                f"{self._reader.place} had {expected:,} rows and now has {count:,}: "
                "it must not change while it is read"
            )


def _names(listed: Any, argument: str) -> list[str]:
    """Return names of columns as a list; None stands for none."""
    if listed is None:
        return []
    names = [*listed] if isinstance(listed, Iterable) else [listed]
    if isinstance(listed, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} is {listed!r}: pass a list of column names")
    return [*map(str, names)]


def check_columns(reader: TableReader, **arguments: Sequence[str]) -> None:
    """Refuse names that the table does not have, or has twice."""
    counts = Counter(reader.schema.names)
    for argument, asked in arguments.items():
        for name in asked:
            if counts[name] > 1 and argument != "exclude":
                which = _all_but_one([counts[name]])
                raise ValueError(f"{reader.place} has {counts[name]} columns named {name!r}: rename {which}")
        absent = [name for name in asked if not counts[name]]
        if absent:
            raise AbsentColumnsError(argument, absent, reader.place, reader.schema.names)
        if len({*asked}) < len(asked):
            raise ValueError(f"{argument} names a column twice: {list(asked)}")


def _refuse_namesakes(reader: TableReader, features: Sequence[str], excluded: Sequence[str]) -> None:
    """Refuse features of one name, all at once."""
    counts = Counter(features)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        numbers = ", ".join(f"{counts[name]} columns named {name!r}" for name in twice)
        rename = f"rename {_all_but_one([counts[name] for name in twice])}"
        raise ValueError(
            f"{reader.place} has {numbers}: {rename}, or leave all of them out with "
            f"exclude={[*excluded, *twice]!r}"
        )


def _all_but_one(counts: Sequence[int]) -> str:
    """Say which columns to rename, of so many that share each name."""
    if len(counts) > 1:
        return "all but one of each"
    return "one of them" if counts[0] == 2 else "all but one of them"


def _refuse_no_rows(reader: TableReader, features: Sequence[str]) -> None:
    """Refuse a table without rows if features have no type for want of a value."""
    if any(column_kind(reader.schema.field(name).type) == "empty" for name in features):
        empty = reader.place if reader.n_rows == 0 else reader.without_rows
        if empty is not None:
            raise no_rows(empty)


def _check_labels(reader: TableReader, sensitive_features: Sequence[str]) -> None:
    """Refuse sensitive columns whose values are no labels: dates, lists, bytes that are no text."""
    for name in sensitive_features:
        arrow_type = reader.schema.field(name).type
        if column_kind(arrow_type) == "other" or pa.types.is_fixed_size_list(arrow_type):
            raise ValueError(
                f"sensitive_features names {name!r}, which holds {arrow_type}: convert it to text (UTF-8) "
                "or numbers"
            )


def _ids(column: Any, name: str) -> Any:
    """Return a column that says whose rows these are: whole numbers or text, none missing."""
    if column.null_count:
        raise ValueError(f"column {name!r} is ids and has missing values: every row needs one")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return checked_ids(column.to_numpy(), len(column), f"column {name!r}, which is ids,")


def _exact_tables(batches: Iterable[Any], block_size: int) -> Iterator[Any]:
    """Yield Arrow tables of exactly `block_size` rows (the last may be shorter), without copying."""
    return recut(
        batches,
        block_size,
        rows_of=attrgetter("num_rows"),
        cut=lambda batch, start, stop: batch.slice(start, stop - start),
        join=pa.Table.from_batches,
    )


def table_reader(data: Any, **parsing: Any) -> TableReader:
    """Choose the reader for files, a path, a frame or an Arrow stream."""
    files = find_files(data) if isinstance(data, str | PathLike) else data
    if isinstance(files, FileSet):
        first = _READERS[files.kind](files.files[0].file, **parsing)
        many = len(files.files) > 1 or "=" in files.files[0].folders
        return FilesAsOne(files, first) if many else first
    kind = type(data).__module__.split(".")[0]
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return FrameReader(data, "the pyarrow table")
    if kind in ("pandas", "polars") and hasattr(data, "columns") and hasattr(data, "shape"):
        return FrameReader(data, f"the {kind} frame")
    return StreamReader(data)


def open_frame(data: Any, *, sensitive_features: object = None, **options: Any) -> BlockSource:
    """Open a frame, or anything that gives an Arrow stream."""
    reader = table_reader(data)
    labels = paired(sensitive_features, data, "sensitive_features")
    return _labelled(reader, sensitive_features=labels, **options)


def open_lazy(data: Any, **options: Any) -> BlockSource:
    """Open a table that another library computes: a LazyFrame, a Dataset, a relation."""
    return _labelled(lazy_reader(data), **options)


def open_database(url: str, *, query: str | None = None, **options: Any) -> BlockSource:
    """Open the rows that a query of a database selects."""
    return _labelled(QueryReader(url, query), **options)


def open_files(files: FileSet, **options: Any) -> BlockSource:
    """Open CSV, JSON lines, Parquet or Arrow files."""
    known = signature(_READERS[files.kind]).parameters
    parsing = {name: options.pop(name) for name in known if name in options}
    declared = (options.get("encoding") or {}).get("null_values", ())
    if declared and "null_values" in known:
        parsing["null_values"] = [*declared, *listed_tokens(parsing.get("null_values"))]
    return _labelled(table_reader(files, **parsing), **options)


def _labelled(reader: TableReader, *, sensitive_features: object = None, **options: Any) -> BlockSource:
    """Take labels from the table's own columns, or from separate ones."""
    names = listed_names(sensitive_features)
    if sensitive_features is None or names is not None:
        return TableSource(reader, sensitive_features=names or (), **options)
    if reader.n_rows is None:
        raise ValueError(
            f"sensitive_features holds labels, and the length of {reader.place} is not known beforehand: "
            "name columns instead"
        )
    attributes = encode_groups(sensitive_features, reader.n_rows)
    # df["sex"] passed with df: the column it came from is as sensitive as the labels.
    columns = {*reader.schema.names}
    hidden = [name for name in attributes if name in columns]
    return LabelledSource(TableSource(reader, hidden=hidden, **options), attributes, reader.n_rows)
