"""Matrices that cannot be read as they stand are refused at every door, before compiled code follows them."""

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream import FairImagePCA, FairPowerMethod, FairStreamingPCA, GroupMoments, fit_source, open_source
from fairstream.data.matrices import check_matrix

N, D = 60, 12


def sample(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.4)
    return X, np.arange(N) % 2


def negative_index(X):
    X.indices[3] = -5


def index_beyond_the_shape(X):
    X.indices[3] = max(X.shape)


def far_index(X):
    X.indices[:] = -1_000_000


def short_pointers(X):
    X.indptr = X.indptr[:10].copy()


def pointers_that_fall(X):
    X.indptr[5] = 1


def pointers_from_one(X):
    X.indptr[0] = 1


def pointers_beyond_the_values(X):
    X.indptr[-1] += 100


DAMAGE = [
    negative_index,
    index_beyond_the_shape,
    far_index,
    short_pointers,
    pointers_that_fall,
    pointers_from_one,
    pointers_beyond_the_values,
]


def entrances():
    """Every way in for a matrix, as functions of it; whatever is fitted was fitted on sound rows."""
    X, sex = sample()
    fitted = FairStreamingPCA(2).fit(X, sensitive_features=sex)
    images = FairImagePCA(2).fit(X, sensitive_features=sex)
    power = {"solver": "power", "step_rows": (20, 20), "power_steps": 1}
    return {
        "GroupMoments.update": lambda X: GroupMoments(D).update(X, sex),
        "GroupMoments.update, sketch": lambda X: GroupMoments(D, rank=3).update(X, sex),
        "FairPowerMethod.update": lambda X: FairPowerMethod(D, 2, step_rows=20).update(X, sex),
        "FairPowerMethod.fit_full": lambda X: FairPowerMethod(D, 2).fit_full(X, sex),
        "fit": lambda X: FairStreamingPCA(2).fit(X, sensitive_features=sex),
        "fit, power": lambda X: FairStreamingPCA(2, **power).fit(X, sensitive_features=sex),
        "partial_fit": lambda X: FairStreamingPCA(2).partial_fit(X, sensitive_features=sex),
        "transform": fitted.transform,
        "erase": fitted.erase,
        "embed": fitted.subspace_.embed,
        "FairSubspace.erase": fitted.subspace_.erase,
        "images: fit": lambda X: FairImagePCA(2).fit(X, sensitive_features=sex),
        "images: partial_fit": lambda X: FairImagePCA(2).partial_fit(X, sensitive_features=sex),
        "images: transform": images.transform,
        "images: embed": images.subspace_.embed,
        "open_source": lambda X: open_source(X, sensitive_features=sex),
        "open_source, blocks": lambda X: [*open_source([(X, sex)])],
    }


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix])
def test_a_damaged_sparse_matrix_is_refused_everywhere(kind, damage):
    for enter in entrances().values():
        X = kind(sample()[0])
        enter(X)  # the control: a sound one passes
        damage(X)
        with pytest.raises(ValueError, match="damaged sparse matrix"):
            enter(X)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("solver", ["exact", "sketch"])
def test_a_damaged_sparse_file_is_refused(tmp_path, damage, solver):
    X, sex = sample()
    for kind in (sp.csr_array, sp.csc_array):
        matrix = kind(X)
        members = {"format": matrix.format.encode(), "shape": matrix.shape}
        path = tmp_path / "rows.npz"
        for damaged in (False, True):
            if damaged:
                damage(matrix)
            np.savez(
                path, **members, data=matrix.data, indices=matrix.indices, indptr=np.array(matrix.indptr)
            )
            estimator = FairStreamingPCA(2, solver=solver)
            if not damaged:
                fit_source(open_source(path, sensitive_features=sex, block_size=25), estimator)
                continue
            with pytest.raises(ValueError, match=r"rows\.npz is a damaged sparse matrix"):
                fit_source(open_source(path, sensitive_features=sex, block_size=25), estimator)


def test_a_sparse_file_with_more_values_than_its_pointers_reach_is_refused(tmp_path):
    X = sp.csr_array(sample()[0])
    data, indices = np.append(X.data, 1.0), np.append(X.indices, 0)
    np.savez(tmp_path / "x.npz", format=b"csr", shape=X.shape, data=data, indices=indices, indptr=X.indptr)
    with pytest.raises(ValueError, match="values are stored"):
        list(open_source(tmp_path / "x.npz"))


def test_other_sparse_formats_are_checked_or_pass():
    dense = sample()[0]
    for kind in (sp.coo_array, sp.bsr_array, sp.lil_array, sp.dok_array, sp.dia_array):
        check_matrix(kind(dense))
    coo = sp.coo_array(dense)
    coo.col[0] = -1
    with pytest.raises(ValueError, match="column index outside 0 to 11"):
        check_matrix(coo)
    coo.col[0], coo.row[0] = 0, N
    with pytest.raises(ValueError, match="row index outside 0 to 59"):
        check_matrix(coo)
    empty = sp.csr_array((5, 0))
    check_matrix(empty)


def test_a_masked_array_is_refused_everywhere():
    X = sample()[0]
    masked = np.ma.masked_array(X, mask=X > 1)
    for enter in entrances().values():
        enter(masked.filled(0.0))
        with pytest.raises(ValueError, match=r"masked array.*np\.ma\.filled"):
            enter(masked)


def test_masked_weights_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 3))
    weights = np.ma.masked_greater(np.arange(30.0), 20)
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        FairStreamingPCA(1, constraint="none").fit(X, sample_weight=weights)
