"""The power method from the very start that the paper's FNPM rows had: JAX's random numbers with seed 0.

100 + 100 steps are not converged, so those cells depend on the start. This is the generator of JAX before
version 0.5 (Threefry-2x32, 20 rounds, `jax_threefry_partitionable=False`), as far as it is needed here.
Salmon et al., Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfinv

from fairstream import FairPowerMethod

Key = tuple[np.uint32, np.uint32]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
SEED_0 = (np.uint32(0), np.uint32(0))


def threefry(key: Key, counts: np.ndarray) -> np.ndarray:
    """Return one random 32-bit word for every count; the first half of the counts goes with the second."""
    words = [*key, key[0] ^ key[1] ^ _PARITY]
    padded = np.append(counts, np.zeros(len(counts) % 2, counts.dtype)).astype(np.uint32)
    x, y = np.split(padded, 2)
    with np.errstate(over="ignore"):
        x, y = x + words[0], y + words[1]
        for i in range(1, 6):
            for turn in _ROTATIONS[(i - 1) % 2]:
                x = x + y
                y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
                y = y ^ x
            x, y = x + words[i % 3], y + words[(i + 1) % 3] + np.uint32(i)
    return np.concatenate([x, y])[: len(counts)]


def split_key(key: Key) -> tuple[Key, Key]:
    """Return the key to go on with, and the key to draw from."""
    a, b, c, d = threefry(key, np.arange(4))
    return (a, b), (c, d)


def normal(key: Key, shape: tuple[int, int]) -> np.ndarray:
    """Return standard normal numbers, to single precision those of JAX."""
    bits = threefry(key, np.arange(shape[0] * shape[1]))
    mantissa = (bits >> np.uint32(9)) | np.uint32(0x3F800000)  # numbers from 1 to 2
    least = np.nextafter(np.float32(-1), np.float32(0))
    uniform = np.maximum(least, (mantissa.view(np.float32) - 1) * (1 - least) + least)
    return (np.sqrt(2) * erfinv(uniform)).reshape(shape)


def papers_start(d: int, k: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return V (d x k) and W (d x m) as the paper's runs drew them."""
    key, draw = split_key(SEED_0)
    _, draw_next = split_key(key)
    V, W = normal(draw, (d, k)), normal(draw_next, (d, m))
    return np.linalg.qr(V)[0], np.linalg.qr(W)[0]


def papers_fnpm(X: np.ndarray, groups: np.ndarray, k: int, m: int, steps: int = 100) -> np.ndarray:
    """Return V (d x k) after `steps` + `steps` steps of the library's power method over all rows."""
    choice = {"constraint": "all", "n_unfair": m} if m else {"constraint": "mean"}
    method = FairPowerMethod(X.shape[1], k, power_steps=(steps, steps), **choice)
    V, W = papers_start(X.shape[1], k, m)
    if m:
        method = _put_in(method, W)
    while method.phase == "unfair":
        method.update(X, groups).end_step()
    U = method.unfair_basis.T
    method = _put_in(method, V - U @ (U.T @ V))
    for _ in range(steps):
        method.update(X).end_step()
    return method.components.T


def _put_in(method: FairPowerMethod, Q: np.ndarray) -> FairPowerMethod:
    """Return the method with Q for its running basis, by way of the state that it would be stored in."""
    header, arrays = method.to_state()
    return FairPowerMethod.from_state(header, {**arrays, "Q": Q})
