"""The fair noisy power method: its fixed points, its rates, and what it does with awkward streams."""

from __future__ import annotations

import json
import warnings
from datetime import date

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from support.brute_force import largest_sine, mean_gap
from support.memory import allocations
from threadpoolctl import threadpool_limits

from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.errors import FairstreamFileError, FairstreamWarning, NotEnoughGroupsError
from fairstream.linalg import (
    add_product,
    orthonormalise,
    orthonormalise_in_place,
    orthonormalise_outside,
    principal_angles,
    top_eigenvectors,
)
from fairstream.linalg.bases import _gram_factor, rank_revealing_basis
from fairstream.linalg.products import DenseRows, slice_rows, stands_near
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.power import method as power_method
from fairstream.power.step import _add_scaled
from fairstream.subspace.components import solve
from fairstream.subspace.unfair import unfair_basis

D, K, M = 12, 3, 2


# A dense brute force, straight from the definitions ---------------------------------------------------


def dense_truth(X, attributes, *, k, m, constraint):
    """U and V from d x d matrices about the total mean, one comparison after the other."""
    X = np.asarray(X, dtype=np.float64)
    Z = X - X.mean(axis=0)
    directions = []
    for a in attributes.values():
        labels = np.unique(a)
        for label in labels[1:] if len(labels) == 2 else labels:
            inside, outside = Z[a == label], Z[a != label]
            gap = inside.T @ inside / len(inside) - outside.T @ outside / len(outside)
            if constraint in ("covariance", "all"):
                directions.append(top_eigenvectors(gap, m, by="absolute")[1])
            if constraint in ("mean", "all"):
                directions.append((inside.mean(axis=0) - outside.mean(axis=0))[:, None])
    U = orthonormalise(np.hstack(directions)) if directions else np.zeros((X.shape[1], 0))
    outside_U = np.eye(X.shape[1]) - U @ U.T
    values, V = top_eigenvectors(outside_U @ (Z.T @ Z / len(Z)) @ outside_U, k)
    return U, V, values


def scales_of_groups(n_groups, d=D):
    """Standard deviations that differ between groups in a few leading columns, with clear gaps."""
    scales = np.tile(2.0 * 0.6 ** np.arange(d), (n_groups, 1))
    for group in range(n_groups):
        scales[group, 2 * group % d] += 3.0 + group
        scales[group, (2 * group + 1) % d] += 1.5
    return scales


