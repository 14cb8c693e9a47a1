"""audit: the whole measurement, from the rows and the models to the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fairstream._version import __version__
from fairstream.auditing.audit_report import AuditReport
from fairstream.auditing.measure import views
from fairstream.auditing.measure.attack import Progress
from fairstream.auditing.measure.attackers import FAMILIES, STRENGTHS
from fairstream.auditing.measure.decisions import wilson
from fairstream.auditing.measure.embeddings import embedding_moments
from fairstream.auditing.measure.model import (
    AttackedRows,
    model_report,
    paper_bandwidth,
    raw_report,
    sampled_codes,
)
from fairstream.auditing.measure.setting import Setting, data_summary, warnings_of
from fairstream.auditing.measure.task import check_target
from fairstream.auditing.measure.twins import twins_and_reused
from fairstream.auditing.measure.words import headline, rounding_warnings
from fairstream.auditing.reproducing import input_file, reproduction
from fairstream.auditing.rows import open_rows
from fairstream.auditing.subjects import (
    Subject,
    as_subjects,
    check_encodings,
    check_widths,
    plain_parameter,
    plain_pca,
)
from fairstream.auditing.suppression import rare_combinations, reported_groups, without_combinations
from fairstream.auditing.survey import Survey, survey
from fairstream.subspace.dither import warn_of_unused


def audit(
    model: object,
    X: Any,
    sensitive_features: object = None,
    y: Any = None,
    *,
    ids: Any = None,
    train: tuple[Any, ...] | None = None,
    attack: str = "standard",
    limit: float | None = None,
    intersections: Iterable[Sequence[str]] = (),
    attackers: Iterable[str] | None = None,
    sample_rows: int = 16_000,
    n_permutations: int = 199,
    min_group_size: int = 20,
    seen_rows: str = "flag",
    level: float = 0.95,
    random_state: int = 0,
    title: str = "Fairness audit",
    announce: Callable[[str], Any] | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Measure what embeddings keep, what they cost and what they give away, on data they were not fitted on.

    Parameters
    ----------
    model : FairStreamingPCA, FairSubspace, transformer, or a list or dict of them
        Fitted. A transformer needs `transform`, and `components_` and `mean_` for the variance numbers.
        Plain PCA of the same size is always added as the control.
    X : array, frame, BlockSource or path
        The rows to audit, not those of the fit. A source is read twice (three times if rows are left out, see
        `min_group_size`, and once more for every embedding with `attack="strong"`). Embedded rows are held,
        the rows themselves are not.
    sensitive_features : list, array, Series, frame or dict
        One label per row, one column or several. Beside a source: names of its attributes, None for all.
    y : array of shape (n,), optional
        Class labels of a downstream task. A source brings its own target.
    ids : array of shape (n,), or name of a column, optional
        Whose rows these are: pass what `transform` gets, so that what is audited is what is handed on. A
        source brings its own, and a model that knows their column finds it in a frame or a file.
    train : (X, sensitive_features, y, ids), optional
        Rows that an attacker may have, for instance the training rows: attackers and classifiers of the
        target are fitted on them and scored on the audited rows. `(source,)` is enough for a source. Without
        `train`, the audited rows are attacked in folds.
    attack : {"standard", "strong"}
        How hard the embedding is attacked. "standard" fits on at most 8,000 rows of the samples; "strong" on
        all rows there are, in more and larger settings, and scores all audited rows. The report states how
        many rows each attacker had.
    limit : float, optional
        The AUC that no attacker may exceed, such as 0.65: the report then has a verdict for each attribute.
    intersections : list of sequences of str
        Attributes to cross in the table of decisions, such as `[("sex", "race")]`. Needs a target.
    attackers : list of str, optional
        Any of "linear", "quadratic", "kernel", "boosting", "forest", "network"; all by default. Fewer
        attackers find less.
    sample_rows : int
        How many rows, drawn uniformly with `random_state`, a standard attack, MMD^2 and the maps see.
        Moments see every row.
    n_permutations : int
        Relabellings behind the noise floor of each gap and each p-value of MMD^2.
    min_group_size : int
        Smaller groups are left out of the report and of every comparison. So are their rows, and rows of
        unknown group, from every number, if they are fewer than this in one pattern of such labels: else
        subtracting the groups from a total would show them.
    seen_rows : {"flag", "refuse"}
        What to do if audited rows are rows of the fit: a warning at the top of the report, or a ValueError.
        A model of this library keeps hashes of a few of its rows for that. It is done if clearly more than
        5 % of the audited rows are equal in all features to rows of the fit, beyond the twins that unseen
        rows have by chance.
    level : float
        Confidence level of the intervals.
    random_state : int
        Seed of the sample, the folds, the attackers and the permutations; it is part of the report.
    title : str
        Heading of the report.
    announce : callable, optional
        Called with a line of text before each part of the work.
    progress : callable, optional
        Called as `progress(done, in_all)` while attackers are fitted.

    Returns
    -------
    AuditReport
        Aggregates only. Render it with `to_json`, `to_markdown` or `to_html`; `summary` says it in sentences.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import PCA
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, size=600)
    >>> X = rng.normal(size=(600, 4))
    >>> X[:, 0] += 4 * sex
    >>> pca = PCA(2).fit(X[:300])
    >>> report = audit(pca, X[300:], sex[300:], limit=0.65, attackers=["linear"], n_permutations=0)
    >>> report.models[0].answer
    'does not hold'
    """
    options: dict[str, Any] = {
        "attack": attack,
        "limit": limit,
        "intersections": [tuple(crossed) for crossed in intersections],
        "attackers": [*(FAMILIES if attackers is None else attackers)],
        "sample_rows": sample_rows,
        "n_permutations": n_permutations,
        "min_group_size": min_group_size,
        "seen_rows": seen_rows,
        "level": level,
        "random_state": random_state,
    }
    _check_options(options)
    say = announce or (lambda line: None)
    subjects = as_subjects(model)
    encoding = next((subject.encoding for subject in subjects if subject.encoding is not None), None)
    id_column = next((subject.ids for subject in subjects if isinstance(subject.ids, str)), False)
    source = open_rows(X, sensitive_features, y, ids, encoding=encoding, id_column=id_column)
    if ids is not None and id_column is False and not any(subject.has_noise for subject in subjects):
        warn_of_unused(0.0, None, ids)
    check_widths(subjects, source.n_features)
    check_encodings(subjects, source)

    say("reading the data: moments, sample, digest")
    everything = found = survey(source, sample_rows=sample_rows, seed=random_state)
    attributes = [*everything.moments.groups]
    _check_intersections(options["intersections"], attributes, has_target=found.sample.target is not None)
    left_out = rare_combinations(everything.combinations, attributes, min_group_size)
    n_left_out = sum(everything.combinations[combination] for combination in left_out)
    if left_out and n_left_out < everything.moments.n_rows:
        say("reading the data once more: without the rows of small groups")
        source = without_combinations(source, attributes, left_out)
        found = survey(source, sample_rows=sample_rows, seed=random_state)
        found = replace(found, digest=everything.digest)
    kept = reported_groups(found.combinations, attributes, min_group_size)
    if not kept:
        raise ValueError(
            f"no attribute has two groups of at least {min_group_size} rows: nothing can be compared; lower "
            "min_group_size or audit more rows"
        )
    _check_target(found)
    train_source, trained = None, None
    if train is not None:
        say("reading the training rows")
        train_source = open_rows(*train, encoding=encoding, id_column=id_column)
        trained = survey(train_source, sample_rows=sample_rows, seed=random_state)
        if found.sample.target is not None:
            _check_target(trained)

    subjects = [subject.checked_linear(found.sample) for subject in subjects]
    controls = _controls(subjects, found)
    measured = [*subjects, *controls.values()]
    say("reading the data again: every embedding's moments")
    embedded = embedding_moments(source, measured, found.moments.mean(), kept)
    seen = {
        name: wilson(hits, told, level) if told else None
        for name, (hits, told) in embedded.recognised.items()
    }
    setting = Setting(
        survey=found,
        kept=kept,
        codes={name: sampled_codes(found.sample, name, labels) for name, labels in kept.items()},
        embedded=embedded,
        train=None if trained is None else trained.sample,
        seen=seen,
        twins={
            subject.name: twins_and_reused(
                found.sample.X, subject.row_marks, subject.fitted_rows, level=level, seed=random_state
            )
            for subject in subjects
            if subject.row_marks is not None and subject.fitted_rows
        },
        options=options,
        own_rows=frozenset(s.name for s in subjects if s.looks_like(everything.moments)),
        group_numbers={name: len(labels) for name, labels in everything.moments.groups.items()},
        n_left_out=n_left_out,
        train_is_audited=trained is not None and trained.digest == everything.digest,
        target_name=y if isinstance(y, str) else _name_of(y),
    )
    if seen_rows == "refuse":
        _refuse_seen(subjects, setting)
    rows = AttackedRows(
        sample=found.sample,
        train_sample=None if trained is None else trained.sample,
        source=source,
        train_source=train_source,
        all_rows=attack == "strong",
        n_rows=sum(int(part.moments.n_rows) for part in (found, trained) if part is not None),
    )
    bandwidths = {k: paper_bandwidth(control, setting) for k, control in controls.items()}
    ticks = _ticks(progress, (len(measured) + 1) * len(kept))
    reports = []
    for subject in measured:
        say(f"attacking {subject.name}")
        k = subject.control_size(found.sample)
        tick = [next(ticks) for _ in kept]
        reports.append(model_report(subject, controls[k], rows, bandwidths[k], setting, tick))
    say("attacking the raw data")
    raw, raw_task, floors = raw_report(rows, setting, [next(ticks) for _ in kept])
    fitted, audited = subjects[0].moments, found.moments.restricted(kept)
    return AuditReport(
        title=title,
        headline=headline(reports, limit),
        limit=limit,
        warnings=(*warnings_of(subjects, setting), *rounding_warnings(reports)),
        data=data_summary(setting),
        models=tuple(reports),
        raw=raw,
        raw_task=raw_task,
        floors=floors,
        frontier=views.frontier(
            audited if fitted is None else fitted,
            audited,
            subjects[0].width(found.sample),
            views.comparisons_of(kept),
        ),
        frontier_fitted_on="audited data" if fitted is None else "training data",
        reproduction=reproduction(
            options,
            [
                input_file("audited rows", X, everything),
                *(
                    []
                    if train is None or trained is None
                    else [input_file("training rows", train[0], trained)]
                ),
            ],
            has_train=train is not None,
        ),
        parameters={name: plain_parameter(value) for name, value in options.items()}
        | {"train": train is not None},
        fairstream_version=__version__,
    )


