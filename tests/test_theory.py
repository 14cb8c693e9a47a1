"""PAFO: constants by hand, plans that scale as the theorem says, gaps and the check of a promise."""

import dataclasses
import math

import numpy as np
import pytest

from fairstream.data import open_source
from fairstream.datasets.synthetic import SyntheticStream, synthetic_stream
from fairstream.linalg import principal_angles
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.theory import (
    PafoConstants,
    pafo_check,
    pafo_constants,
    pafo_gap,
    pafo_plan,
    plan_source,
)

EASY = PafoConstants(
    n_features=10,
    n_unfair=2,
    n_components=3,
    p_min=0.25,
    norm_sub_gaussian=1.5,
    second_moment_bound=2.0,
    deviation_bound=1.0,
    matrix_variance=4.0,
    mean_gap=1.0,
    residual_mean_gap=0.0,
    unfair_gap=0.5,
    fair_gap=0.4,
    unfair_level=1.0,
    fair_level=0.8,
)


def axis_stream(spectra, gap, **arguments):
    d = len(gap)
    return SyntheticStream(np.stack([np.eye(d)] * 2), np.array(spectra), np.array(gap), **arguments)


def changed(**changes):
    return dataclasses.replace(EASY, **changes)


# Constants ----------------------------------------------------------------------------------------


def test_constants_by_hand():
    stream = axis_stream(
        [[1.0, 2.0, 3.0, 1.0], [4.0, 2.0, 1.0, 1.0]], [0.0, 0.0, 0.0, 2.0], p=0.25, distribution="rademacher"
    )
    c = pafo_constants(stream, n_components=1, n_unfair=2)
    # mu_1 = 1.5 e4, mu_0 = -0.5 e4: S = diag(3, 0, -2, 2.25 - 0.25).
    assert np.allclose(np.diag(stream.second_moment_gap), [3.0, 0.0, -2.0, 2.0])
    assert c.p_min == 0.25
    assert c.second_moment_bound == pytest.approx(4.0)
    assert c.mean_gap == pytest.approx(2.0)
    assert c.norm_sub_gaussian == pytest.approx(math.sqrt(8.0 / (2 * math.log(2))))
    # The farthest row: |mu_1| = 1.5 and a group radius of at most sqrt(8).
    assert c.deviation_bound == pytest.approx((1.5 + math.sqrt(8.0)) ** 2)
    # nu = 3, 2, 2, 0: no gap after the second.
    assert c.unfair_gap == pytest.approx(0.0)
    assert c.unfair_level == pytest.approx(2.0)
    one = pafo_constants(stream, n_components=1, n_unfair=1)
    assert (one.unfair_gap, one.unfair_level) == pytest.approx((1.0, 3.0))
    assert one.residual_mean_gap == pytest.approx(2.0)
    # Outside e1 and e4: Sigma = diag(., 2, 0.75 * 3 + 0.25, .) = 2, 2.5.
    assert (one.fair_level, one.fair_gap) == pytest.approx((2.5, 0.5))
    assert one.constraint == "all"


def test_case_2_where_the_mean_gap_lies_in_the_nulled_directions():
    stream = axis_stream([[1.0, 2.0, 1.0], [4.0, 2.0, 1.0]], [1.0, 0.0, 0.0], distribution="uniform")
    c = pafo_constants(stream, 1, 1)
    assert c.residual_mean_gap == 0.0
    assert c.constraint == "covariance"
    assert c.fair_level == pytest.approx(2.0)
    # The control: off that axis the residual is there.
    tilted = axis_stream([[1.0, 2.0, 1.0], [4.0, 2.0, 1.0]], [1.0, 0.1, 0.0], distribution="uniform")
    assert pafo_constants(tilted, 1, 1).residual_mean_gap > 0.05
    assert pafo_constants(tilted, 1, 1, constraint="covariance").residual_mean_gap == 0.0