def sample(n, *, n_groups=2, seed=0, p=None, d=D):
    """Gaussian groups with their own scales and means in turned coordinates."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(7).normal(size=(d, d)))[0]
    a = rng.choice(n_groups, size=n, p=p)
    X = rng.normal(size=(n, d)) * scales_of_groups(n_groups, d)[a]
    X[:, -1] += 1.5 * a
    X[:, -2] += np.where(a == 0, 0.7, 0.0)
    return X @ turn, a


def angle(A, B):
    """Largest principal angle; spaces of different dimension are as far apart as can be."""
    assert A.shape[0] == B.shape[0]
    if A.shape[1] != B.shape[1]:
        return np.pi / 2
    return float(principal_angles(A, B)[0]) if A.shape[1] else 0.0


def streaming(seed=0, **options):
    return FairPowerMethod(
        D,
        K,
        **{"n_unfair": M, "step_rows": (300, 300), "power_steps": (4, 5), "random_state": seed, **options},
    )


# Fixed points -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["none", "mean", "covariance", "all"])
@pytest.mark.parametrize("attributes", ["binary", "three groups", "two attributes"])
def test_full_data_steps_reach_the_dense_solution(constraint, attributes):
    X, a = sample(1500, n_groups=3 if attributes == "three groups" else 2)
    X = X + 5.0
    groups = {"a": a}
    m = 1 if attributes != "binary" else M
    if attributes == "two attributes":
        b = (X @ np.arange(D) + 20 * np.random.default_rng(1).normal(size=len(X)) > 330).astype(int)
        X = X * (1 + 0.8 * b[:, None] * (np.arange(D) == 4))
        groups["b"] = b
    U, V, values = dense_truth(X, groups, k=K, m=m, constraint=constraint)
    method = FairPowerMethod(D, K, n_unfair=m, constraint=constraint, power_steps=400, random_state=3)
    method.fit_full(X, groups)
    assert angle(method.unfair_basis.T, U) < 1e-6
    assert angle(method.components.T, V) < 1e-6
    np.testing.assert_allclose(method.explained_variance, values, rtol=1e-6)
    np.testing.assert_allclose(method.mean, X.mean(axis=0), rtol=1e-12)
    assert method.total_variance == pytest.approx(X.var(axis=0).sum(), rel=1e-12)
    assert method.n_rows == len(X)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_full_data_steps_agree_with_the_exact_solver(n_groups):
    X, a = sample(1500, n_groups=n_groups)
    method = FairPowerMethod(D, K, power_steps=400, random_state=0).fit_full(X, {"a": a})
    ours = method.subspace(tuple("abcdefghijkl"))
    exact = solve(GroupMoments(D).update(X, {"a": a}), K, 1, "all", "absolute")
    assert angle(ours.components.T, exact.components.T) < 1e-6
    assert angle(ours.unfair_basis.T, exact.unfair_basis.T) < 1e-6
    np.testing.assert_allclose(ours.explained_variance, exact.explained_variance, rtol=1e-9)
    assert ours.total_variance == pytest.approx(exact.total_variance, rel=1e-12)
    np.testing.assert_allclose(np.abs(ours.embed(X)), np.abs(exact.embed(X)), atol=1e-5)
    assert ours.group_counts == exact.group_counts
    assert ours.feature_names[0] == "a"


def test_the_constraints_differ_so_that_the_test_above_can_fail():
    X, a = sample(3000)
    found = [
        dense_truth(X, {"a": a}, k=K, m=M, constraint=c)[1] for c in ("none", "mean", "covariance", "all")
    ]
    assert min(angle(A, B) for i, A in enumerate(found) for B in found[:i]) > 0.05


def test_components_avoid_the_unfair_basis_and_the_plain_power_method_does_not():
    X, a = sample(3000)
    fair, plain = streaming(), streaming(constraint="none")
    fair.update(X, a)
    plain.update(X)
    U = fair.unfair_basis.T
    assert np.abs(U.T @ fair.components.T).max() < 1e-14
    assert np.abs(U.T @ plain.components.T).max() > 0.3
    for basis in (U, fair.components.T, plain.components.T):
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-13)
    assert U.shape == (D, M + 1)
    assert plain.unfair_basis.shape == (0, D)


def test_group_means_coincide_after_projection_when_the_whole_data_is_read():
    X, a = sample(3000)
    V = FairPowerMethod(D, K, n_unfair=M, power_steps=20, random_state=0).fit_full(X, a).components.T
    gap = X[a == 1].mean(axis=0) - X[a == 0].mean(axis=0)
    assert np.abs(V.T @ gap).max() < 1e-12 < 0.1 < np.linalg.norm(gap)


def test_negative_eigenvalues_count_by_size_where_oja_loses_them():
    # Two groups whose second moments differ by exactly S = -2 e1e1' + e2e2' + 4 e3e3'.
    second_in, second_out = np.diag([1.0, 2.0, 5.0]), np.diag([3.0, 1.0, 1.0])
    rows_in = np.vstack([np.sqrt(3 * second_in), -np.sqrt(3 * second_in)])
    rows_out = np.vstack([np.sqrt(3 * second_out), -np.sqrt(3 * second_out)])
    X, a = np.vstack([rows_in, rows_out]), np.repeat([1, 0], 6)
    X = np.hstack([X, np.zeros((12, 1))])
    S = np.zeros((4, 4))
    S[:3, :3] = second_in - second_out
    method = FairPowerMethod(4, 1, n_unfair=2, constraint="covariance", power_steps=(60, 1), random_state=0)
    ours = method.fit_full(X, a).unfair_basis.T
    oja = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    for _ in range(500):
        oja = np.linalg.qr(oja + 0.1 * S @ oja)[0]
    e = np.eye(4)
    assert angle(ours, e[:, [0, 2]]) < 1e-6
    assert angle(oja, e[:, [1, 2]]) < 1e-6


# Statistics -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_streaming_error_falls_with_the_root_of_the_block_size():
    d, sizes, repeats = 8, np.array([250, 1000, 4000, 16000]), 24
    scales = scales_of_groups(2, d)
    p = 0.5
    second = [np.diag(s**2) for s in scales]
    U = top_eigenvectors(second[1] - second[0], 2, by="absolute")[1]
    outside = np.eye(d) - U @ U.T
    V = top_eigenvectors(outside @ (p * second[0] + p * second[1]) @ outside, 2)[1]
    errors_U, errors_V = np.zeros(len(sizes)), np.zeros(len(sizes))
    for i, b in enumerate(sizes):
        for seed in range(repeats):
            rng = np.random.default_rng([seed, i])
            method = FairPowerMethod(
                d,
                2,
                n_unfair=2,
                constraint="covariance",
                step_rows=int(b),
                power_steps=(12, 6),
                random_state=seed,
            )
            for _ in range(18):
                a = rng.integers(2, size=b)
                method.update(rng.standard_normal((b, d), dtype=np.float32) * scales[a], a)
            errors_U[i] += np.sin(angle(method.unfair_basis.T, U)) / repeats
            errors_V[i] += np.sin(angle(method.components.T, V)) / repeats
    for errors in (errors_U, errors_V):
        slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        assert -0.6 < slope < -0.4, errors


def test_rows_beyond_the_plan_keep_improving_the_components():
    d = 8
    scales = scales_of_groups(2, d)
    V = np.eye(d)[:, np.argsort(-(scales**2).mean(axis=0))[:2]]
    planned, later = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        method = FairPowerMethod(d, 2, constraint="none", step_rows=100, power_steps=5, random_state=seed)
        for rows in (500, 40_000):
            a = rng.integers(2, size=rows)
            method.update(rng.normal(size=(rows, d)) * scales[a])
            (planned if rows == 500 else later).append(angle(method.components.T, V))
        assert method.steps_done[1] > 5
    assert np.mean(later) < 0.4 * np.mean(planned)


# Centring ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "offset", "tolerance"), [("float64", 100.0, 1e-9), ("float32", 1e4, 1e-3)])
@pytest.mark.parametrize("cut", [7, 100, 3000])
def test_an_offset_changes_nothing(dtype, offset, tolerance, cut):
    X, a = sample(3000)
    methods = []
    offsets = offset * (1 + np.arange(D) / D)
    far = (X + offsets).astype(dtype)  # adding the offset rounds X itself; that is not what is tested
    for rows in ((far - offsets).astype(dtype), far):
        methods.append(streaming(dtype=dtype))
        for start in range(0, len(X), cut):
            methods[-1].update(rows[start : start + cut], a[start : start + cut])
    assert angle(methods[0].unfair_basis.T, methods[1].unfair_basis.T) < tolerance
    assert angle(methods[0].components.T, methods[1].components.T) < tolerance
    assert methods[1].total_variance == pytest.approx(methods[0].total_variance, rel=tolerance)
    np.testing.assert_allclose(methods[1].mean, far.astype("float64").mean(axis=0), rtol=1e-7)


def test_raw_second_moments_would_notice_the_offset():
    X, a = sample(3000)
    raw = [X[a == g].T @ X[a == g] / (a == g).sum() for g in (0, 1)]
    far = [(X[a == g] + 100).T @ (X[a == g] + 100) / (a == g).sum() for g in (0, 1)]
    tops = [top_eigenvectors(s[1] - s[0], M, by="absolute")[1] for s in (raw, far)]
    assert angle(*tops) > 0.1


def test_a_block_is_centred_by_the_running_total_mean():
    """One step by hand: the second block's products about the mean of both blocks, to rounding."""
    X, a = sample(600, seed=5)
    X = X + np.linspace(0, 3, 600)[:, None]  # the mean moves between the blocks
    method = streaming(power_steps=(2, 1), constraint="covariance", seed=11)
    method.update(X[:300], a[:300])
    W = method._Q.copy()
    method.update(X[300:], a[300:])
    Z, second = X[300:] - X.mean(axis=0), a[300:]
    products = [Z[second == g].T @ (Z[second == g] @ W) / (second == g).sum() for g in (0, 1)]
    assert angle(method.unfair_basis.T, products[1] - products[0]) < 1e-12
    Z = X[300:] - X[300:].mean(axis=0)
    products = [Z[second == g].T @ (Z[second == g] @ W) / (second == g).sum() for g in (0, 1)]
    assert angle(method.unfair_basis.T, products[1] - products[0]) > 1e-3


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize(("cut", "columns"), [(250, {2}), (125, {4})])
def test_a_block_that_comes_at_once_sums_gaps_and_one_in_pieces_sums_both_sides(monkeypatch, cut, columns):
    X, a = sample(750)
    seen = []
    keep = power_method.read_rows
    monkeypatch.setattr(
        power_method,
        "read_rows",
        lambda X, codes, reading, P: seen.append(P.shape[1]) or keep(X, codes, reading, P),
    )
    method = streaming(n_unfair=2, step_rows=250, power_steps=(3, 3))
    for start in range(0, len(X), cut):
        method.update(X[start : start + cut], a[start : start + cut])
    assert method.steps_done == (3, 0)
    assert set(seen) == columns


