"""Which rows have confirmed a search before: whoever searches until they agree has chosen by them."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

import numpy as np

from fairstream.data.fingerprints import row_fingerprints
from fairstream.moments.sample import SampledRows

# Searches by the digest of their rows. Another process cannot know of them: the docs say so.
_CONFIRMED: Counter[bytes] = Counter()


def searches_before(rows: SampledRows) -> int:
    """Count one more search that these rows confirm; return how many there were before, in this process."""
    digest = blake2b(digest_size=16)
    digest.update(np.sort(row_fingerprints(rows.X)).tobytes())
    for attribute, codes in sorted(rows.codes.items()):
        digest.update(f"{attribute}: {rows.labels[attribute]} {codes.sum()}".encode())
    before = _CONFIRMED[digest.digest()]
    _CONFIRMED[digest.digest()] += 1
    return before