def test_gaussian_rows_have_no_bound_until_truncated():
    stream = synthetic_stream(5)
    c = pafo_constants(stream, 1, 1)
    assert math.isinf(c.deviation_bound)
    with pytest.raises(ValueError, match="deviation_bound is infinite"):
        pafo_plan(c, 0.5, 0.5, 0.5)
    truncated = pafo_constants(stream, 1, 1, tail=1e-9)
    assert pafo_plan(truncated, 0.5, 0.5, 0.5).constants.tail > 0
    X, groups = stream.sample(100_000)
    assert np.sum(X**2, axis=1).max() <= truncated.deviation_bound
    # A tail of a half is broken by some rows and by fewer than half of them.
    loose = pafo_constants(stream, 1, 1, tail=0.5)
    share = np.mean(
        np.sum((X - stream.group_means[groups]) ** 2, axis=1) > 2 * math.log(4) * loose.norm_sub_gaussian**2
    )
    assert 0 < share < 0.5
    bounded = pafo_constants(synthetic_stream(5, distribution="uniform"), 1, 1, tail=1e-9)
    assert bounded.tail == 0.0


def test_constants_plugged_in_from_rows_approach_the_population():
    stream = synthetic_stream(
        5, p=0.3, decay=(1.0, 0.2), mean_scale=2.0, distribution="uniform", random_state=3
    )
    X, groups = stream.sample(200_000)
    moments = GroupMoments(5)
    moments.update(X + 7.0, {"sex": np.where(groups == 1, "m", "f")})
    labels = {"sex": np.where(groups[:50_000] == 1, "m", "f")}
    plugged = pafo_constants(moments, 2, 1, sample=(X[:50_000] + 7.0, labels))
    known = pafo_constants(stream, 2, 1)
    for name in (
        "p_min",
        "second_moment_bound",
        "matrix_variance",
        "mean_gap",
        "residual_mean_gap",
        "unfair_gap",
        "fair_gap",
        "unfair_level",
        "fair_level",
    ):
        assert getattr(plugged, name) == pytest.approx(getattr(known, name), rel=0.05, abs=0.01), name
    # Plugged in, sigma and M are those of the rows seen: within the population's, and not far below.
    assert 0.5 * known.norm_sub_gaussian < plugged.norm_sub_gaussian <= known.norm_sub_gaussian
    assert 0.4 * known.deviation_bound < plugged.deviation_bound <= known.deviation_bound


def test_constants_refuse_what_the_theorem_does_not_cover():
    stream = synthetic_stream(5, distribution="uniform")
    with pytest.raises(ValueError, match="n_unfair is 5"):
        pafo_constants(stream, 1, 5)
    with pytest.raises(ValueError, match="n_components is 4: between 1 and 3"):
        pafo_constants(stream, 4, 1)
    with pytest.raises(ValueError, match="constraint is 'mean'"):
        pafo_constants(stream, 1, 1, constraint="mean")
    with pytest.raises(ValueError, match="tail is 1"):
        pafo_constants(stream, 1, 1, tail=1.0)
    moments = GroupMoments(5)
    X, groups = stream.sample(500)
    moments.update(X, {"group": groups})
    with pytest.raises(ValueError, match="sample is None"):
        pafo_constants(moments, 1, 1)
    with pytest.raises(ValueError, match="none outside group 1"):
        pafo_constants(moments, 1, 1, sample=(X[groups == 1], groups[groups == 1]))
    with pytest.raises(ValueError, match="group is 7"):
        pafo_constants(moments, 1, 1, sample=(X, groups), group=7)


# Plans --------------------------------------------------------------------------------------------