# Cuts, forms of rows, precision -----------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("cut", [1, 13, 299, 301, 1000])
def test_the_same_stream_cut_differently_gives_the_same_result(cut, n_groups):
    X, a = sample(3000, n_groups=n_groups)
    options = {"n_unfair": 1, "step_rows": (250, 300)}
    whole, pieces = streaming(**options), streaming(**options)
    whole.update(X, a)
    for start in range(0, len(X), cut):
        pieces.update(X[start : start + cut], a[start : start + cut])
    assert pieces.steps_done == whole.steps_done == (4, 5)
    np.testing.assert_allclose(
        pieces.unfair_basis.T @ pieces.unfair_basis, whole.unfair_basis.T @ whole.unfair_basis, atol=1e-9
    )
    np.testing.assert_allclose(pieces.components, whole.components, atol=1e-8)
    np.testing.assert_allclose(pieces.explained_variance, whole.explained_variance, rtol=1e-9)
    assert (
        pieces.group_counts == whole.group_counts == {"sensitive_feature_0": dict(enumerate(np.bincount(a)))}
    )
    for label, mean in pieces.group_means["sensitive_feature_0"].items():
        np.testing.assert_allclose(mean, X[a == label].mean(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_sparse_rows_give_what_dense_rows_give(form, n_groups):
    X, a = sample(3000, n_groups=n_groups)
    X[np.abs(X) < 1.0] = 0.0
    X += 0.5 * (X != 0)
    dense, sparse = streaming(n_unfair=1), streaming(n_unfair=1)
    dense.update(X, a)
    for start in range(0, 3000, 700):
        sparse.update(form(X[start : start + 700]), a[start : start + 700])
    assert angle(dense.unfair_basis.T, sparse.unfair_basis.T) < 1e-9
    np.testing.assert_allclose(dense.components, sparse.components, atol=1e-8)
    assert sparse.total_variance == pytest.approx(dense.total_variance, rel=1e-10)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "bool"])
def test_rows_of_any_number_type(dtype):
    X, a = sample(3000)
    X = (X * 3 + 60 if dtype != "bool" else X > 0).astype(dtype)
    native, cast = streaming(), streaming()
    native.update(np.asfortranarray(X), a)
    cast.update(X.astype("float64"), a)
    np.testing.assert_allclose(native.components, cast.components, atol=1e-9)


@pytest.mark.slow
def test_float32_stays_float32_orthogonal_and_close_to_float64():
    X, a = sample(3000)
    single, double = streaming(dtype="float32"), streaming()
    double.update(X, a)
    single.update(X, a)
    # The random starts differ between the precisions, the spans after the steps hardly do.
    assert single.components.dtype == single.unfair_basis.dtype == np.float32
    assert np.abs(single.unfair_basis @ single.components.T).max() < 1e-6
    full = [FairPowerMethod(D, K, n_unfair=M, power_steps=300, random_state=0, dtype=t) for t in ("f4", "f8")]
    low, high = (method.fit_full(X, a) for method in full)
    assert angle(low.unfair_basis.T.astype(float), high.unfair_basis.T) < 1e-4
    assert angle(low.components.T.astype(float), high.components.T) < 1e-4


# Groups -----------------------------------------------------------------------------------------------


def test_unknown_groups_count_for_the_components_only():
    X, a = sample(3000)
    labels = a.astype(object)
    labels[::5] = None
    method = FairPowerMethod(D, K, n_unfair=M, power_steps=500, random_state=0).fit_full(X, labels)
    known = np.array([label is not None for label in labels])
    Z = X - X.mean(axis=0)
    inside, outside = Z[known & (a == 1)], Z[known & (a == 0)]
    gap = inside.T @ inside / len(inside) - outside.T @ outside / len(outside)
    P = top_eigenvectors(gap, M, by="absolute")[1]
    U = orthonormalise(np.column_stack([P, inside.mean(axis=0) - outside.mean(axis=0)]))
    assert angle(method.unfair_basis.T, U) < 1e-6
    assert method.group_counts["sensitive_feature_0"] == {0: len(outside), 1: len(inside)}
    assert method.n_rows == 3000


def test_a_stream_may_begin_with_rows_of_unknown_group():
    X, a = sample(2000)
    labels = a.astype(object)
    labels[:40] = None
    whole, pieces = streaming(power_steps=(2, 2)), streaming(power_steps=(2, 2))
    whole.update(X, {"a": labels, "b": labels})
    for start in range(0, 2000, 20):
        rows = slice(start, start + 20)
        pieces.update(X[rows], {"a": labels[rows], "b": labels[rows]})
        pieces = FairPowerMethod.from_state(*pieces.to_state())
    np.testing.assert_allclose(pieces.components, whole.components, atol=1e-9)
    assert pieces.group_counts["a"] == {0: (a[40:] == 0).sum(), 1: (a[40:] == 1).sum()}
    with pytest.raises(ValueError, match="pass the same attributes"):
        streaming().update(X[:20], {"a": labels[:20]}).update(X, {"other": labels})


def test_a_block_without_a_group_is_extended_until_it_has_one():
    X, _ = sample(1000)
    a = np.zeros(1000, dtype=int)
    a[[10, 340, 341, 700]] = 1
    method = streaming(step_rows=(100, 100), power_steps=(3, 1))
    seen = []
    for i in range(1000):
        if method.phase == "unfair":
            seen.append((method.steps_done[0], method.rows_missing))
        method.update(X[i : i + 1], a[i : i + 1])
    ends = [i for i in range(1, len(seen)) if seen[i][0] > seen[i - 1][0]]
    assert ends == [100, 341]  # the second block would have ended at row 200
    assert len(seen) == 441  # the third has the group at once and keeps its 100 rows
    assert seen[300][1] == 1 + 100 + 100


def test_zero_for_an_empty_group_is_what_the_paper_prints():
    X, a = sample(900, seed=3)
    a[300:600] = 0
    zero = streaming(on_empty_group="zero", power_steps=(3, 1), constraint="covariance")
    zero.update(X[:300], a[:300])
    W = zero._Q.copy()
    zero.update(X[300:600], a[300:600])
    assert zero.steps_done == (2, 0)
    Z = X[300:600] - X[:600].mean(axis=0)
    assert angle(zero._Q, Z.T @ (Z @ W)) < 1e-12
    extended = streaming(power_steps=(3, 1), constraint="covariance").update(X[:600], a[:600])
    assert extended.steps_done == (1, 0)


