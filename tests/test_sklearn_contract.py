"""All of scikit-learn's common checks, none excused."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairstream import FairEraser, FairStreamingPCA


def row_labels(X):
    """Two groups from the rows themselves, whatever odd input a check passes."""
    try:
        dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=float)
        with np.errstate(invalid="ignore"):
            values = np.floor(np.abs(dense.sum(axis=1)) * 7.3)
        labels = np.where(np.isfinite(values), values % 2, 0)
    except (TypeError, ValueError, IndexError):
        return np.zeros(np.shape(X)[0] if np.ndim(X) else 0)
    if len(labels) > 1 and len(np.unique(labels)) == 1:
        labels[0] = 1 - labels[0]
    return labels


class SelfGrouped:
    """An estimator with groups taken from X, so that checks which know no groups can run it."""

    def fit(self, X, y=None, sensitive_features=None, sample_weight=None):
        return super().fit(X, y, sensitive_features=row_labels(X), sample_weight=sample_weight)

    def partial_fit(self, X, y=None, sensitive_features=None, sample_weight=None):
        return super().partial_fit(X, y, sensitive_features=row_labels(X), sample_weight=sample_weight)


class SelfGroupedPCA(SelfGrouped, FairStreamingPCA):
    pass


class SelfGroupedEraser(SelfGrouped, FairEraser):
    pass


@pytest.mark.filterwarnings("ignore:fewer than min_group_size")  # the checks know few rows
@parametrize_with_checks(
    [
        FairStreamingPCA(constraint="none"),
        FairStreamingPCA(constraint="none", solver="sketch", rank=1000),
        SelfGroupedPCA(constraint="mean"),
        SelfGroupedPCA(constraint="mean", solver="sketch", rank=1000),
        FairEraser(constraint="none"),
        SelfGroupedEraser(constraint="mean"),
        SelfGroupedEraser(constraint="mean", solver="sketch", rank=1000),
    ]
)
def test_scikit_learn_common_checks(estimator, check):
    check(estimator)