def test_a_plan_by_hand():
    plan = pafo_plan(EASY, eps_optimality=0.6, eps_fairness=0.9, delta=0.2)
    start, eps = 0.05, 0.6 / (2 * 3 * 2.0)
    eta = min(0.9, 0.4 * 0.6 / (40 * 3 * 4.0), 0.4 * 0.2 / (160 * 2.0 * math.sqrt(30)))
    assert plan.eta == pytest.approx(eta)
    TT = math.ceil(4 / math.log(0.8 / 0.4) * math.log(20 / (eps * start)))
    T = math.ceil(4 / math.log(1.0 / 0.5) * math.log(20 / (eta / 2 * start)))
    assert plan.power_steps == (T, TT)
    share = 0.2 / 4 / (2 * TT)
    assert plan.terms["component error"] == pytest.approx(400 * 8 / (eps * 0.4) ** 2 * math.log(52 / share))
    assert plan.terms["component start"] == pytest.approx(
        1600 * 30 * 8 / (start * 0.4) ** 2 * math.log(24 / share)
    )
    assert plan.terms["component bound"] == pytest.approx(4 / 9 * 1 / 8 * math.log(52 / share))
    share = 0.2 / 6 / (2 * T)
    assert plan.terms["unfair error"] == pytest.approx(
        800 * 4.0 / (eta / 2 * 0.5) ** 2 / 0.25 * math.log(24 / share)
    )
    assert plan.terms["unfair start"] == pytest.approx(
        3200 * 20 * 4.0 / (start * 0.5) ** 2 / 0.25 * math.log(8 / share)
    )
    assert plan.terms["unfair bound"] == pytest.approx(4 / 0.25 * math.log(24 / share))
    assert plan.unfair_block == math.ceil(max(v for k, v in plan.terms.items() if k.startswith("unfair")))
    assert plan.n_rows == plan.unfair_block * T + plan.component_block * TT


def test_the_mean_gap_enters_in_case_1_only():
    with_gap = pafo_plan(changed(residual_mean_gap=0.5), 0.6, 0.9, 0.2)
    without = pafo_plan(EASY, 0.6, 0.9, 0.2)
    assert "unfair mean gap" not in without.terms
    rows = 128 * 32 * 1.5**2 / (0.25 * 0.5**2) * 2 / with_gap.eta**2 * math.log(48 * 10 / 0.2)
    assert with_gap.terms["unfair mean gap"] * with_gap.unfair_steps == pytest.approx(rows)
    # g of length |f| / 2: the unfair directions must be known 2 * 2 sqrt(2) times better, |f| / |g| squared.
    ratio = with_gap.terms["unfair error"] / without.terms["unfair error"]
    assert ratio == pytest.approx(32, rel=0.05)
    smaller = pafo_plan(changed(residual_mean_gap=0.25), 0.6, 0.9, 0.2)
    assert smaller.terms["unfair mean gap"] / with_gap.terms["unfair mean gap"] == pytest.approx(4, rel=0.1)


def slope(values, rows):
    return np.polyfit(np.log(values), [math.log(n) for n in rows], 1)[0]


@pytest.mark.parametrize(
    ("name", "values", "rows", "expected"),
    [
        ("p_min", [0.01, 0.05, 0.25], "unfair_rows", -1.0),
        ("p_min", [0.01, 0.05, 0.25], "component_rows", 0.0),
        ("unfair_gap", [1e-4, 1e-3, 1e-2], "unfair_rows", -3.0),
        ("fair_gap", [1e-4, 1e-3, 1e-2], "component_rows", -3.0),
        ("matrix_variance", [1e3, 1e4, 1e5], "unfair_rows", 1.0),
        ("n_features", [100, 1_000, 10_000], "component_rows", 1.0),
    ],
)
def test_rows_grow_with_the_problem_as_the_theorem_says(name, values, rows, expected):
    plans = [pafo_plan(changed(**{name: value}), 0.01, 0.01, 0.2) for value in values]
    fitted = slope(values, [getattr(plan, rows) for plan in plans])
    # Logarithmic factors remain, on the block size and on the steps.
    assert fitted == pytest.approx(expected, abs=0.25)


@pytest.mark.parametrize(
    ("make", "values", "rows", "expected"),
    [
        (lambda e: (EASY, 0.5, e, 0.5), [1e-7, 1e-6, 1e-5], "unfair_rows", -2.0),
        (lambda e: (EASY, 0.5, e, 0.5), [1e-7, 1e-6, 1e-5], "component_rows", 0.0),
        (lambda e: (EASY, e, 0.5, 0.5), [1e-7, 1e-6, 1e-5], "component_rows", -2.0),
        (lambda e: (EASY, e, 0.5, 0.5), [1e-7, 1e-6, 1e-5], "unfair_rows", -2.0),
        (lambda e: (EASY, 0.5, 0.5, e), [1e-7, 1e-6, 1e-5], "component_rows", -2.0),
    ],
)
def test_rows_grow_with_the_promise_as_the_theorem_says(make, values, rows, expected):
    # Fairness is the first phase's business alone; optimality concerns both (the price of fairness). The
    # appendix's letters are swapped: were they swapped here too, the first two lines would fail.
    plans = [pafo_plan(*make(value)) for value in values]
    # 800 M / (15 eps Delta) rules where the variance is small: EASY's is large enough for eps^-2.
    assert slope(values, [getattr(plan, rows) for plan in plans]) == pytest.approx(expected, abs=0.25)