def test_zero_keeps_w_where_nobody_is_known_and_warns_of_a_group_never_seen():
    X, a = sample(900)
    labels = a.astype(object)
    labels[300:600] = None
    method = streaming(on_empty_group="zero", power_steps=(3, 1))
    method.update(X[:300], labels[:300])
    W = method._Q.copy()
    method.update(X[300:600], labels[300:600])
    np.testing.assert_array_equal(method._Q, W)
    with pytest.warns(FairstreamWarning, match=r"groups \[2\] of 'g'"):
        streaming(on_empty_group="zero", n_unfair=1, groups={"g": [0, 1, 2]}).update(
            X[:1200].repeat(2, 0), {"g": a.repeat(2)}
        )


def test_a_group_first_seen_after_the_first_block_is_refused_and_may_be_declared():
    X, a = sample(1500)
    a[400:] = np.where(np.arange(1100) % 7 == 0, 2, a[400:])
    method = streaming(n_unfair=1)
    method.update(X[:250], a[:250])
    before, state = method.to_state()[0], {k: v.copy() for k, v in method.to_state()[1].items()}
    with pytest.raises(
        ValueError, match=r"group 2 of 'sensitive_feature_0' first appears after the first block.*groups="
    ):
        method.update(X[250:600], a[250:600])
    assert method.to_state()[0] == before
    for name, array in method.to_state()[1].items():
        np.testing.assert_array_equal(array, state[name])
    method.update(X[250:350], a[250:350])
    with pytest.raises(ValueError, match="first appears"):
        method.update(X[350:600], a[350:600])
    declared = streaming(n_unfair=1, groups=[0, 1, 2]).update(X, a)
    assert [label for _, label in declared.comparisons] == [0, 1, 2]
    assert declared.steps_done[0] >= 3
    undeclared = streaming(n_unfair=1, step_rows=500).update(X, a)  # the first block shows all three
    assert undeclared.comparisons == declared.comparisons


def test_new_groups_may_appear_in_the_second_phase_of_nothing_constrained():
    X, a = sample(900)
    plain = streaming(constraint="none").update(X[:300]).update(X[300:600], a[300:600])
    plain.update(X[600:], np.full(300, 9))
    assert plain.group_counts["sensitive_feature_0"][9] == 300
    fair = streaming(constraint="mean", power_steps=(1, 1)).update(X[:600], a[:600])
    fair.update(X[600:])  # the second phase needs no groups
    with pytest.raises(ValueError, match="first appears"):
        fair.update(X[600:], np.full(300, 9))


def test_dependent_comparisons_add_no_arbitrary_direction():
    X, a = sample(2000)
    twice = {"a": a, "again": np.where(a == 1, "x", "y")}
    once = FairPowerMethod(D, K, n_unfair=M, power_steps=300, random_state=0).fit_full(X, a)
    both = FairPowerMethod(D, K, n_unfair=M, power_steps=300, random_state=0).fit_full(X, twice)
    assert both.unfair_basis.shape == once.unfair_basis.shape
    assert angle(both.unfair_basis.T, once.unfair_basis.T) < 1e-6
    three = sample(2000, n_groups=3)
    mean = FairPowerMethod(D, K, constraint="mean", random_state=0).fit_full(*three)
    assert mean.unfair_basis.shape == (2, D)  # three mean gaps, two independent


def test_a_mean_gap_inside_w_or_of_rounding_size_adds_no_direction():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(400, 6))
    X = np.vstack([half, -half, 3 * half, -3 * half])  # both group means are zero to rounding
    a = np.repeat([0, 1], 800)
    method = FairPowerMethod(6, 2, n_unfair=2, power_steps=30, random_state=0).fit_full(X, a)
    assert method.unfair_basis.shape == (2, 6)
    # Signs are flipped in all combinations, so W is e1 exactly, and the means differ along e1 only.
    first, rest = rng.normal(size=(300, 1)), 0.1 * rng.normal(size=(300, 5))
    quads = [np.hstack([i * first, j * rest]) for i in (1, -1) for j in (1, -1)]
    X = np.vstack([*quads, *(3 * quad + 4 * np.eye(6)[0] for quad in quads)])
    a = np.repeat([0, 1], 1200)
    for dtype in ("float64", "float32"):
        method = FairPowerMethod(6, 2, n_unfair=1, power_steps=60, random_state=0, dtype=dtype).fit_full(X, a)
        assert method.unfair_basis.shape == (1, 6)
        assert angle(method.unfair_basis.T.astype(float), np.eye(6)[:, :1]) < 1e-4
    X[:, 1] += 0.01 * a  # a gap outside W, however short, is nulled
    assert FairPowerMethod(6, 2, power_steps=60, random_state=0).fit_full(X, a).unfair_basis.shape == (2, 6)


def test_n_unfair_per_attribute():
    X, a = sample(2000)
    groups = {"a": a, "b": np.arange(2000) % 2}
    method = FairPowerMethod(D, K, n_unfair={"a": 3, "b": 0}, constraint="covariance", random_state=0)
    assert method.fit_full(X, groups).unfair_basis.shape == (3, D)
    with pytest.raises(ValueError, match="n_unfair names"):
        FairPowerMethod(D, K, n_unfair={"a": 3}, random_state=0).fit_full(X, groups)


# Phases, refusals -------------------------------------------------------------------------------------


def test_phases_and_missing_rows():
    X, a = sample(3000)
    method = streaming(step_rows=(100, 200), power_steps=(3, 2))
    assert (method.phase, method.rows_missing, method.steps_done) == ("unfair", 500, (0, 0))
    method.update(X[:250], a[:250])
    assert (method.phase, method.rows_missing, method.steps_done) == ("unfair", 250, (2, 0))
    with pytest.raises(NotFittedError, match="at least 250 rows"):
        _ = method.components
    with pytest.raises(NotFittedError, match="250 rows"):
        _ = method.unfair_basis
    method.update(X[250:300], a[250:300])
    assert (method.phase, method.rows_missing) == ("components", 200)
    assert method.unfair_basis.shape == (M + 1, D)
    method.update(X[300:499])
    with pytest.raises(NotFittedError, match="at least 1 rows"):
        _ = method.components
    method.update(X[499:500])
    assert (method.rows_missing, method.steps_done) == (0, (3, 1))
    first = method.components.T
    method.update(X[500:2000])
    assert angle(first, method.components.T) > 0
    assert streaming(constraint="none", step_rows=(9, 50)).rows_missing == 50
    assert streaming(constraint="mean", step_rows=(100, 50), power_steps=(3, 1)).rows_missing == 350


