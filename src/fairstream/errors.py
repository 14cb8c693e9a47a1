"""The errors and warnings that fairstream raises by name."""

from collections.abc import Sequence

_MOST_LISTED = 20  # columns of a table in a message


class FairstreamWarning(UserWarning):
    """Something about the data or the fit that the user should know before trusting the result."""


class FairstreamFileError(ValueError):
    """A model, moments or checkpoint file that cannot be trusted or read."""


class NoRoomError(ValueError):
    """The nulled directions leave no room for the components asked for."""


class NotEnoughGroupsError(ValueError):
    """An attribute that shows fewer than two groups, so no gap between groups exists to null."""


def meant(name: str, held: Sequence[str]) -> str:
    """Return which column a name may stand for, as the end of a message; nothing if none is like it.

    Examples
    --------
    >>> meant("sex", ["age", " Sex "]), meant("sex", ["age"])
    ("; ' Sex ' may be it", '')
    """
    like = [one for one in held if str(one).strip().casefold() == name.strip().casefold()]
    return f"; {like[0]!r} may be it" if like else ""


class AbsentColumnsError(ValueError):
    """Columns that are asked for, and that a table does not have.

    Parameters
    ----------
    argument : str
        What asks for them; "encoding" and "model" are no arguments, and know all their columns.
    names : sequence of str
        The columns.
    place : str
        The table.
    held : sequence of str
        The columns that it has.
    """

    def __init__(self, argument: str, names: Sequence[str], place: str, held: Sequence[str]) -> None:
        self.argument, self.names, self.place, self.held = argument, [*names], place, [*held]
        listed = ", ".join(self.held[:_MOST_LISTED]) + ", ..." * (len(self.held) > _MOST_LISTED)
        columns = f"column{'s' * (len(self.names) > 1)} {', '.join(map(repr, self.names))}"
        self.lacking = f"{columns}, which {place} does not have (it has {listed})"
        super().__init__(
            f"the {argument} needs {self.lacking}: pass a table with the columns it was made for"
            if argument in ("encoding", "model")
            else f"{argument} names {self.names[0]!r}, {place} has {listed}: name one of these"
            + meant(self.names[0], self.held)
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Pickle by what it was built from, as errors of workers are."""
        return type(self), (self.argument, self.names, self.place, self.held)


def missing_extra(package: str, extra: str, purpose: str) -> ImportError:
    """Return the error for an optional package that is not installed.

    Examples
    --------
    >>> str(missing_extra("pyarrow", "tables", "reading Parquet files"))
    "reading Parquet files needs pyarrow: pip install 'fairstream[tables]'"
    """
    return ImportError(f"{purpose} needs {package}: pip install 'fairstream[{extra}]'")