def test_a_promise_without_a_gap_or_with_a_senseless_number_is_refused():
    for changes, message in (
        ({"unfair_gap": 0.0}, "unfair_gap is 0.0: without a gap Delta_m"),
        ({"fair_gap": 0.0}, "fair_gap is 0.0: without a gap Delta_k"),
    ):
        with pytest.raises(ValueError, match=message):
            pafo_plan(changed(**changes), 0.1, 0.1, 0.1)
    for arguments, message in (
        ((0.0, 0.1, 0.1), "eps_optimality is 0.0"),
        ((0.1, 1.0, 0.1), "eps_fairness is 1.0"),
        ((0.1, 0.1, 0.0), "delta is 0.0"),
        ((0.1, 0.1, float("nan")), "delta is nan"),
    ):
        with pytest.raises(ValueError, match=message):
            pafo_plan(EASY, *arguments)


def test_rows_without_variance_still_have_a_plan():
    plan = pafo_plan(changed(matrix_variance=0.0), 0.5, 0.5, 0.5)
    assert 0 < plan.n_rows < pafo_plan(EASY, 0.5, 0.5, 0.5).n_rows
    assert plan.terms["unfair error"] == pytest.approx(plan.terms["unfair bound"], rel=0.05)


def test_one_level_and_no_tail_needs_few_steps():
    plan = pafo_plan(changed(unfair_gap=1.0, fair_gap=0.8), 0.5, 0.5, 0.5)
    assert max(plan.power_steps) <= 5


# The lemmas behind the plan, on rows ----------------------------------------------------------------


@pytest.mark.parametrize(("d", "r"), [(4, 1), (10, 3), (40, 10)])
def test_a_random_start_overlaps_as_much_as_lemma_1_wants(d, r):
    rng, delta, trials = np.random.default_rng(0), 0.2, 2_000
    starts = np.linalg.qr(rng.standard_normal((trials, d, r)))[0]
    cosines = np.linalg.svd(starts[:, :r], compute_uv=False)[:, -1]
    wanted = delta / (2 * math.sqrt(d * r))
    assert np.mean(cosines < wanted) <= delta
    # The control: ten times that overlap is too much to hope for.
    assert np.mean(cosines < 10 * wanted) > delta


def noisy_power(A, V, steps, noise, top, rng, bounds):
    for _ in range(steps):
        Z = rng.standard_normal(V.shape)
        inside, outside = top @ (top.T @ Z), Z - top @ (top.T @ Z)
        Z = bounds[1] * inside / np.linalg.norm(inside, 2) + bounds[0] * 0.9 * outside / np.linalg.norm(
            outside, 2
        )
        V = np.linalg.qr(A @ V + noise * Z)[0]
    return V


def test_the_planned_steps_reach_eps_under_the_largest_noise_allowed():
    rng, d, r, eps, delta = np.random.default_rng(1), 12, 2, 0.05, 0.2
    levels = np.array([2.0, -1.0, 0.8] + [0.5] * (d - 3))
    A, top, gap = np.diag(levels), np.eye(d)[:, :r], 0.2
    constants = changed(
        n_features=d,
        n_unfair=r,
        unfair_level=1.0,
        unfair_gap=gap,
        residual_mean_gap=0.0,
        second_moment_bound=1.0,
        fair_gap=1.0,
        fair_level=2.0,
        n_components=1,
    )
    plan = pafo_plan(constants, 4.0, 2 * eps, 4 * delta)
    steps = math.ceil(4 / math.log(1 / 0.8) * math.log(2 * d / (eps * delta)))
    assert plan.unfair_steps >= steps
    bounds = eps * gap / 5, delta * gap / (10 * math.sqrt(d * r))
    failed = {1: 0, 60: 0}
    for noise in failed:
        for _ in range(40):
            start = np.linalg.qr(rng.standard_normal((d, r)))[0]
            V = noisy_power(A, start, steps, noise, top, rng, bounds)
            failed[noise] += np.sin(principal_angles(V, top)[0]) > eps
    assert failed[1] <= delta * 40
    assert failed[60] > delta * 40  # the control: sixty times the noise


