"""Linear algebra that knows nothing of groups: bases, eigenvectors, operators, distances, threads."""

from fairstream.linalg.bases import (
    FloatArray,
    fix_signs,
    is_finite,
    orthonormal_complement_part,
    orthonormalise,
    orthonormalise_in_place,
    principal_angles,
    project_out,
)
from fairstream.linalg.eigen import (
    check_finite_matrix,
    eigh,
    leading_outside,
    top_eigenpairs,
    top_eigenvectors,
)
from fairstream.linalg.symmetric import SymmetricOperator, plus_rank_one
from fairstream.linalg.threads import (
    beside,
    blas_threads,
    in_threads,
    inner_product,
    shares,
    small_lapack,
    wide_product,
)

__all__ = [
    "FloatArray",
    "SymmetricOperator",
    "beside",
    "blas_threads",
    "check_finite_matrix",
    "eigh",
    "fix_signs",
    "in_threads",
    "inner_product",
    "is_finite",
    "leading_outside",
    "orthonormal_complement_part",
    "orthonormalise",
    "orthonormalise_in_place",
    "plus_rank_one",
    "principal_angles",
    "project_out",
    "shares",
    "small_lapack",
    "top_eigenpairs",
    "top_eigenvectors",
    "wide_product",
]
