"""The errors and warnings that fairstream raises by name."""


class FairstreamWarning(UserWarning):
    """Something about the data or the fit that the user should know before trusting the result."""


class FairstreamFileError(ValueError):
    """A model, moments or checkpoint file that cannot be trusted or read."""


class NoRoomError(ValueError):
    """The nulled directions leave no room for the components asked for."""


class NotEnoughGroupsError(ValueError):
    """An attribute that shows fewer than two groups, so no gap between groups exists to null."""


def missing_extra(package: str, extra: str, purpose: str) -> ImportError:
    """Return the error for an optional package that is not installed.

    Examples
    --------
    >>> str(missing_extra("pyarrow", "tables", "reading Parquet files"))
    "reading Parquet files needs pyarrow: pip install 'fairstream[tables]'"
    """
    return ImportError(f"{purpose} needs {package}: pip install 'fairstream[{extra}]'")