def test_the_block_noise_stays_within_lemma_2():
    stream = synthetic_stream(6, p=0.3, distribution="rademacher", random_state=2)
    c = pafo_constants(stream, 1, 1)
    delta, b = 0.1, 5_000
    assert b >= 4 / c.p_min * max(1, 8 * c.deviation_bound**2 / (9 * c.matrix_variance)) * math.log(
        2 * 12 / delta
    )
    bound = math.sqrt(32 * c.matrix_variance / (b * c.p_min) * math.log(2 * 12 / delta))
    errors = []
    for seed in range(60):
        X, groups = stream.fresh(seed).sample(b)
        gap = [X[groups == a].T @ X[groups == a] / np.sum(groups == a) for a in (0, 1)]
        errors.append(np.linalg.norm(gap[1] - gap[0] - stream.second_moment_gap, 2))
    assert np.mean(np.array(errors) > bound) <= delta
    assert np.mean(np.array(errors) > bound / 30) > delta  # the control


def test_the_mean_gap_error_stays_within_its_lemma():
    stream = synthetic_stream(6, p=0.3, random_state=2)
    delta, n = 0.1, 4_000
    sigma, p_min = stream.norm_sub_gaussian, 0.3
    bound = math.sqrt(8 * 32 * sigma**2 / (n * p_min) * math.log(24 / delta))
    errors = []
    for seed in range(60):
        X, groups = stream.fresh(seed).sample(n)
        found = X[groups == 1].mean(axis=0) - X[groups == 0].mean(axis=0)
        errors.append(np.linalg.norm(found - stream.mean_gap))
    assert np.mean(np.array(errors) > bound) <= delta
    assert np.mean(np.array(errors) > bound / 60) > delta  # the control


# Gaps and the check -------------------------------------------------------------------------------


class Fitted:
    def __init__(self, V):
        self.components_ = V.T


def test_the_gap_of_truth_is_zero_and_plain_pca_is_better_and_unfair():
    stream = synthetic_stream(8, random_state=5)
    truth = stream.population(2, 2)
    assert pafo_gap(Fitted(truth.V), truth) == pytest.approx((0.0, 0.0), abs=1e-12)
    plain = np.linalg.eigh(stream.covariance)[1][:, -2:]
    optimality, fairness = pafo_gap(plain, truth)
    assert optimality < 0
    assert fairness > 0.1
    # A fair but poor choice is the other way round.
    poor = np.linalg.svd(np.hstack([truth.U, truth.V]))[0][:, -2:]
    optimality, fairness = pafo_gap(poor, truth)
    assert optimality > 0.1
    assert fairness < 1e-12
    # Only the span counts.
    turned = truth.V @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert pafo_gap(turned, truth) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_gap_refuses_another_number_of_components():
    truth = synthetic_stream(8).population(2, 2)
    with pytest.raises(ValueError, match=r"shape \(8, 1\), the truth \(8, 2\)"):
        pafo_gap(truth.V[:, :1], truth)


def exact_learner(n):
    def learn(stream):
        X, groups = stream.sample(n)
        moments = [X[groups == a].T @ X[groups == a] / np.sum(groups == a) for a in (0, 1)]
        values, P = np.linalg.eigh(moments[1] - moments[0])
        f = X[groups == 1].mean(axis=0) - X[groups == 0].mean(axis=0)
        U = np.linalg.qr(np.column_stack([P[:, [np.argmax(np.abs(values))]], f]))[0]
        outside = np.eye(len(f)) - U @ U.T
        return np.linalg.eigh(outside @ (X.T @ X / n) @ outside)[1][:, -1:]

    return learn


