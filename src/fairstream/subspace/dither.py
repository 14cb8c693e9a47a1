"""Dither: keyed noise on scores, the same for the same row; it blurs the lattice that one-hot data leaves.

The noise of a row is a function of the key and of the row's values only: it cannot be removed without the
key, and embedding the same row twice does not average it away. It protects as long as the key is secret.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fairstream.data.blocks import Matrix
from fairstream.data.fingerprints import row_fingerprints
from fairstream.data.ids import checked_ids
from fairstream.errors import FairstreamWarning
from fairstream.linalg import FloatArray

DitherKey: TypeAlias = str | os.PathLike[str] | bytes | None

KEY_VARIABLE = "FAIRSTREAM_DITHER_KEY"
LEAST_KEY = 16  # bytes: shorter ones can be guessed
_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4").astype(np.uint32)
_WORDS = 16  # of a ChaCha block
_SLICE_ROWS = 16_384
ERASED = b"erased rows"  # the stream of noise on them; that of scores has no name


def dither_key(source: DitherKey = None) -> bytes:
    """Return the key: the bytes given, those of a file, or of the environment's FAIRSTREAM_DITHER_KEY.

    Parameters
    ----------
    source : bytes or path, optional
        The key itself, or a file that holds it (white space at its ends does not count). None reads the
        environment variable.

    Examples
    --------
    >>> dither_key(b"sixteen bytes or more")
    b'sixteen bytes or more'
    """
    if isinstance(source, bytes):
        key, origin = source, "the key"
    elif source is not None:
        key, origin = _key_in_file(source), "the key file of dither"
    else:
        key, origin = os.environ.get(KEY_VARIABLE, "").encode(), f"the environment variable {KEY_VARIABLE}"
        if not key:
            raise ValueError(
                f"dither needs a secret key: set the environment variable {KEY_VARIABLE}, or name a file "
                'that holds it (made by `python -c "import secrets; print(secrets.token_hex(32))"`); '
                "dither=0 would add no noise, and attackers would read more"
            )
    if len(key) < LEAST_KEY:
        raise ValueError(f"{origin} holds {len(key)} bytes: a key needs at least {LEAST_KEY} secret ones")
    return key


def _key_in_file(path: str | os.PathLike[str]) -> bytes:
    """Return what a key file holds. Errors do not repeat its name: it may be the secret itself."""
    try:
        return Path(path).read_bytes().strip()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "it is no path").lower()
    raise ValueError(
        f"the key file of dither cannot be read ({reason}): name a file that holds the key; a key itself is "
        "passed as bytes"
    )


def check_dither(dither: object) -> None:
    """Refuse anything but a share of a deviation."""
    number = isinstance(dither, int | float | np.number) and not isinstance(dither, bool)
    if not number or not 0 <= float(dither) < np.inf:  # type: ignore[arg-type]
        raise ValueError(f"dither={dither!r}: give a share of each score's deviation from 0, such as 0.3")


def dithering(
    X: Matrix,
    deviations: FloatArray,
    key: DitherKey = None,
    ids: ArrayLike | None = None,
    stream: bytes = b"",
) -> FloatArray:
    """Return noise (n, k) of these deviations for the rows of X, or for the people whose rows they are.

    Every stream has noise of its own. If the scores and the erased form of a row shared it, whoever has both
    could remove some of it.
    """
    if ids is not None:
        warn_of_shared_identities(ids, X)
    rows = X if ids is None else identities(ids, X.shape[0])
    noise: FloatArray = keyed_noise(rows, len(deviations), dither_key(key), stream) * deviations
    return noise


def check_ids_given(asked: bool | str, dither: float, ids: object) -> None:
    """Refuse to add noise without ids if the model was chosen for noise that depends on them."""
    if not asked or not dither or ids is not None:
        return
    frame = f", a frame with the column {asked!r}" if isinstance(asked, str) else ""
    raise ValueError(
        "the noise of this model depends on whose row it is, and no ids are given: pass ids, one whole "
        f"number or text per row{frame}, or dither=0 to add no noise"
    )


def warn_of_unused(dither: float, key: DitherKey, ids: object) -> None:
    """Warn if a key or ids are given, and no noise is added that would depend on them."""
    given = [name for name, value in (("a key", key), ("ids", ids)) if value is not None]
    if given and not dither:
        warnings.warn(
            f"{' and '.join(given)} given, but the model has no dither, so no noise is added: set dither=0.3 "
            "for instance, or leave them out",
            FairstreamWarning,
            stacklevel=4,
        )


def warn_of_less(dither: float, meant: float) -> None:
    """Warn if less noise is asked for than the model was chosen with: its audit does not hold then."""
    if dither < meant:
        warnings.warn(
            f"dither={dither:g} adds {'less' if dither else 'no'} noise, the model was chosen with {meant:g}"
            f": rows are hidden less well than its tuning or audit said; pass dither={meant:g} for as much",
            FairstreamWarning,
            stacklevel=5,
        )


def part_key(key: DitherKey, part: int) -> bytes:
    """Return a separate key for one of several parts of a row.

    With one key, an id would get the same noise in every part, and differences of parts would have none.
    """
    return hashlib.blake2b(
        dither_key(key), salt=part.to_bytes(16, "little"), person=b"fairstream part"
    ).digest()


def identities(ids: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Return ids as rows of numbers, the same for the same id however many there are, for `dithering`.

    Examples
    --------
    >>> identities([7, -8], 2).tolist()
    [[7.0, 0.0], [-8.0, 0.0]]
    >>> identities(["a", "b"], 2).tolist()
    [[-1.0, 97.0], [-1.0, 98.0]]
    """
    values = checked_ids(ids, n_rows)
    if values.dtype.kind == "U":
        points = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))).view(np.uint32)
        # Zeros do not count in a fingerprint, so the length of the longest text does not either.
        letters = points.reshape(n_rows, values.dtype.itemsize // 4)
        return np.column_stack([np.full(n_rows, -1.0), letters.astype(np.float64)])
    size, sign = np.abs(values).astype(np.uint64), np.where(values < 0, -1.0, 1.0)
    low, high = size & np.uint64(2**53 - 1), size >> np.uint64(53)
    return np.column_stack([sign * low, sign * high]) + 0.0  # no -0


def warn_of_shared_identities(ids: ArrayLike, X: Matrix) -> None:
    """Warn if different rows have the same id: they get the same noise, which differences remove."""
    values, whose = np.unique(checked_ids(ids, X.shape[0]), return_inverse=True)
    if len(values) == len(whose):
        return
    fingerprints = row_fingerprints(X)
    pairs = np.unique(np.column_stack([whose.astype(np.uint64), fingerprints]), axis=0)
    if len(pairs) > len(values):
        warnings.warn(
            f"ids gives {len(whose):,} rows {len(values):,} numbers, and different rows the same one: they "
            "get the same noise, so that differences between them have none; number every person",
            FairstreamWarning,
            stacklevel=5,
        )


def keyed_noise(X: Matrix, n_columns: int, key: bytes, stream: bytes = b"") -> FloatArray:
    """Return standard normal noise (n, n_columns) that depends on key, stream and each row's values only.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> noise = keyed_noise(X, 3, b"sixteen bytes or more")
    >>> bool((noise[0] == noise[2]).all()), bool((noise[0] == noise[1]).any())
    (True, False)
    """
    secret = hashlib.blake2b(key, digest_size=48, person=b"fairstreamdither", salt=stream).digest()
    # The hash is keyed too: without the key nobody can construct two rows with the same noise.
    fingerprints = row_fingerprints(X, int.from_bytes(secret[32:], "little"))
    noise = np.empty((len(fingerprints), n_columns))
    for start in range(0, len(fingerprints), _SLICE_ROWS):
        rows = slice(start, start + _SLICE_ROWS)
        for block in range(0, n_columns, _WORDS):
            columns = slice(block, min(block + _WORDS, n_columns))
            words = _chacha(secret[:32], fingerprints[rows], block // _WORDS)[: columns.stop - block]
            noise[rows, columns] = ndtri((words.T + 0.5) / 2.0**32)
    return noise


def _chacha(key: bytes, nonces: NDArray[np.uint64], counter: int) -> NDArray[np.uint32]:
    """Return 16 pseudo-random words for every nonce: a block of ChaCha20 (RFC 8439), all rows at once."""
    state = np.empty((_WORDS, len(nonces)), dtype=np.uint32)
    state[:4] = _CONSTANTS[:, None]
    state[4:12] = np.frombuffer(key, dtype="<u4").astype(np.uint32)[:, None]
    state[12] = counter
    state[13] = 0
    state[14] = (nonces & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    state[15] = (nonces >> np.uint64(32)).astype(np.uint32)
    return chacha_block(state)


def chacha_block(state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the ChaCha20 blocks of many initial states, a column each (16, n)."""
    x = [word.copy() for word in state]
    for _ in range(10):
        for column in range(4):
            _quarter_round(x, column, column + 4, column + 8, column + 12)
        for column in range(4):
            _quarter_round(x, column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12)
    return np.stack(x) + state


def _quarter_round(x: list[NDArray[np.uint32]], a: int, b: int, c: int, d: int) -> None:
    for target, added, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[target] += x[added]
        word: Any = x[turned] ^ x[target]
        x[turned] = (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
