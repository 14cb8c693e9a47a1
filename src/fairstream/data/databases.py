"""The reader behind the table source for a query of a database, by the address of the database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from fairstream.data.data_files import without_secrets
from fairstream.data.file_search import DATABASES, scheme
from fairstream.data.table_readers import READ_ROWS, FrontToBack, first_line
from fairstream.errors import missing_extra

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None

_BATCH_BYTES = 2**22


class QueryReader(FrontToBack):
    """The rows that a query selects; it runs once for every pass, and once more for the types of SQLite.

    Parameters
    ----------
    url : str
        sqlite:///file, sqlite:////absolute/file, duckdb:///file, or postgresql://user:password@host/database.
    query : str
        A SELECT statement.
    """

    def __init__(self, url: str, query: str | None = None) -> None:
        self._url = url
        self.place = without_secrets(url)
        if not isinstance(query, str) or not query.strip():
            raise ValueError(
                f"query is {query!r}: say what to read from {self.place}, as in query='SELECT * FROM people'"
            )
        self._query = query.strip().rstrip(";")
        with self._running() as reader:
            self.schema = _plain_schema(reader.schema)

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as the database sends them."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        with self._running() as reader:
            for batch in reader:
                arrays = [_plain(batch.column(field.name)).cast(field.type) for field in schema]
                yield pa.record_batch(arrays, schema=schema)

    @contextmanager
    def _running(self) -> Iterator[Any]:
        """Run the query; the connection is open only as long as this."""
        run = {"sqlite": _sqlite, "duckdb": _duckdb, "postgresql": _postgresql}[DATABASES[scheme(self._url)]]
        try:
            with run(self._url, self._query) as reader:
                yield reader
        except (GeneratorExit, ImportError, FileNotFoundError):
            raise
        except Exception as error:  # each driver has errors of its own
            raise ValueError(
                f"{self.place} cannot be read: {first_line(error)}; check the address and the query, and "
                "cast a column there if its type changes"
            ) from None


@contextmanager
def _sqlite(url: str, query: str) -> Iterator[Any]:
    try:
        from adbc_driver_sqlite import StatementOptions, dbapi
    except ImportError:
        raise missing_extra("adbc-driver-sqlite", "sql", "reading SQLite") from None
    address = f"file:{quote(_existing_file(url))}?mode=ro"
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(READ_ROWS)})
        cursor.execute(query)
        with cursor.fetch_record_batch() as reader:
            yield reader


@contextmanager
def _duckdb(url: str, query: str) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise missing_extra("duckdb", "sql", "reading DuckDB") from None
    with duckdb.connect(_existing_file(url), read_only=True) as connection:
        relation = connection.sql(query)
        if relation is None:
            raise ValueError("the query is no SELECT")
        with duckdb_batches(relation) as reader:
            yield reader


def duckdb_batches(relation: Any) -> Any:
    """Return a record batch reader over a DuckDB relation, of any of its versions."""
    names = ("to_arrow_reader", "fetch_record_batch", "fetch_arrow_reader")  # by version, newest first
    read = next(found for name in names if (found := getattr(relation, name, None)) is not None)
    return read(READ_ROWS)


@contextmanager
def _postgresql(url: str, query: str) -> Iterator[Any]:
    try:
        from adbc_driver_postgresql import StatementOptions, dbapi
    except ImportError:
        raise missing_extra("adbc-driver-postgresql", "sql", "reading PostgreSQL") from None
    address = "postgresql://" + url.partition("://")[2]
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        options = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
        cursor.adbc_statement.set_options(**options)
        cursor.execute(query)
        with cursor.fetch_record_batch() as reader:
            yield reader


def _existing_file(url: str) -> str:
    """Return the path in sqlite:///path; a driver would make a new database of a wrong one."""
    path = url.partition("://")[2].partition("?")[0].removeprefix("/")
    for found in (path, f"/{path}"):  # slashes in a row are lost where a URL is taken for a path
        if os.path.isfile(found):
            return found
    raise FileNotFoundError(
        f"{path or 'the database'} does not exist: write {scheme(url)}:///file, or four slashes for an "
        "absolute path"
    )


def _plain_schema(schema: Any) -> Any:
    return pa.schema([pa.field(field.name, _plain_type(field)) for field in schema])


def _plain_type(field: Any) -> Any:
    """Return the type to read a column as: decimals of PostgreSQL, which come as text, are numbers."""
    if isinstance(field.type, pa.BaseExtensionType):
        decimal = getattr(field.type, "type_name", "") == "numeric"
        return pa.float64() if decimal else field.type.storage_type
    if (field.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric":
        return pa.float64()
    return field.type


def _plain(column: Any) -> Any:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column