def test_the_check_tells_a_learner_with_rows_enough_from_one_without():
    stream = axis_stream([[1.0, 2.0, 1.0, 0.5], [4.0, 2.0, 1.0, 0.5]], [0.0, 0.0, 1.0, 0.0], p=0.4)
    truth = stream.population(1, 1)
    many = pafo_check(exact_learner(20_000), stream, truth, 0.1, 0.1, n_trials=30)
    few = pafo_check(exact_learner(40), stream, truth, 0.1, 0.1, n_trials=30)
    assert many.probability == 1.0
    assert many.confirms(0.2)
    assert many.interval[1] >= 1 - 0.2
    assert few.interval[1] < 1 - 0.2
    assert len({gap.fairness for gap in many.gaps}) == 30  # every trial had rows of its own
    assert many.gaps == pafo_check(exact_learner(20_000), stream, truth, 0.1, 0.1, n_trials=30).gaps


def test_the_interval_is_clopper_and_pearsons():
    stream = synthetic_stream(4)
    truth = stream.population(1, 1)
    check = pafo_check(lambda fresh: truth.V, stream, truth, 0.1, 0.1, n_trials=6)
    assert check.interval == pytest.approx((0.025 ** (1 / 6), 1.0))
    never = pafo_check(lambda fresh: truth.U[:, :1], stream, truth, 10.0, 0.1, n_trials=6)
    assert never.interval == pytest.approx((0.0, 1 - 0.025 ** (1 / 6)))
    with pytest.raises(ValueError, match="n_trials is 0"):
        pafo_check(lambda fresh: truth.V, stream, truth, 0.1, 0.1, n_trials=0)


# The paper's own learner ----------------------------------------------------------------------------


def power_learner(blocks, steps):
    def learn(stream):
        method = FairPowerMethod(
            stream.n_features,
            1,
            constraint="covariance",
            step_rows=blocks,
            power_steps=steps,
            groups={"group": (0, 1)},
            on_empty_group="zero",
            random_state=stream.seed,
        )
        for block in stream.blocks(65_536, blocks[0] * steps[0] + blocks[1] * steps[1]):
            method.update(block.X, block.groups)
        return method.components.T

    return learn


@pytest.mark.filterwarnings("ignore::fairstream.errors.FairstreamWarning")  # the handful may lack a group
def test_fnpm_keeps_its_promise_with_far_fewer_rows_than_planned_and_not_with_a_handful():
    spectra = np.full((2, 4), 1e-6)
    spectra[1, 0], spectra[0, 1] = 1.0, 0.35
    stream = axis_stream(spectra, np.zeros(4), p=0.35, distribution="rademacher")
    plan = pafo_plan(pafo_constants(stream, 1, 1), 0.1, 0.1, 0.5)
    truth = stream.population(1, 1, "covariance")
    assert plan.n_rows < 1e9
    enough = tuple(math.ceil(n / 1e5) for n in plan.step_rows)
    check = pafo_check(power_learner(enough, plan.power_steps), stream, truth, 0.1, 0.1, n_trials=12)
    assert check.confirms(plan.delta)
    handful = pafo_check(power_learner((2, 2), (2, 1)), stream, truth, 0.1, 0.1, n_trials=30)
    assert handful.interval[1] < 1 - 0.2


def test_a_plan_passes_over_blocks_without_rows():
    rng = np.random.default_rng(0)
    sex = np.arange(400) % 2
    X = rng.uniform(-1, 1, size=(400, 4)) * np.where(sex[:, None], [3, 1, 1, 1], [1, 1, 2, 1])
    cuts = [slice(0, 0), slice(0, 300), slice(300, 300), slice(300, 400)]
    holed = open_source([(X[cut], {"sex": sex[cut]}) for cut in cuts])
    whole = open_source(X, sensitive_features={"sex": sex})
    plans = [plan_source(source, 1, 1, 0.5, 0.1, 0.1) for source in (holed, whole)]
    assert plans[0].n_rows == pytest.approx(plans[1].n_rows)
