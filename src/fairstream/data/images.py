"""The image source: a folder or zip of images as uint8 blocks, decoded ahead in worker threads."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairstream.data.blocks import Block, take_rows
from fairstream.data.cutting import check_block_size, default_block_size, reslice, row_ranges
from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.data.image_decoding import CHANNELS, Pixels, check_pixels, decode, size_of
from fairstream.data.image_files import FolderFiles, Read, ZipFiles, index_by_name, open_files
from fairstream.data.image_labels import read_labels
from fairstream.data.parts import check_part, cut_groups
from fairstream.data.roles import listed_names

BLOCKS_TOGETHER = 4  # of the usual size, which would be too few images for full-speed products
_IMAGES_PER_TASK = 16
_MAX_PIXELS, _MAX_FEATURE_PIXELS = 50_000_000, 2**20


@dataclass
class _Decoding:
    """A block that worker threads are filling."""

    start: int
    pixels: Pixels
    parts: list[Future[list[tuple[int, str]]]]


class ImageSource:
    """Blocks of images, one flattened uint8 image per row, channel by channel.

    Row layout is planar: all of red, then green, then blue, each height x width in C order, so that
    ``X[:, source.channel_slices[0]]`` is the red channel. Blocks are decoded in worker threads while
    earlier ones are worked on; at most `prefetch` + 1 blocks exist at a time.

    Parameters
    ----------
    files : FolderFiles or ZipFiles
        The source of the bytes.
    names : list of str
        Full names of the images, in the order of the rows.
    groups : dict of GroupColumn
        Labels of the rows.
    mode : {"rgb", "grey"}
        Three channels or one.
    resize : (height, width), optional
        Bring every image to this size; without it, images of different sizes are an error.
    block_size : int, optional
        Images in a block; about 32 MB by default.
    workers : int, optional
        Decoding threads; by default as many as there are processors, at most 8.
    prefetch : int
        Blocks decoded ahead.
    max_pixels : int, optional
        Refuse larger images, judging by their headers. By default 50 million with `resize`; without it
        1,048,576 (1024 x 1024), since every pixel is then a feature.
    max_bytes : int
        Refuse larger files, 128 MiB by default. Members of an archive that unpack to more than 16 MiB and a
        hundred times their stored size are refused too, and so is what is not a regular file.
    on_error : {"raise", "skip"}
        What to do with a broken image. Skipped ones are counted in `n_skipped` and named in `skipped`.

    Attributes
    ----------
    n_without_image : int
        Rows of the attribute table that were left out because their image is not there.
    """

    feature_names = None

    def __init__(
        self,
        files: FolderFiles | ZipFiles,
        names: Sequence[str],
        groups: dict[str, GroupColumn],
        *,
        mode: str = "rgb",
        resize: tuple[int, int] | None = None,
        block_size: int | None = None,
        workers: int | None = None,
        prefetch: int = 2,
        max_pixels: int | None = None,
        max_bytes: int = 2**27,
        on_error: str = "raise",
        n_without_image: int = 0,
    ) -> None:
        if mode not in CHANNELS:
            raise ValueError(f'mode is {mode!r}: pass "rgb" or "grey"')
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is {on_error!r}: pass "raise" or "skip"')
        numbers = {"workers": workers, "prefetch": prefetch, "max_pixels": max_pixels, "max_bytes": max_bytes}
        for argument, value in numbers.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{argument} is {value!r}: pass a whole number, 1 or more")
        self._files, self._names, self._groups = files, list(names), groups
        self.mode = mode
        self._resize = None if resize is None else _checked_size(resize)
        self._wished_block_size = check_block_size(block_size)
        self._workers = workers or min(8, _processors())
        self._prefetch, self._max_bytes, self._on_error = prefetch, max_bytes, on_error
        self._max_pixels = max_pixels or (_MAX_FEATURE_PIXELS if resize is None else _MAX_PIXELS)
        self._shape = self._resize
        self._skipped: set[str] = set()
        self._read_all = False
        self.n_without_image = n_without_image

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width, from `resize` or the header of the first image."""
        if self._shape is None:
            with self._files.reading(self._max_bytes) as read:
                self._shape = self._first_size(read)
        return self._shape

    @property
    def n_channels(self) -> int:
        """Three for RGB, one for grey."""
        return CHANNELS[self.mode]

    @property
    def channel_slices(self) -> tuple[slice, ...]:
        """Columns of each channel."""
        size = self.image_shape[0] * self.image_shape[1]
        return tuple(slice(c * size, (c + 1) * size) for c in range(self.n_channels))

    @property
    def block_size(self) -> int:
        """Images in every block but the last."""
        return self._wished_block_size or default_block_size(self.n_features / BLOCKS_TOGETHER)

    @property
    def n_features(self) -> int:
        """Channels x height x width."""
        return self.n_channels * self.image_shape[0] * self.image_shape[1]

    @property
    def n_rows(self) -> int | None:
        """Number of images; with on_error="skip" known after the first full pass."""
        if self._on_error == "skip" and not self._read_all:
            return None
        return len(self._names) - len(self._skipped)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the images in the order of the rows, broken ones included."""
        return tuple(self._names)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of the broken images met so far."""
        return tuple(sorted(self._skipped))

    @property
    def n_skipped(self) -> int:
        """Number of broken images met so far."""
        return len(self._skipped)

    @property
    def cuts(self) -> range:
        """Images that a part may begin at: any."""
        return range(len(self._names) + 1)

    @property
    def part_rows(self) -> int:
        """Images that are worth a task of their own: a block, since each takes a millisecond or so."""
        return max(64, default_block_size(self.n_features))

    def part(self, start: int, stop: int) -> ImageSource:
        """Return a source over some of the images; the first of all still tells their size."""
        check_part(self, start, stop)
        other = copy.copy(self)
        other._shape, other._names = self.image_shape, self._names[start:stop]
        other._files = self._files.only(other._names)
        other._groups = cut_groups(self._groups, start, stop)
        other._skipped, other._read_all = set(), False
        return other

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order; threads and the archive live only while this runs."""
        # A block that lost a broken image is filled up from the next; whole ones pass through uncopied.
        return reslice(self._decoded(self.block_size), self.block_size)

    def _decoded(self, block_size: int) -> Iterator[Block]:
        with self._files.reading(self._max_bytes) as read:
            pool = ThreadPoolExecutor(self._workers, thread_name_prefix="fairstream-decode")
            try:
                ahead: deque[_Decoding] = deque()
                for start, stop in row_ranges(len(self._names), block_size):
                    ahead.append(self._submit(pool, read, start, stop))
                    if len(ahead) > self._prefetch:
                        yield self._finish(ahead.popleft())
                while ahead:
                    yield self._finish(ahead.popleft())
                self._read_all = True
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, read: Read, start: int, stop: int) -> _Decoding:
        pixels = np.empty((stop - start, self.n_features), dtype=np.uint8)
        parts = [
            pool.submit(self._decode_rows, read, start + first, pixels[first:last])
            for first, last in row_ranges(stop - start, _IMAGES_PER_TASK)
        ]
        return _Decoding(start, pixels, parts)

    def _finish(self, decoding: _Decoding) -> Block:
        broken = [failure for part in decoding.parts for failure in part.result()]
        rows = slice(decoding.start, decoding.start + len(decoding.pixels))
        groups = take_rows(self._groups, rows)
        if not broken:
            return Block(decoding.pixels, groups)
        if self._on_error == "raise":
            index, reason = broken[0]
            raise self._unusable(self._names[index], reason)
        whole = np.ones(len(decoding.pixels), dtype=bool)
        for index, _ in broken:
            self._skipped.add(self._names[index])
            whole[index - decoding.start] = False
        kept = np.flatnonzero(whole)
        return Block(decoding.pixels[kept], take_rows(groups, kept))

    def _decode_rows(self, read: Read, start: int, rows: Pixels) -> list[tuple[int, str]]:
        """Decode consecutive images into their rows; return what failed and why."""
        shape = self.image_shape
        failed = []
        for offset, row in enumerate(rows):
            try:
                data = read(self._names[start + offset])
                image = decode(data, mode=self.mode, resize=self._resize, max_pixels=self._max_pixels)
                if image.shape[:2] != shape:
                    raise ValueError(
                        f"it is {image.shape[0]} x {image.shape[1]}, the first is {shape[0]} x {shape[1]} "
                        "(pass resize=(height, width) to bring all to one size)"
                    )
                row.reshape(self.n_channels, *shape)[:] = image.transpose(2, 0, 1)
            except (ValueError, OSError) as error:
                failed.append((start + offset, str(error)))
                if self._on_error == "raise":
                    break
        return failed

    def _first_size(self, read: Read) -> tuple[int, int]:
        for name in self._names:
            try:
                height, width = size_of(read(name))
                check_pixels(height, width, self._max_pixels)
                return height, width
            except (ValueError, OSError) as error:
                if self._on_error == "raise":
                    raise self._unusable(name, error) from None
        raise ValueError(
            f"{self._files.place}: not one of {len(self._names):,} images can be read: check the files"
        )

    def _unusable(self, name: str, reason: object) -> ValueError:
        return ValueError(
            f'{self._files.place}: image {name} cannot be used: {reason}; pass on_error="skip" to skip it'
        )


def open_images(
    path: Path,
    *,
    sensitive_features: Any = None,
    attributes: Any = None,
    name_column: str | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> ImageSource:
    """Open a folder or zip of images, with labels from an attribute table or passed in.

    With `attributes` (a path to a CelebA text file, CSV or Parquet, or a frame), `sensitive_features` lists
    its columns; rows without an image are left out and counted in `n_without_image`, images without a row are
    left out. With `names`, these images are read in this order, and `sensitive_features` may hold one label
    for each.
    """
    files = open_files(path)
    index = index_by_name(files.names)
    if attributes is None:
        if name_column is not None:
            raise ValueError("name_column does not apply without attributes: leave it out")
        chosen = files.names if names is None else _found(names, index, path)
        if listed_names(sensitive_features) is not None and len(sensitive_features) != len(chosen):
            raise ValueError(
                f"sensitive_features names {sensitive_features!r}: pass the table that has it as "
                "attributes=..."
            )
        groups = {} if sensitive_features is None else encode_groups(sensitive_features, len(chosen))
        return ImageSource(files, chosen, groups, **options)
    wanted = listed_names(sensitive_features)
    if wanted is None:
        raise ValueError(
            "attributes does not apply without sensitive_features=[...]: name the columns to use"
        )
    listed, columns, missing = read_labels(attributes, wanted, name_column, index)
    rows = {index[name]: row for row, name in enumerate(listed)}
    if len(rows) < len(listed):
        raise ValueError("attributes has two rows for one image: give each image one row")
    if names is not None:
        chosen = _found(names, index, path)
        unlabelled = [name for name in chosen if name not in rows]
        if unlabelled:
            raise ValueError(f"names lists {unlabelled[0]}, which has no row in attributes: leave it out")
    else:
        chosen = list(rows)
    if not chosen:
        raise ValueError(
            f"no image of {path} has a row in attributes: check the column of names, name_column=..."
        )
    order = np.array([rows[name] for name in chosen], dtype=np.intp)
    return ImageSource(files, chosen, take_rows(columns, order), n_without_image=missing, **options)


def _found(names: Sequence[str], index: dict[str, str], path: Path) -> list[str]:
    absent = [name for name in names if name not in index]
    if absent:
        raise ValueError(
            f"names lists {absent[0]!r} and {len(absent) - 1} more that {path} does not hold: leave them out"
        )
    return [index[name] for name in names]


def _checked_size(resize: Any) -> tuple[int, int]:
    sizes = tuple(resize) if isinstance(resize, tuple | list) else ()
    if len(sizes) != 2 or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
        raise ValueError(f"resize is {resize!r}: pass (height, width)")
    return sizes[0], sizes[1]


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
