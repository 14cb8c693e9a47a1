"""CelebA: an index of the images that are there, their forty attributes and the official partition."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, scandir
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.data.image_labels import read_celeba

PARTITIONS = ("train", "valid", "test")

_ATTRIBUTES = "list_attr_celeba.txt"
_PARTITION = "list_eval_partition.txt"
_FOLDER = "img_align_celeba"
_ARCHIVE = "img_align_celeba.zip"
# The official download keeps its files in these folders; most copies have them side by side.
_PLACES = (".", "Anno", "Eval", "Img")


@dataclass(frozen=True, slots=True, eq=False)
class CelebASelection:
    """Some images of CelebA: where they are stored, and their groups, in the same order.

    Parameters
    ----------
    names : tuple of str
        The images.
    groups : dict of str to GroupColumn
        Their groups, by attribute.
    images : path
        The folder or the zip archive that holds them.
    members : tuple of str
        Of every image the file name below that folder, or the member name in that archive.
    """

    names: tuple[str, ...]
    groups: Mapping[str, GroupColumn]
    images: Path
    members: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)


class CelebA:
    """The aligned CelebA images below `root`, indexed but not decoded.

    Parameters
    ----------
    root : path
        A folder with `img_align_celeba/` or `img_align_celeba.zip`, `list_attr_celeba.txt` and
        `list_eval_partition.txt`, side by side or in the official subfolders Img, Anno and Eval.

    Attributes
    ----------
    images : Path
        The folder with the images, or the archive if there is no folder.
    names : tuple of str
        The images that are there, in the order of the attribute file.
    attributes : mapping of str to bool array
        One array per attribute, one value per name (read-only).
    partition : int8 array
        0 (train), 1 (valid) or 2 (test) per name.
    n_missing : int
        Rows of the attribute file that were skipped because their image is not there.

    Examples
    --------
    >>> faces = CelebA("data/celeba")  # doctest: +SKIP
    >>> train = faces.select(partition="train", attributes=["Eyeglasses"])  # doctest: +SKIP
    >>> train.groups["Eyeglasses"].labels  # doctest: +SKIP
    (False, True)
    """

    def __init__(self, root: str | PathLike[str]) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"root is {str(root)!r}, which is not a folder: pass CelebA's folder")
        self.images = _find(self.root, _FOLDER, _ARCHIVE)
        listed, attributes, _ = read_celeba(_find(self.root, _ATTRIBUTES))
        partition = _read_partition(_find(self.root, _PARTITION), listed)
        member_of = _images_in(self.images)
        present = np.fromiter((name in member_of for name in listed), dtype=bool, count=len(listed))
        self.n_missing = int(len(listed) - present.sum())
        self.names = tuple(name for name in listed if name in member_of)
        if not self.names:
            raise ValueError(f"{self.images} holds none of the {len(listed):,} images of {_ATTRIBUTES}")
        self.partition: NDArray[np.int8] = partition[present]
        self.attributes: Mapping[str, NDArray[np.bool_]] = {
            name: values[present] for name, values in attributes.items()
        }
        for array in (self.partition, *self.attributes.values()):
            array.setflags(write=False)
        self._members = tuple(member_of[name] for name in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"CelebA({str(self.root)!r}): {len(self):,} images, {self.n_missing:,} listed without an image"

    def select(self, *, partition: str | None = None, attributes: Sequence[str] = ()) -> CelebASelection:
        """Return the images of one partition with the groups of some attributes.

        Parameters
        ----------
        partition : {"train", "valid", "test"}, optional
            The official part; None for all images.
        attributes : sequence of str
            The attributes to encode, for example `["Male", "Eyeglasses"]`.

        Returns
        -------
        CelebASelection
        """
        if partition is not None and partition not in PARTITIONS:
            raise ValueError(f"partition is {partition!r}: choose one of {', '.join(map(repr, PARTITIONS))}")
        if isinstance(attributes, str):
            raise ValueError(f"attributes is {attributes!r}: pass a list, [{attributes!r}]")
        for attribute in attributes:
            if attribute not in self.attributes:
                known = ", ".join(self.attributes)
                raise ValueError(f"attributes has {attribute!r}, which CelebA does not: choose from {known}")
        if partition is None:
            rows = np.arange(len(self))
        else:
            rows = np.flatnonzero(self.partition == PARTITIONS.index(partition))
        columns = {attribute: self.attributes[attribute][rows] for attribute in attributes}
        return CelebASelection(
            names=tuple(self.names[row] for row in rows),
            groups=encode_groups(columns, len(rows)) if columns else {},
            images=self.images,
            members=tuple(self._members[row] for row in rows),
        )


def _find(root: Path, *names: str) -> Path:
    """Return the first of `names` that exists at one of the usual places."""
    for name in names:
        for place in _PLACES:
            path = root / place / name
            if path.is_dir() if name == _FOLDER else path.is_file():
                return path
    raise FileNotFoundError(f"{root} has no {' and no '.join(names)}: put CelebA's {names[-1]} there")


def _read_partition(path: Path, listed: list[str]) -> NDArray[np.int8]:
    """Return the partition number of every listed image."""
    number_of: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="ascii").rstrip().splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file: download it again") from None
    for number, line in enumerate(lines, start=1):
        name, *part = line.split() or [""]
        if part not in (["0"], ["1"], ["2"]):
            raise ValueError(
                f"{path} line {number} is not an image name and 0, 1 or 2: download the file again"
            )
        number_of[name] = int(part[0])
    try:
        parts = [number_of[name] for name in listed]
    except KeyError as error:
        raise ValueError(
            f"{path} does not list {error.args[0]}, {_ATTRIBUTES} does: download both again"
        ) from None
    return np.array(parts, dtype=np.int8)


def _images_in(images: Path) -> dict[str, str]:
    """Map every file name to its path below the folder, or to its member of the archive."""
    if images.is_dir():
        with scandir(images) as entries:
            return {entry.name: entry.name for entry in entries}
    try:
        with zipfile.ZipFile(images) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile:
        raise ValueError(f"{images} is not a complete zip archive: download it again") from None
    return {member.rpartition("/")[2]: member for member in members}
