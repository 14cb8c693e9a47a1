"""What a summary refuses: rows, weights and other summaries that do not fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fairstream.data.blocks import Matrix
from fairstream.data.matrices import check_matrix
from fairstream.linalg import FloatArray, is_finite
from fairstream.linalg.products import check_values, largest_value

if TYPE_CHECKING:
    from fairstream.moments.summary import GroupMoments


def checked_rows(X: Any, n_features: int, dtype: np.dtype[Any], *, scale_known: bool = False) -> Matrix:
    """Return X as an array or CSR matrix of finite real numbers with the right number of columns."""
    check_matrix(X)
    X = sp.csr_array(X) if sp.issparse(X) else np.asanyarray(X)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, {n_features} columns are expected")
    if X.shape[0] == 0:
        raise ValueError("X has no rows: pass at least one")
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {values.dtype}: pass real numbers")
    check_values(values, dtype, scale_known=scale_known)
    return X


def checked_weights(sample_weight: Any, X: Matrix, dtype: np.dtype[Any]) -> FloatArray | None:
    """Return the weights as float64, None where there are none; with them no sum over X may overflow."""
    if sample_weight is None:
        return None
    n_rows = X.shape[0]
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape}, X has {n_rows} rows: one weight per row")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight has negative or non-finite entries: weights must be >= 0")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to learn from")
    heaviest = float(weights.max())
    if heaviest > 1e6:  # less is within the margin that check_values leaves
        values = X.data if sp.issparse(X) else X
        largest = max(abs(float(values.min(initial=0))), abs(float(values.max(initial=0))), 1.0)
        limit = min((largest_value(dtype) / largest) ** 2, 1e100)
        if heaviest > limit:
            raise ValueError(
                f"sample_weight has values up to {heaviest:.2g}: beyond {limit:.2g} weighted sums of squares "
                f"of this X overflow in {np.dtype(dtype)}, rescale sample_weight"
            )
    return weights


def check_sound(moments: GroupMoments) -> None:
    """Refuse to solve moments with NaN or infinity in them: a gap of NaN would count as none."""
    scatter = moments._scatter
    arrays: dict[str, Any] = {"weights": moments._weights, "means": moments._means, "cores": scatter.cores}
    arrays |= {name: getattr(scatter, name, None) for name in ("basis", "offsets", "energy")}
    for name, array in arrays.items():
        if array is not None and not is_finite(array):
            raise ValueError(
                f"the moments have overflowed or were changed, their {name} hold NaN or infinite values: "
                "rescale X or sample_weight and collect them again"
            )


def check_is_summary(mine: GroupMoments, other: object) -> None:
    """Refuse to merge with anything but another summary."""
    if not isinstance(other, type(mine)):
        raise TypeError(f"other is a {type(other).__name__}: merge takes another {type(mine).__name__}")


def check_mergeable(mine: GroupMoments, other: GroupMoments) -> None:
    """Raise unless two summaries are of the same columns, in the same way, with the same attributes."""
    for name in ("n_features", "rank", "dtype"):
        ours, theirs = getattr(mine, name), getattr(other, name)
        if ours != theirs:
            raise ValueError(f"other has {name}={theirs}, this summary has {name}={ours}: both must agree")
    for name in ("feature_names", "encoding"):
        ours, theirs = getattr(mine, name), getattr(other, name)
        if None not in (ours, theirs) and ours != theirs:
            raise ValueError(
                f"other has another {name} than this summary: their columns do not mean the same; "
                "collect both with the same features and categories"
            )
    both = mine.n_rows > 0 and other.n_rows > 0
    if both and mine.groups.keys() != other.groups.keys():
        raise ValueError(
            f"other has the attributes {[*other.groups]}, this summary has {[*mine.groups]}: "
            "merge summaries of the same attributes"
        )
