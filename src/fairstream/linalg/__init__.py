"""Linear algebra that knows nothing of groups: bases, eigenvectors, operators, distances, threads."""

from fairstream.linalg.arrays import FloatArray, is_finite
from fairstream.linalg.bases import (
    fix_signs,
    orthonormalise,
    orthonormalise_in_place,
    orthonormalise_outside,
    principal_angles,
    project_out,
)
from fairstream.linalg.eigen import (
    check_finite_matrix,
    eigh,
    leading_outside,
    spectrum_outside,
    top_eigenpairs,
    top_eigenvectors,
)
from fairstream.linalg.symmetric import SymmetricOperator, plus_rank_one
from fairstream.linalg.threads import (
    add_product,
    blas_threads,
    in_threads,
    inner_product,
    lapack,
    lapack_threads,
    shares,
    small_lapack,
    wide_product,
)

__all__ = [
    "FloatArray",
    "SymmetricOperator",
    "add_product",
    "blas_threads",
    "check_finite_matrix",
    "eigh",
    "fix_signs",
    "in_threads",
    "inner_product",
    "is_finite",
    "lapack",
    "lapack_threads",
    "leading_outside",
    "orthonormalise",
    "orthonormalise_in_place",
    "orthonormalise_outside",
    "plus_rank_one",
    "principal_angles",
    "project_out",
    "shares",
    "small_lapack",
    "spectrum_outside",
    "top_eigenpairs",
    "top_eigenvectors",
    "wide_product",
]