def _ticks(progress: Progress | None, n_attacks: int) -> Iterator[Progress | None]:
    """Yield a progress function for each attack: all of them together count to 100 for an attack."""

    def tick(number: int, done: int, total: int) -> None:
        if progress is not None:
            progress(100 * number + 100 * done // max(total, 1), 100 * n_attacks)

    for number in range(n_attacks):
        yield None if progress is None else partial(tick, number)


def _name_of(y: Any) -> str | None:
    """Return the name of a Series."""
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def _refuse_seen(subjects: list[Subject], setting: Setting) -> None:
    for subject in subjects:
        if setting.has_seen(subject.name):
            raise ValueError(
                f"X has rows that {subject.name} was fitted on: audit other rows, or pass seen_rows='flag' "
                "to audit these with a warning"
            )


def _check_target(found: Survey) -> None:
    if found.sample.target is not None:
        check_target(found.sample.target)


def _check_options(options: dict[str, Any]) -> None:
    """Refuse invalid options before any row is read."""
    if options["attack"] not in STRENGTHS:
        raise ValueError(f"attack is {options['attack']!r}: choose one of {', '.join(map(repr, STRENGTHS))}")
    if options["seen_rows"] not in ("flag", "refuse"):
        raise ValueError(f"seen_rows is {options['seen_rows']!r}: choose 'flag' or 'refuse'")
    unknown = [family for family in options["attackers"] if family not in FAMILIES]
    if unknown or not options["attackers"]:
        raise ValueError(f"attackers has {unknown[:1] or 'none'}: choose from {', '.join(FAMILIES)}")
    for name, least in (("sample_rows", 50), ("n_permutations", 0), ("min_group_size", 5)):
        if not isinstance(options[name], int) or options[name] < least:
            raise ValueError(f"{name} is {options[name]!r}: pass an integer of at least {least}")
    if not 0.5 <= options["level"] < 1:
        raise ValueError(f"level is {options['level']!r}: pass a confidence level such as 0.95")
    if options["limit"] is not None and not 0.5 < options["limit"] < 1:
        raise ValueError(f"limit is {options['limit']!r}: pass an AUC above 0.5 and below 1, such as 0.65")


def _check_intersections(
    intersections: list[tuple[str, ...]], attributes: list[str], *, has_target: bool
) -> None:
    if intersections and not has_target:
        raise ValueError("intersections are of decisions about a target: pass y too, or leave them out")
    for crossed in intersections:
        missing = [name for name in crossed if name not in attributes]
        if missing or len(set(crossed)) < 2:
            raise ValueError(
                f"intersections has {crossed}: pass two or more of the attributes {', '.join(attributes)}"
            )


def _controls(subjects: list[Subject], found: Survey) -> dict[int, Subject]:
    """Return plain PCA for every size in use, from the training moments if a model still has them."""
    fitted = next((s.moments for s in subjects if s.moments is not None), None)
    origin = "audited data" if fitted is None else "training data"
    controls = {}
    for k in sorted({subject.control_size(found.sample) for subject in subjects}):
        name = next(n for n in _control_names(k) if n not in {s.name for s in subjects})
        controls[k] = plain_pca(found.moments if fitted is None else fitted, k, name, origin)
    return controls


def _control_names(k: int) -> Iterable[str]:
    yield f"plain PCA (k={k})"
    yield f"plain PCA (k={k}, control)"
