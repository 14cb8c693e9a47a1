"""Options that several commands share, and how their text becomes arguments of the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import numpy as np

from fairstream.cli.name_lists import split_names
from fairstream.cli.writing import InputInText, InputPath, OutputPath
from fairstream.data import open_source
from fairstream.data.blocks import BlockSource
from fairstream.data.intersections import IntersectedSource
from fairstream.data.open import OPTIONS
from fairstream.data.schema import UNSEEN
from fairstream.estimators.images import FairImagePCA
from fairstream.files.format import load
from fairstream.moments import GroupMoments
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.choices import AUTO, CONSTRAINTS, DIRECTIONS
from fairstream.subspace.model import FairSubspace

F = TypeVar("F", bound=Callable[..., Any])


def apply_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Join several click options into one decorator."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class NumberOrShare(click.types.StringParamType):
    """A whole number from 1, or a share between 0 and 1."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int or a float."""
        try:
            return int(value) if int(value) >= 1 else self._refuse(value, param, ctx)
        except ValueError:
            pass
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        return share if 0 < share < 1 else self._refuse(value, param, ctx)

    def _refuse(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        self.fail(f"{value!r} is neither a whole number from 1 nor a share between 0 and 1", param, ctx)


class NameList(click.types.StringParamType):
    """At least two names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in split_names(value))
        if len(names) < 2 or not all(names):
            self.fail(f"{value!r} names no two attributes: write sex,race", param, ctx)
        return names


def names_option(name: str, *, help_text: str) -> Callable[[F], F]:
    """Return an option that lists names, with commas or given several times; None if it is not given."""

    def listed(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
        return [name for value in values for name in split_names(value)] if values else None

    return click.option(name, multiple=True, metavar="A,B,...", callback=listed, help=help_text)


as_json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
data_argument = click.argument("data", type=InputPath())
id_option = click.option(
    "--id-column",
    metavar="COLUMN",
    help="A column that tells whose row it is, by name or index, and is no feature: the noise of --dither "
    "depends on it instead of the row's values.",
)
reading_options = apply_options(
    click.option(
        "-s",
        "--sensitive",
        type=InputInText(after_equals=True),
        multiple=True,
        metavar="COLUMN",
        help="A sensitive attribute: a column's name, its index in a .npy file, or NAME=FILE with one label "
        "per row (.npy or text). Give it once per attribute.",
    ),
    names_option("--features", help_text="Columns to use; by default all but sensitive and target."),
    names_option("--exclude", help_text="For tables: columns that are no features."),
    click.option("--target", metavar="COLUMN", help="A column to leave out of the features."),
    id_option,
    click.option("--block-size", type=click.IntRange(min=1), metavar="ROWS", help="Rows read at a time."),
    click.option(
        "--attributes",
        type=InputPath(exists=True, dir_okay=False),
        help="For images: the table that --sensitive names columns of (CelebA text, CSV or Parquet).",
    ),
    click.option("--delimiter", metavar="CHARACTER", help="For CSV: what separates columns."),
    click.option("--text-encoding", metavar="NAME", help="For CSV: latin-1, for example.  [default: utf-8]"),
    names_option("--null-values", help_text="For CSV: more cells that count as missing: ?,unknown."),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        help="For CSV: the decimal mark; with a comma, --delimiter is ; if not given.",
    ),
    click.option(
        "--bad-rows",
        type=click.Choice(["raise", "skip"]),
        help="For CSV: what is done with rows that do not fit.  [default: raise]",
    ),
    click.option(
        "--unseen",
        type=click.Choice(UNSEEN),
        help="For tables: what becomes of categories that the model does not know; other needs a model that "
        "was fitted so.  [default: as for the fit, raise]",
    ),
    click.option(
        "--option",
        "others",
        type=InputInText(after_equals=True),
        multiple=True,
        metavar="NAME=VALUE",
        help="Any other option of open_source, its value as JSON or text: --option key=X.",
    ),
)
encoding_options = apply_options(
    click.option(
        "--standardize", is_flag=True, help="Scale numeric table columns to mean 0 and deviation 1."
    ),
    click.option(
        "--impute", type=click.Choice(["mean"]), help="Fill missing values; by default they are an error."
    ),
    click.option(
        "--categories",
        type=InputPath(exists=True, dir_okay=False),
        help="JSON file {column: [values]}: every category there is, so that parts of a table agree.",
    ),
    click.option(
        "--max-categories",
        type=click.IntRange(min=1),
        help="Most categories of a column; with --unseen other the rarest of more are joined.  "
        "[default: 10000]",
    ),
    click.option(
        "--like",
        type=InputPath(exists=True, dir_okay=False),
        help="Encode the table's columns as for this model or moments file.",
    ),
)
intersections_option = click.option(
    "--intersections",
    type=NameList(),
    multiple=True,
    metavar="A,B",
    help="Attributes whose combinations are groups too, such as sex,race; may be repeated.",
)
solving_options = apply_options(
    click.option(
        "-k",
        "--n-components",
        type=NumberOrShare(),
        metavar="K",
        help="Components to keep, or a share of the variance such as 0.95; by default as many as possible.",
    ),
    click.option(
        "-m",
        "--n-unfair",
        multiple=True,
        metavar="M",
        help="Second-moment directions to null: M for all attributes, ATTRIBUTE=M for each, or auto for "
        "those beyond chance.  [default: 1]",
    ),
    click.option("--constraint", type=click.Choice(CONSTRAINTS), default="all", show_default=True),
    click.option("--directions", type=click.Choice(DIRECTIONS), default="absolute", show_default=True),
    click.option(
        "--screen",
        metavar="N|LIMIT|NAMES",
        help="Columns that no component may use: the N that tell groups apart best, all above a LIMIT such "
        "as 0.5, or NAMES with commas.",
    ),
    click.option(
        "--guard",
        type=click.FloatRange(min=0),
        default=0.0,
        show_default=True,
        help="Price of what a nonlinear attacker reads, with --constraint none; 0.5 to 32 for tables, "
        "1 for many categories, 8 for images.",
    ),
    click.option(
        "--keep-target",
        type=click.FloatRange(min=0),
        default=0.0,
        show_default=True,
        help="With --guard: price of what is read of the target (numbers), to be kept.",
    ),
    click.option(
        "--dither",
        type=click.FloatRange(min=0),
        default=0.0,
        show_default=True,
        help="Noise that embedding rows will add, as a share of each score's deviation.",
    ),
)
SOLVING = ("n_components", "n_unfair", "constraint", "directions", "screen", "guard", "keep_target", "dither")
dither_options = apply_options(
    click.option(
        "--dither",
        type=click.FloatRange(min=0),
        help="Add noise of this share of each score's deviation, the same for the same row.  [default: the "
        "model's own]",
    ),
    click.option(
        "--dither-key",
        type=InputPath(),
        help="File with the secret key of the noise.  [default: $FAIRSTREAM_DITHER_KEY]",
    ),
)


def output_option(help_text: str, kinds: Collection[str] = ()) -> Callable[[F], F]:
    """Return the option -o, required; files of these kinds may be replaced."""
    return click.option("-o", "--output", type=OutputPath(kinds), required=True, help=help_text)


def open_data(
    data: Path,
    *,
    sensitive: tuple[str, ...] = (),
    features: list[str] | None = None,
    target: str | None = None,
    id_column: str | None = None,
    block_size: int | None = None,
    attributes: Path | None = None,
    others: tuple[str, ...] = (),
    standardize: bool = False,
    categories: Path | None = None,
    like: Path | None = None,
    intersections: tuple[tuple[str, ...], ...] = (),
    opener: Callable[..., BlockSource] = open_source,
    **named: Any,
) -> BlockSource:
    """Open the data that a command was given, with the options it was given; `named` pass as they are."""
    options = dict(map(_split_option, others))
    options |= {} if id_column is None else {"ids": _column(id_column, data)}
    options |= {name: value for name, value in named.items() if value is not None}
    options |= {} if attributes is None else {"attributes": attributes}
    options |= {"standardize": True} if standardize else {}
    options |= {} if categories is None else {"categories": _read_categories(categories)}
    options |= {} if like is None else {"encoding": _encoding_of(like)}
    source = opener(
        data,
        sensitive_features=_sensitive(sensitive, data),
        features=None if features is None else [_feature(name, data) for name in features],
        target=None if target is None else _column(target, data),
        block_size=block_size,
        **options,
    )
    return IntersectedSource(source, [*intersections]) if intersections else source


def skipped_rows(source: Any) -> dict[str, int]:
    """Return how many rows the last pass over a source skipped, as a fact to print; no fact if none."""
    number = int(getattr(source, "skipped_rows", 0))
    return {"rows_skipped": number} if number else {}


def solving_choices(given: dict[str, Any]) -> dict[str, Any]:
    """Take the values of `solving_options` out of what was given, as the library takes them."""
    choices = {name: given.pop(name) for name in SOLVING}
    texts = {"n_unfair": unfair_numbers(choices["n_unfair"]), "screen": screen_choice(choices["screen"])}
    return choices | texts


def ids_choice(id_column: str | None) -> bool | str:
    """Return the choice that --id-column makes: the name of a column, True for an index, False without it.

    Examples
    --------
    >>> ids_choice("person"), ids_choice("3"), ids_choice(None)
    ('person', True, False)
    """
    return (True if id_column.lstrip("-").isdigit() else id_column) if id_column else False


def unfair_numbers(values: tuple[str, ...]) -> int | str | dict[str, int]:
    """Read -m 5, -m auto, or -m sex=5 -m race=3.

    Examples
    --------
    >>> unfair_numbers(("5",)), unfair_numbers(("sex=5", "race=3")), unfair_numbers(("auto",))
    (5, {'sex': 5, 'race': 3}, 'auto')
    """
    if values == (AUTO,):
        return AUTO
    try:
        if len(values) <= 1 and "=" not in "".join(values):
            return int(values[0]) if values else 1
        pairs = [value.rsplit("=", 1) for value in values]
        return {name: int(number) for name, number in pairs}
    except ValueError:
        raise click.BadParameter(
            f"{' '.join(values)!r}: give M, auto, or ATTRIBUTE=M once per attribute", param_hint="-m"
        ) from None


def screen_choice(text: str | None) -> int | float | list[str] | None:
    """Return what --screen asks for: a number of columns, a limit, or names.

    Examples
    --------
    >>> screen_choice("3"), screen_choice("0.5"), screen_choice("sex,relationship")
    (3, 0.5, ['sex', 'relationship'])
    """
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return [name.strip() for name in split_names(text) if name.strip()]


def pair(text: str | None, option: str = "") -> int | tuple[int, int] | None:
    """Read one positive whole number, or two with a comma between them.

    Examples
    --------
    >>> pair("100,200"), pair("100"), pair(None)
    ((100, 200), 100, None)
    """
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise click.BadParameter(
            f"{text!r}: give one whole number from 1, or two as in 100,200", param_hint=option or None
        )
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def load_subspace(path: Path) -> FairSubspace | ChannelSubspaces:
    """Load a fair subspace, of one model or channel by channel, or solve a stored estimator for its own."""
    held = load(path)
    if isinstance(held, GroupMoments):
        raise click.ClickException(
            f"{path} holds moments: turn them into a model with fairstream solve first"
        )
    subspace: FairSubspace | ChannelSubspaces = (
        held if isinstance(held, FairSubspace | ChannelSubspaces) else held.subspace_
    )
    return subspace


def load_moments(path: Path) -> GroupMoments:
    """Load group moments, or take those of a stored estimator or checkpoint."""
    held = load(path)
    if isinstance(held, FairImagePCA):
        raise click.ClickException(
            f"{path} holds moments channel by channel: use FairImagePCA.resolve in Python"
        )
    moments = held if isinstance(held, GroupMoments) else getattr(held, "moments_", None)
    if not isinstance(moments, GroupMoments):
        raise click.ClickException(f"{path} holds no moments: make them with fairstream moments")
    return moments


def _encoding_of(path: Path) -> Any:
    held = load(path)
    encoding = (held.learner_ if hasattr(held, "learner_") else held).schema.encoding
    if encoding is None:
        raise click.ClickException(f"{path} was not made from a table: leave --like out")
    return encoding


def _split_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no '=': write NAME=VALUE", param_hint="--option")
    if name == "encoding":
        raise click.BadParameter(
            "encoding is not an option for files: for the character set of a text file write "
            f"--text-encoding {value}",
            param_hint="--option",
        )
    if name in ("sensitive", "sensitive_features", "features", "exclude", "target", "ids", "block_size"):
        own = "id-column" if name == "ids" else name.removesuffix("_features").replace("_", "-")
        raise click.BadParameter(
            f"{name} has its own option: write --{own}",
            param_hint="--option",
        )
    if name not in OPTIONS:
        known = ", ".join(sorted(OPTIONS - {"features", "exclude", "target", "ids", "encoding"}))
        raise click.BadParameter(
            f"{name!r} is not an option for files: choose from {known}", param_hint="--option"
        )
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _sensitive(values: tuple[str, ...], data: Path) -> Any:
    if not values:
        return None
    if all("=" in value for value in values):
        return {
            name: _read_labels(Path(file)) for name, _, file in (value.partition("=") for value in values)
        }
    return [_column(value, data) for value in values]


def _read_categories(file: Path) -> dict[str, Any]:
    try:
        categories = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}): write {{column: [values]}}") from None
    if not isinstance(categories, dict) or not all(isinstance(of, list | None) for of in categories.values()):
        raise ValueError(f"{file} holds no lists of categories: write {{column: [values]}}")
    return categories


def _read_labels(file: Path) -> Any:
    if not file.is_file():  # an empty name becomes "."
        raise FileNotFoundError(
            f"{file} is not a file: name one with a label per row, as in --sensitive NAME=FILE"
        )
    if file.suffix == ".npy":
        return np.load(file, allow_pickle=False)
    return [line or None for line in file.read_text(encoding="utf-8").splitlines()]


def _feature(name: str, data: Path) -> str | int:
    """Return a feature's name, or its index: in a store only labels and target have names."""
    return int(name) if data.suffix in (".h5", ".hdf5", ".zarr") and name.isdigit() else _column(name, data)


def _column(name: str, data: Path) -> str | int:
    """Return a column's name, or its index if columns have no names."""
    return int(name) if data.suffix in (".npy", ".npz") and name.lstrip("-").isdigit() else name