def test_published_arrays_do_not_move_with_the_stream():
    X, a = sample(3000)
    method = streaming().update(X, a)
    V, mean, twin = method.components, method.mean, method.copy()
    kept = V.copy(), mean.copy()
    method.update(X, a)
    np.testing.assert_array_equal(V, kept[0])
    np.testing.assert_array_equal(mean, kept[1])
    np.testing.assert_array_equal(twin.components, kept[0])
    twin.update(X, a)
    np.testing.assert_array_equal(twin.components, method.components)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraint": "variance"}, "constraint='variance' is not one of"),
        ({"step_rows": 0}, "step_rows is 0"),
        ({"step_rows": (1, 2, 3)}, "step_rows is"),
        ({"power_steps": 1.5}, "power_steps is 1.5"),
        ({"on_empty_group": "skip"}, "on_empty_group is 'skip'"),
        ({"dtype": "float16"}, "dtype is float16"),
        ({"n_unfair": -1}, "n_unfair=-1"),
        ({"n_unfair": "many"}, "n_unfair='many'"),
        ({"n_unfair": {}}, "n_unfair={}"),
        ({"n_unfair": 0, "constraint": "covariance"}, "nulls nothing"),
        ({"n_unfair": D}, "keep the sum within features"),
        ({"groups": {"a": ["x"]}}, "name at least two"),
        ({"groups": ["x", "y"], "n_unfair": D - K}, "lower n_components or n_unfair"),
        ({"n_components": 0}, "n_components=0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        FairPowerMethod(**{"n_features": D, "n_components": K, **options})


def test_bad_rows_are_refused_and_change_nothing():
    X, a = sample(300)
    method = streaming().update(X[:100], a[:100])
    header, arrays = method.copy().to_state()
    holed = X.copy()
    holed[7, 3] = np.nan
    too_many = np.arange(300) % 9
    for rows, groups, message in [
        (X[:, :3], a, r"X has shape \(300, 3\)"),
        (holed, a, "NaN or infinite"),
        (sp.csr_matrix(holed), a, "NaN or infinite"),
        (1e200 * X, a, "overflow"),
        (X.astype(complex), a, "dtype complex128"),
        (X, a[:-1], "has 299 rows, X has 300"),
        (X, None, "groups is None"),
        (X, {"other": a}, "pass the same attributes"),
        (X, too_many, "leaves none for any component: lower n_unfair"),
    ]:
        with pytest.raises(ValueError, match=message):
            method.update(rows, groups)
    with pytest.raises(ValueError, match="sample_weight is not part"):
        method.update(X, a, sample_weight=np.ones(300))
    after, arrays_after = method.to_state()
    assert after == header
    for name in arrays:
        np.testing.assert_array_equal(arrays_after[name], arrays[name])


def test_one_group_is_not_enough():
    X, _ = sample(400)
    same = np.zeros(400, dtype=int)
    waiting = streaming().update(X, same)
    assert waiting.steps_done == (0, 0)  # still waiting for a second group
    with pytest.raises(
        NotFittedError, match="'sensitive_feature_0' has shown only 0, a gap needs two groups"
    ):
        _ = waiting.components
    with pytest.raises(NotEnoughGroupsError, match="first block has 1 group"):
        streaming(on_empty_group="zero").update(X, same)
    with pytest.raises(NotEnoughGroupsError, match="first block has 1 group"):
        FairPowerMethod(D, K).fit_full(X, same)
    with pytest.raises(NotEnoughGroupsError, match="no row in the whole data"):
        FairPowerMethod(D, K, groups=[0, 1]).fit_full(X, same)


def test_whole_data_steps_need_data_that_can_be_read_again():
    X, _ = sample(400)
    with pytest.raises(ValueError, match="read only once"):
        FairPowerMethod(D, K).fit_full(row for row in X)
    with pytest.raises(ValueError, match="steps end by themselves"):
        streaming().end_step()
    with pytest.raises(ValueError, match="no rows since"):
        FairPowerMethod(D, K).end_step()
    failing = FairPowerMethod(D, K, random_state=0)
    with pytest.raises(ValueError, match="groups is None"):
        failing.fit_full(X)
    assert failing.n_rows == 0


def test_whole_data_steps_take_a_source():
    X, a = sample(400)

    class Source:
        n_features, feature_names, n_rows = D, None, 400

        def __iter__(self):
            for start in range(0, 400, 150):
                rows = slice(start, start + 150)
                yield Block(X[rows], encode_groups({"a": a[rows]}, len(a[rows])))

    from_source = FairPowerMethod(D, K, random_state=0).fit_full(Source())
    from_array = FairPowerMethod(D, K, random_state=0).fit_full(X, {"a": a})
    np.testing.assert_allclose(from_source.components, from_array.components, atol=1e-9)
    with pytest.raises(ValueError, match="groups is given beside a source"):
        FairPowerMethod(D, K).fit_full(Source(), a)


def test_memory_is_the_documented_formula_and_not_the_block():
    d, k, m, b = 3000, 24, 4, 4000
    rng = np.random.default_rng(0)
    rows, sex = rng.normal(size=(500, d)), np.arange(500) % 2
    formula = 8 * d * (max(6 * m, 4 * k) + m + 1 + slice_rows(d, "float64")) + 8 * d * (5 * 2 + 7 + 2 * 3)
    with allocations() as peak, threadpool_limits(1):  # every further thread has sums and a slice of its own
        method = FairPowerMethod(d, k, n_unfair=m, step_rows=b, power_steps=1, random_state=0)
        for _ in range(2 * b // 500):
            method.update(rows, sex)
        used = peak()
    assert method.rows_missing == 0
    assert used < 1.2 * formula < 8 * d * b / 10


# Resuming ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ["none", "mean", "all"])
@pytest.mark.parametrize("stop", [0, 150, 700, 1200, 1300, 2000, 2999])
def test_a_stored_state_goes_on_exactly(stop, constraint):
    X, a = sample(3000, n_groups=3)
    groups = {"g": np.array(["x", "y", "z"])[a]}
    method = streaming(n_unfair=1, constraint=constraint)
    method.update(X[:stop], {"g": groups["g"][:stop]})
    header, arrays = method.to_state()
    header = json.loads(json.dumps(header))
    resumed = FairPowerMethod.from_state(
        header, {name: np.ascontiguousarray(v) for name, v in arrays.items()}
    )
    for one in (method, resumed):
        one.update(X[stop:], {"g": groups["g"][stop:]})
    np.testing.assert_array_equal(method.components, resumed.components)
    np.testing.assert_array_equal(method.unfair_basis, resumed.unfair_basis)
    assert method.group_counts == resumed.group_counts
    assert method.total_variance == resumed.total_variance


WIDE = 60


def wide_stream(seed=0):
    """Rows with more features than a block has rows, of a flat spectrum, and a method for them."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 900)
    X = rng.normal(size=(900, WIDE)) + a[:, None] * (np.arange(WIDE) == 7)
    options = {"n_unfair": 1, "step_rows": (50, 40), "power_steps": (4, 8), "random_state": seed}
    return X, a, FairPowerMethod(WIDE, K, **options)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize("stop", [210, 240, 305, 490])
def test_wide_rows_resume_exactly_in_the_middle_of_a_block(stop):
    X, a, method = wide_stream()
    method.update(X[:stop], a[:stop])
    header, arrays = method.to_state()
    assert ("inside" in arrays) == (stop != 240)
    assert ("turn" in arrays) == (stop >= 240)
    resumed = FairPowerMethod.from_state(json.loads(json.dumps(header)), arrays)
    for one in (method, resumed):
        one.update(X[stop:], a[stop:])
    np.testing.assert_array_equal(method.components, resumed.components)
    np.testing.assert_array_equal(method.explained_variance, resumed.explained_variance)
    assert method.convergence == resumed.convergence


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_a_state_from_before_turns_were_put_off_resumes():
    X, a, method = wide_stream()
    method.update(X[:300], a[:300])
    header, arrays = method.to_state()
    turned = arrays["Q"] @ arrays["turn"]  # what format 1 held
    old = {name: array for name, array in arrays.items() if name not in ("turn", "inside")} | {"Q": turned}
    P = arrays["P"] @ arrays["turn"]  # of the open block, which was multiplied with the turned ones
    resumed = FairPowerMethod.from_state({**header, "format": 1}, {**old, "P": P})
    for one in (method, resumed):
        one.update(X[300:], a[300:])
    assert angle(method.components.T, resumed.components.T) < 1e-9
    np.testing.assert_allclose(method.explained_variance, resumed.explained_variance, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_reading_the_components_does_not_change_what_comes_later():
    X, a, quiet = wide_stream()
    read = wide_stream()[2]
    for start in range(0, 900, 30):
        rows = slice(start, start + 30)
        quiet.update(X[rows], a[rows])
        read.update(X[rows], a[rows])
        if not read.rows_missing:
            assert read.components.shape == (K, WIDE)
            assert read.convergence
    np.testing.assert_array_equal(quiet.components, read.components)
    np.testing.assert_array_equal(quiet.explained_variance, read.explained_variance)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_variances_summed_up_with_the_rows_are_those_of_the_products(monkeypatch, dtype, offset):
    X, a, _ = wide_stream()
    X = (X + offset).astype(dtype)
    found = []
    for follows in (True, False):
        options = {"n_unfair": 1, "step_rows": (50, 40), "power_steps": (4, 8), "random_state": 0}
        method = FairPowerMethod(WIDE, K, **options, dtype=dtype)
        if not follows:
            monkeypatch.setattr(FairPowerMethod, "_follows_inside", False)
        method.update(X, a)
        found.append((method.explained_variance, method.components))
    close = 1e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=close)
    assert angle(found[0][1].T, found[1][1].T) < 10 * close
    assert (np.diff(found[0][0]) <= 0).all()


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize(("offset", "copied"), [(0.0, False), (50.0, True)])
def test_rows_near_zero_are_multiplied_where_they_stand(monkeypatch, offset, copied):
    monkeypatch.setattr("fairstream.power.step.FEW_COLUMNS", 0)  # few columns: rows are always copied
    X, a = sample(900)
    X = X + offset
    taken = []
    keep = DenseRows.dot
    monkeypatch.setattr(
        DenseRows, "dot", lambda rows, A: taken.append(np.shares_memory(rows.R, X)) or keep(rows, A)
    )
    streaming(step_rows=100, power_steps=(4, 5)).update(X, a)
    assert set(taken) == {not copied}


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_a_constant_column_is_centred_however_large_the_others_are():
    X, a = sample(900)
    X[:, 4] = 7.0
    X = X.astype(np.float32)
    method = streaming(step_rows=100, power_steps=(4, 5), dtype=np.float32, constraint="mean").update(X, a)
    assert method.unfair_basis[0, 4] == 0
    assert not method.components[:, 4].any()


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_rows_that_stand_a_few_deviations_from_zero_are_as_good_as_centred_ones(monkeypatch):
    X, a = sample(20_000)
    X += 2.5 * X.std(axis=0)
    X = X.astype(np.float32)
    options = {"step_rows": 1_000, "power_steps": (9, 9)}
    exactly = streaming(**options).update(X.astype(np.float64), a)
    assert stands_near(X, X.mean(axis=0), np.float32)
    monkeypatch.setattr("fairstream.power.step.FEW_COLUMNS", 0)
    standing = streaming(**options, dtype=np.float32).update(X, a)
    monkeypatch.setattr("fairstream.power.step.stands_near", lambda *rows: False)
    centred = streaming(**options, dtype=np.float32).update(X, a)
    for what in ("components", "unfair_basis"):
        errors = [angle(getattr(m, what).T, getattr(exactly, what).T) for m in (standing, centred)]
        assert errors[0] < 1.5 * errors[1] + 1e-5
    assert standing.total_variance == pytest.approx(exactly.total_variance, rel=1e-5)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize(("middle", "centred"), [(100, False), (240, True)])
def test_small_whole_numbers_near_zero_are_only_cast(monkeypatch, middle, centred):
    X, a = sample(20_000)
    X = np.clip(np.rint(X * (5 if centred else 60) / X.std(axis=0)) + middle, 0, 255).astype(np.uint8)
    origins = []
    keep = DenseRows.__init__
    monkeypatch.setattr(
        DenseRows,
        "__init__",
        lambda rows, slab, origin, *rest: origins.append(origin.any()) or keep(rows, slab, origin, *rest),
    )
    options = {"step_rows": 1_000, "power_steps": (9, 9)}
    found = streaming(**options, dtype=np.float32).update(X, a)
    assert set(origins) == {centred}
    exactly = streaming(**options, dtype=np.float32).update(X.astype(np.float32), a)
    for what in ("components", "unfair_basis"):
        assert angle(getattr(found, what).T, getattr(exactly, what).T) < 1e-4
    assert found.total_variance == pytest.approx(exactly.total_variance, rel=1e-5)


def test_a_damaged_state_is_refused():
    X, a = sample(400)
    header, arrays = streaming().update(X, a).to_state()
    for change in ({"format": 3}, {"options": {}}, {"groups": None}, {"step": 9}):
        with pytest.raises(FairstreamFileError):
            FairPowerMethod.from_state({**header, **change}, arrays)
    for name in arrays:
        with pytest.raises(FairstreamFileError, match=r"do not fit|cannot be read"):
            FairPowerMethod.from_state(header, {**arrays, name: arrays[name][:1]})
    dates = streaming().update(X[:10], {"t": [date(2020, 1, 1)] * 5 + [date(2021, 1, 1)] * 5})
    with pytest.raises(ValueError, match="cannot be stored"):
        dates.to_state()


def test_the_random_start_is_reproducible_and_matters():
    X, a = sample(3000)
    options = {"power_steps": (1, 1)}
    runs = [
        streaming(seed=s, **options).update(X, a).components.T for s in (0, 0, 1, np.random.default_rng(0))
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert angle(runs[0], runs[2]) > 1e-6
    assert streaming(seed=np.random.RandomState(0)).update(X, a).rows_missing == 0


# In-place arithmetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_and_bases_stay_on_their_memory(dtype):
    rng = np.random.default_rng(0)
    wide = np.asfortranarray(rng.normal(size=(50, 9)), dtype=dtype)
    A, rest = wide[:, 2:6], wide[:, 6:].copy()
    before = A.copy()
    R = orthonormalise_in_place(A)
    np.testing.assert_allclose(A @ R, before, atol=1e-5)
    np.testing.assert_allclose(A.T @ A, np.eye(4), atol=1e-5)
    np.testing.assert_array_equal(wide[:, 6:], rest)
    B = rng.normal(size=(50, 4)).astype(dtype, order="F")
    expected = A + 2 * B @ np.ones((4, 4), dtype)
    add_product(A, B, np.ones((4, 4), dtype), alpha=2.0)
    np.testing.assert_allclose(A, expected, rtol=1e-4)
    expected = A - 3 * B
    _add_scaled(A, B, -3.0)
    np.testing.assert_allclose(A, expected, rtol=1e-4)
    np.testing.assert_allclose(wide[:, 2:6], expected, rtol=1e-4)
    dependent = np.asfortranarray(np.hstack([B, B[:, :2]]))
    dependent /= np.linalg.norm(dependent, axis=0)
    basis = rank_revealing_basis(dependent, 1e-4)
    assert basis.shape == (50, 4)
    assert angle(basis, B) < 1e-3
    assert np.shares_memory(basis, dependent)
    with pytest.raises(ValueError, match="Fortran-ordered"):
        orthonormalise_in_place(np.ascontiguousarray(B))


def test_more_mean_gaps_than_features_are_no_obstacle():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(400, 5)), rng.integers(0, 3, (400, 2))
    method = FairPowerMethod(5, 1, constraint="mean", power_steps=2, random_state=0)
    method.fit_full(X, labels)  # 2 x 3 gaps of rank 4
    U, V = method.unfair_basis.T, method.components.T
    assert U.shape == (5, 4)
    assert np.abs(U.T @ V).max() < 1e-12
    for column in labels.T:
        for group in range(3):
            gap = mean_gap(X, column, group)
            assert np.linalg.norm(gap - U @ (U.T @ gap)) < 1e-12


def test_components_are_orthonormal_where_all_variance_is_unfair():
    rng = np.random.default_rng(0)
    sex = np.arange(200) % 2
    X = np.zeros((200, 6))
    X[:, 0] = rng.normal(size=200) + 5 * sex
    method = FairPowerMethod(6, 3, power_steps=5, random_state=0).fit_full(X, sex)
    V, U = method.components.T, method.unfair_basis.T
    assert np.abs(V.T @ V - np.eye(3)).max() < 1e-12
    assert np.abs(U.T @ V).max() < 1e-12


# Updates that fail half-way ---------------------------------------------------------------------------


def stream_rows(n, d=D, seed=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 3.0, rng.integers(0, 2, n)


@pytest.mark.parametrize("phase", ["unfair", "components"])
def test_bad_rows_late_in_a_long_update_leave_the_state_as_it_was(phase):
    X, a = stream_rows(20_000)
    method = FairPowerMethod(D, K, n_unfair=M, step_rows=(9_000, 3_000), power_steps=(3, 5), random_state=0)
    first = 500 if phase == "unfair" else 27_500
    for start in range(0, first, 500):
        method.update(X[start % 20_000 :][:500], a[start % 20_000 :][:500])
    assert method.phase == phase
    header, arrays = method.to_state()
    before = {name: array.copy() for name, array in arrays.items()}
    bad = X.copy()
    bad[19_990, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        method.update(bad, a)
    again, arrays = method.to_state()
    assert again == header
    assert arrays.keys() == before.keys()
    assert all(np.array_equal(arrays[name], before[name]) for name in before)


@pytest.mark.parametrize("unfair_steps", [1, 9])
def test_an_interrupted_update_is_undone(monkeypatch, unfair_steps):
    X, a = stream_rows(4_000)
    steps = (unfair_steps, 9)
    method = FairPowerMethod(D, K, n_unfair=M, step_rows=1_000, power_steps=steps, random_state=0)
    method.update(X[:1_000], a[:1_000])
    expected = method.copy().update(X, a).to_state()[1]

    def interrupt(self, gaps):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FairPowerMethod, "_end_block", interrupt)
        with pytest.raises(KeyboardInterrupt):
            method.update(X, a)
    found = method.update(X, a).to_state()[1]
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("scale", [1e-15, 1e-9, 1e9])
def test_components_do_not_depend_on_the_scale_of_the_data(scale):
    """Sums of squares of products overflow or underflow in float32 here; the factorisation must not."""
    X, a = stream_rows(2_000)
    X = (X * (1 + np.arange(D))).astype(np.float32)
    bases = []
    for factor in (1.0, scale):
        method = FairPowerMethod(D, K, n_unfair=1, power_steps=8, random_state=0, dtype=np.float32)
        bases.append(method.fit_full(X * np.float32(factor), a).components.T)
    assert np.isfinite(bases[1]).all()
    assert principal_angles(*bases).max() < 1e-3


def test_gram_factors_and_reflections_give_the_same_basis():
    rng = np.random.default_rng(0)
    U = np.asfortranarray(np.linalg.qr(rng.normal(size=(60, 2)))[0])
    E = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    A = np.asfortranarray(rng.normal(size=(60, 8)) * np.logspace(0, -6, 8))
    by_gram, by_reflections = A.copy(order="F"), A - U @ (U.T @ A)
    orthonormalise_outside(U, by_gram, E)
    expected = np.linalg.qr(by_reflections @ E)[0]
    assert np.abs(np.abs((expected * by_gram).sum(axis=0)) - 1).max() < 1e-8
    assert np.abs(by_gram.T @ by_gram - np.eye(8)).max() < 1e-14
    assert np.abs(U.T @ by_gram).max() < 1e-15


def test_nearly_dependent_columns_are_orthonormal_all_the_same():
    """Where a Gram matrix cannot tell the columns apart, reflections must take over."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(60, 1)).astype(np.float32)
    A = np.asfortranarray(one + 1e-6 * rng.normal(size=(60, 8)), dtype=np.float32)
    found = _gram_factor(A)
    assert found is None or found[2] * np.finfo(np.float32).eps > 1e-2
    orthonormalise_outside(np.zeros((60, 0), dtype=np.float32, order="F"), A, np.eye(8))
    assert np.abs(A.T @ A - np.eye(8)).max() < 1e-5


@pytest.mark.parametrize("few_columns", [128, 0])
def test_rows_shared_among_threads_give_the_same_components(monkeypatch, few_columns):
    """Both ways of reading, with rows or features shared among three threads, against one thread."""
    X, a = stream_rows(3_000)
    labels = np.where(np.arange(3_000) % 7 == 0, None, a.astype(object))
    options = {"n_unfair": M, "step_rows": 500, "power_steps": (3, 3), "random_state": 0}
    alone = FairPowerMethod(D, K, **options).update(X, labels)
    monkeypatch.setattr("fairstream.linalg.threads.blas_threads", lambda: 3)
    monkeypatch.setattr("fairstream.linalg.threads._WORTH_A_THREAD", 1)
    monkeypatch.setattr("fairstream.power.step.FEW_COLUMNS", few_columns)
    shared = FairPowerMethod(D, K, **options).update(X, labels)
    assert np.allclose(shared.components, alone.components, atol=1e-9)
    assert np.allclose(shared.unfair_basis, alone.unfair_basis, atol=1e-9)
    assert shared.group_counts == alone.group_counts
    assert np.isclose(shared.total_variance, alone.total_variance, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("half", [False, True])
def test_a_sparse_column_far_from_zero_gives_the_dense_answer(dtype, half):
    rng = np.random.default_rng(0)
    X, a = stream_rows(2_000)
    X = (X - 3) * 2.0 ** -np.arange(D) * (rng.random(X.shape) < 0.2)
    X[:, 0] += a
    X[:, 3] = 20241116.0 * (rng.random(2_000) < 0.5) if half else 20241116.0
    X = X.astype(dtype)
    dense, sparse = (
        FairPowerMethod(
            D, K, n_unfair=1, constraint="mean", power_steps=30, random_state=0, dtype=dtype
        ).fit_full(rows, a)
        for rows in (X, sp.csr_array(X))
    )
    assert dense.unfair_basis.shape == sparse.unfair_basis.shape == (1, D)
    tolerance = 1e-6 if dtype == "float64" else 1e-3
    assert angle(dense.unfair_basis.T, sparse.unfair_basis.T) < tolerance
    assert dense.total_variance == pytest.approx(sparse.total_variance, rel=1e-5)
    if not half:
        assert angle(dense.components.T, sparse.components.T) < 10 * tolerance


# Convergence ------------------------------------------------------------------------------------------


def slow_problem():
    """Rows whose spectrum falls so slowly that ten power steps do not tell neighbours apart."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 40)) * np.linspace(2, 1, 40)
    return X * np.where(sex[:, None], 1.0, np.linspace(1.2, 1.4, 40)), sex


def quick_problem():
    """Rows whose variances and gaps are far apart from each other."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 3000)
    scales = np.array([12.0, 6.0, 3.0, 1.0, 0.5, 0.2, 0.1, 0.05])
    X = rng.normal(size=(3000, 8)) * scales
    X[:, 7] *= np.where(sex, 400.0, 1.0)
    return X, sex


def test_a_power_method_that_still_moves_says_so():
    X, sex = slow_problem()
    with pytest.warns(FairstreamWarning, match="not converged: the .* still moved by") as caught:
        method = FairPowerMethod(40, 5, n_unfair=4, random_state=0).fit_full(X, sex)
    said = [str(warning.message) for warning in caught]
    assert any(
        "unfair directions" in line and "raise power_steps, or use solver='exact'" in line for line in said
    )
    assert any("components still moved" in line for line in said)
    exact = unfair_basis(GroupMoments(40).update(X, sex), 4)
    assert largest_sine(method.unfair_basis.T, exact) > 0.3  # the warning is right
    assert method.convergence["unfair"] > 0.05


def test_a_converged_power_method_is_silent():
    X, sex = quick_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        method = FairPowerMethod(8, 2, n_unfair=1, power_steps=30, random_state=0).fit_full(X, sex)
    assert max(method.convergence.values()) < 1e-3
    assert set(method.convergence) == {"unfair", "components"}


def test_blocks_warn_of_more_than_their_sampling_error_only():
    X, sex = quick_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        settled = FairPowerMethod(8, 2, n_unfair=1, step_rows=150, power_steps=10, random_state=0)
        settled.update(X, sex)
    assert 1e-4 < settled.convergence["components"] < 0.3
    X, sex = slow_problem()
    moving = FairPowerMethod(40, 5, n_unfair=4, step_rows=150, power_steps=10, random_state=0)
    with pytest.warns(FairstreamWarning, match="raise power_steps or step_rows"):
        moving.update(X, sex)


def test_the_movement_is_the_largest_sine_between_the_last_two_iterates():
    X, sex = slow_problem()
    with pytest.warns(FairstreamWarning, match="components still moved"):
        one, two = (
            FairPowerMethod(40, 5, constraint="mean", power_steps=(1, steps), random_state=0).fit_full(X, sex)
            for steps in (6, 7)
        )
    assert two.convergence == {"components": pytest.approx(largest_sine(one.components.T, two.components.T))}


def test_convergence_is_stored_and_old_states_load_without_it():
    X, sex = quick_problem()
    method = FairPowerMethod(8, 2, power_steps=30, random_state=0).fit_full(X, sex)
    header, arrays = method.to_state()
    assert FairPowerMethod.from_state(header, arrays).convergence == method.convergence
    del header["convergence"]
    assert FairPowerMethod.from_state(header, arrays).convergence == {}


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e-170), ("float32", 1e-24)])
def test_rows_whose_squares_underflow_are_refused(dtype, scale):
    X, a = stream_rows(600)
    for rows in ((X * scale).astype(dtype), sp.csr_array((X * scale).astype(dtype))):
        method = FairPowerMethod(D, K, step_rows=100, random_state=0, dtype=dtype)
        with pytest.raises(ValueError, match="sums of squares underflow"):
            method.update(rows, a)
        assert method.n_rows == 0
        method.update(X.astype(dtype), a).update(rows, a)  # small beside others: fine
        assert method.n_rows == 1_200


def test_components_and_unfair_basis_have_one_direction_a_row_as_a_subspace_has():
    X, a = stream_rows(2_000)
    method = FairPowerMethod(D, K, n_unfair=M, power_steps=5, random_state=0).fit_full(X, a)
    assert method.components.shape == (K, D)
    assert method.unfair_basis.shape == (M + 1, D)
    subspace = method.subspace()
    np.testing.assert_array_equal(method.components, subspace.components)
    np.testing.assert_array_equal(method.unfair_basis, subspace.unfair_basis)
