"""What a report shows, in order: sentences, figures and tables, the same for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from string import ascii_uppercase

from fairstream.auditing.comparing import BETTER, SLIGHTLY, best_read
from fairstream.auditing.render import summary, tables
from fairstream.auditing.render.canvas import SHAPES, Drawing, Series
from fairstream.auditing.render.figures import (
    DRAWN_CELLS,
    N_COLOURS,
    Spot,
    curve_figure,
    frontier_figure,
    group_series,
    is_dominated,
    map_figure,
)
from fairstream.auditing.render.glossary import words_in
from fairstream.auditing.render.labels import clipped, shown
from fairstream.auditing.render.tables import Cell, Table
from fairstream.auditing.report import AttributeDecisions, ModelReport, Report

N_WEIGHTS = 6
FEW = 4  # if there are more models, sentences call them by their letters
HEADLINED = 2  # if there are more, the headline counts them
OPEN_ROWS = 24  # tables with more rows are folded away until someone asks for them
VERDICTS = "The verdicts"
SIGN_OFF = ("Name", "Role", "Date", "Signature")


@dataclass(frozen=True)
class Panel:
    """One drawing for a desk and one for a phone (or one for both), so that letters never shrink."""

    caption: str
    wide: Drawing
    narrow: Drawing | None = None


@dataclass(frozen=True)
class Figure:
    """Panels side by side, and what their marks stand for."""

    legend: Sequence[Series]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Part:
    """A piece of a section. A folded table is shown if someone asks for it, and printed."""

    title: str = ""
    says: Sequence[str] = ()
    figure: Figure | None = None
    table: Table | None = None
    folded: bool = False
    code: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with its parts."""

    key: str
    heading: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Answer:
    """The verdict on one attribute: the worst answer, and who gets which, or the reasons if they are few."""

    attribute: str
    answer: str
    told: str
    says: Sequence[str]


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees before scrolling."""

    warnings: Sequence[str]
    headline: str
    limit: str
    answers: Sequence[Answer]
    overview: Table
    caveat: str


Looks = Sequence[tuple[ModelReport, Series]]


def first_screen(report: Report) -> FirstScreen:
    """Return warnings, headline, verdict, the one table, and the caveat."""
    limit = summary.NO_LIMIT
    if report.limit is not None:
        limit = f"Stated limit: no attacker may read a group above AUC {report.limit:g}."
    return FirstScreen(
        warnings=[summary.with_short_names(report, line) for line in report.warnings],
        headline=_headline(report, looks(report)),
        limit=f"{limit} {summary.MEASURE}",
        answers=[*_answers(report, looks(report))],
        overview=tables.overview_table(report, looks(report)),
        caveat=f"{summary.averaged(report)} {summary.caveat(report)}".lstrip(),
    )


def sections(report: Report) -> list[Section]:
    """Return every section that has something to show, and the glossary of their words."""
    made = [
        Section(key, heading, parts)
        for key, heading, make in _SECTIONS
        if (parts := [*make(report, looks(report))])
    ]
    said = " ".join([*_first_texts(first_screen(report)), *(text for one in made for text in _texts(one))])
    words = Table("Words and their meaning", ("word", "meaning"), [*words_in(said).items()], 1, wrap=(1,))
    return [*made, Section("glossary", "Words used in this report", [Part(table=words)])]


def looks(report: Report) -> Looks:
    """Give every embedding a letter, a colour and a shape; plain PCA is a grey square."""
    sizes = {model.n_components for model in report.models if model.role == "control"}
    brief = sum(model.role == "model" for model in report.models) > FEW
    letters, numbers, given = _letters(), count(), []
    for model in report.models:
        if model.role == "control":
            key = "PCA" if len(sizes) == 1 else f"PCA {model.n_components}"
            given.append((model, Series(model.name, key, "control", "square")))
        else:
            i = next(numbers)
            style, shape = f"series-{i % N_COLOURS}", SHAPES[i % len(SHAPES)]
            given.append((model, Series(model.name, next(letters), style, shape, lettered=True, brief=brief)))
    return given


def _headline(report: Report, looks: Looks) -> str:
    """Return the report's headline; of many models, how many are better than plain PCA."""
    if sum(model.role == "model" for model in report.models) <= HEADLINED:
        return summary.with_short_names(report, report.headline)
    said = []
    for raw in report.raw:
        found = [
            (best_read(attack), look, summary.beside_pca(report, model, raw.attribute))
            for model, look in looks
            if model.role == "model" and (attack := summary.attack_of(model, raw.attribute)) is not None
        ]
        if found:
            how = [one for _, _, one in found]
            (auc, whom), best, _ = min(found, key=lambda one: one[0][0].value)
            told = _beside_pca(shown(raw.attribute, 40), len(how), how.count(BETTER), how.count(SLIGHTLY))
            told += f", as far as these rows tell; {best.full(40)} hides it best, at AUC {auc.value:.3f}"
            told += f" ({clipped(whom.removeprefix('; '), 80)})." if whom else "."
            said.append((how.count(BETTER) + how.count(SLIGHTLY) - len(how), how.count(BETTER), told))
    return " ".join(told for *_, told in sorted(said, key=lambda one: one[:2]))


def _beside_pca(name: str, n_found: int, n_better: int, n_slightly: int) -> str:
    """Say how many embeddings do not hide an attribute better than plain PCA, or only little.

    Examples
    --------
    >>> _beside_pca("sex", 3, 3, 0), _beside_pca("sex", 3, 1, 2)
    ('All 3 embeddings hide sex better than plain PCA does', '2 of 3 embeddings hide sex little better than \
plain PCA does')
    >>> _beside_pca("sex", 9, 5, 3)
    '1 of 9 embeddings does not hide sex clearly better than plain PCA does, and 3 do so only a little'
    """
    n_not = n_found - n_better - n_slightly
    than = "than plain PCA does"
    if n_found in (n_better, n_slightly):
        return f"All {n_found} embeddings hide {name} {'' if n_better else 'little '}better {than}"
    if n_not == n_found:
        return f"None of the {n_found} embeddings hides {name} clearly better {than}"
    many = f"{n_not or n_slightly} of {n_found} embeddings"
    if not n_not:
        return f"{many} {'hides' if n_slightly == 1 else 'hide'} {name} little better {than}"
    told = f"{many} {'does' if n_not == 1 else 'do'} not hide {name} clearly better {than}"
    little = f", and {n_slightly} {'does' if n_slightly == 1 else 'do'} so only a little"
    return f"{told}{little if n_slightly else ''}"


def _answers(report: Report, looks: Looks) -> Iterator[Answer]:
    for raw in report.raw:
        found = [
            (look, leak.verdict)
            for model, look in looks
            for leak in model.leaks
            if model.role == "model" and leak.attribute == raw.attribute and leak.verdict is not None
        ]
        by_answer = {
            answer: named
            for answer in summary.ANSWERS
            if (named := [look.called for look, verdict in found if verdict.answer == answer])
        }
        if not found:
            continue
        worst = next(iter(by_answer))
        if len(found) == 1:
            yield Answer(raw.attribute, worst, worst, [found[0][1].sentence])
        elif len(by_answer) == 1:
            told = f"{worst} for {'every' if worst == 'holds' else 'any'} embedding"
            why = [f"{look.called}: {verdict.sentence}" for look, verdict in found]
            yield Answer(
                raw.attribute, worst, told, why if len(found) <= HEADLINED else [f"Why: see “{VERDICTS}”."]
            )
        elif len(found) <= HEADLINED:
            # Each its own, in the order they were given: the first one is the one that is judged.
            for look, verdict in found:
                told = f"{verdict.answer} for {look.called}"
                yield Answer(raw.attribute, verdict.answer, told, [verdict.sentence])
        else:
            says = [f"{summary.sentence(answer)}: {', '.join(named)}." for answer, named in by_answer.items()]
            told = f"{worst} for {len(by_answer[worst])} of {len(found)} embeddings"
            yield Answer(raw.attribute, worst, told, says)
    audited = [raw.attribute for raw in report.raw]
    for one in report.data.attributes if report.limit is not None else ():
        if one.attribute not in audited:
            reason = "It was not audited: fewer than two of its groups are large enough to report."
            yield Answer(one.attribute, "cannot tell", "cannot tell", [reason])


def _attack(report: Report, looks: Looks) -> Iterator[Part]:
    attacked = [(raw.attribute, [*tables.attacks_on(report, looks, raw.attribute)]) for raw in report.raw]
    if not any(found for _, found in attacked):
        return
    level = report.parameters.get("level", 0.95)
    yield Part(
        says=[
            "Each attacker learns to tell the group from the embedding, and is scored on rows that it has "
            "not seen. An attacker with few rows understates what leaks, so the strongest one is shown for "
            f"several numbers of rows. Bars and small figures are {level:.0%} intervals. The strongest "
            "attacker was chosen on other rows, before it was scored: single attackers in the table may "
            "show a higher AUC by luck."
        ]
    )
    for attribute, found in attacked:
        if not found:
            continue
        curves = [(look, [(p.n_rows, p.auc) for p in attack.curve.points]) for look, attack in found]
        n_groups = found[0][1].n_groups
        trends = _by_saying((look, f"{attack.curve.sentence}.") for look, attack in found)
        panel = Panel(
            f"AUC of {shown(attribute, 40)}, by the rows that the attacker had",
            *(
                curve_figure(attribute, curves, report.limit, n_groups=n_groups, narrow=narrow)
                for narrow in (False, True)
            ),
        )
        yield Part(
            shown(attribute),
            [summary.rows_sentence([attack for _, attack in found]), *trends],
            Figure([look for look, _ in found], [panel]),
            tables.curve_table(attribute, found),
            folded=True,
        )
        yield Part(table=tables.attacker_table(attribute, found), folded=True)
    rounding = tables.rounding_table(report)
    if rounding.rows:
        told = (
            "Digits far behind the decimal point can give a group away. Here a forest attacks with and "
            "without noise of a millionth of each coordinate's spread, which no user of the embedding would "
            "notice. If its AUC drops by more than 0.02, the embedding leaks through rounding."
        )
        leaks = any(leak.rounding and leak.rounding.leaks for model in report.models for leak in model.leaks)
        yield Part("Leaks through rounding", [told], table=rounding, folded=not leaks)
    verdicts = tables.verdict_table(report)
    if verdicts.rows:
        yield Part(VERDICTS, table=verdicts, folded=True)


def _frontier(report: Report, looks: Looks) -> Iterator[Part]:
    parts = []
    for raw in report.raw:
        spots = [
            Spot(look, model.recovered_variance, attack.strongest.auc)
            for model, look in looks
            if model.recovered_variance is not None
            and (attack := summary.attack_of(model, raw.attribute)) is not None
        ]
        if len(spots) > 1:
            n_groups = 2 if raw.attack is None else raw.attack.n_groups
            panel = Panel(
                f"Variance kept against the AUC of {shown(raw.attribute, 40)}",
                *(
                    frontier_figure(raw.attribute, spots, report.limit, n_groups=n_groups, narrow=narrow)
                    for narrow in (False, True)
                ),
            )
            table = tables.frontier_table(
                raw.attribute,
                [(s.series.name, s.auc, s.kept, is_dominated(s, spots)) for s in spots],
            )
            figure = Figure([spot.series for spot in spots], [panel])
            parts.append(Part(shown(raw.attribute), figure=figure, table=table, folded=True))
    if parts:
        if any(look.brief for _, look in looks):
            costs = [summary.costs_of_many((look.called, model) for model, look in looks)]
        else:
            costs = [*_by_saying((look, told) for model, look in looks for told in summary.costs(model))]
        intro = (
            "Up is more variance kept, left is less that an attacker can read. An embedding is grey if "
            "another one keeps as much and gives away less; the line joins those that none beats."
        )
        yield Part(says=[intro, *costs])
        yield from parts


def _removed(report: Report, looks: Looks) -> Iterator[Part]:
    told = [(model, look) for model, look in looks if model.role == "model" and model.removed]
    if not told:
        return
    yield Part(
        says=[
            "What the embedding may no longer use. Each direction is a weighted sum of features; the "
            "features with the largest weights say what it is about. The gaps are those along the "
            "direction in the audited rows."
        ]
    )
    for model, look in told:
        table = tables.direction_table(model, N_WEIGHTS) if model.directions else None
        yield Part(look.full(60), [model.removed], table=table, folded=True)


def _maps(report: Report, looks: Looks) -> Iterator[Part]:
    mapped = sorted(
        looks, key=lambda pair: pair[0].role == "model"
    )  # the control first, to read the others by
    for number, raw in enumerate(report.raw):
        views = [
            (look, view) for model, look in mapped for view in model.maps if view.attribute == raw.attribute
        ]
        if not views:
            continue
        if not number:
            yield Part(
                says=[
                    "The first two coordinates of each embedding. The mark is a group's average, the "
                    "ellipse is two standard deviations wide: if the ellipses coincide, averages and "
                    f"spreads agree in these two coordinates. If there are only {DRAWN_CELLS} groups, "
                    f"discs show where their rows are; cells of fewer than {views[0][1].smallest_cell} "
                    "rows are not drawn."
                ]
            )
        yield Part(
            shown(raw.attribute),
            figure=Figure(
                group_series([cloud.group for cloud in views[0][1].clouds]),
                [Panel(look.full(60), map_figure(view, look.name)) for look, view in views],
            ),
            table=tables.map_table(raw.attribute, views),
            folded=True,
        )


def _gaps(report: Report, looks: Looks) -> Iterator[Part]:
    table = tables.gap_table(report)
    if table.rows:
        intro = (
            "On a sample of rows, a gap is never exactly zero. Beside each gap is its noise floor: 95 % of "
            "random relabellings of the same rows show a smaller gap. A gap below its floor reads “within "
            "noise”; any other is given as a share of the gap that plain PCA leaves."
        )
        yield Part(says=[intro], table=table, folded=len(table.rows) > OPEN_ROWS)
    choices = tables.choice_table(report)
    if choices.rows:
        told = (
            "What other numbers of removed directions would keep and leave, solved from the moments of the "
            f"{report.frontier_fitted_on} and measured on the audited rows. m is the number of directions "
            "for each comparison; the gaps are the largest over all groups."
        )
        yield Part("Other choices", [told], table=choices, folded=True)


def _floors(report: Report, looks: Looks) -> Iterator[Part]:
    if any(floor.label is not None for floor in report.floors):
        intro = (
            "If the target differs between the groups, an embedding that serves the target must tell "
            "something of the group. Here the attackers see no embedding: one knows only the true target "
            "label, another only a score that predicts it well. An AUC near these is the price of the "
            "target, not a fault of the embedding."
        )
        yield Part(says=[intro], table=tables.floor_table(report))


def _decisions(report: Report, looks: Looks) -> Iterator[Part]:
    views = [(look, model.decisions) for model, look in looks if model.decisions is not None]
    decided: dict[str, list[tuple[Series, AttributeDecisions]]] = {}
    for look, view in views:
        for one in view.by_attribute:
            decided.setdefault(one.attribute, []).append((look, one))
    if not decided:
        return
    rules = dict.fromkeys(summary.decision_rule(view) for _, view in views)
    yield Part(
        says=[
            " ".join(["What would happen to the groups if decisions were taken from the embedding.", *rules]),
            "If the whole interval of a ratio is below 0.8, the ratio is below four fifths. Rates that too "
            "few rows stand for are left out.",
        ]
    )
    for attribute, found in decided.items():
        told = [(look, one) for look, one in found if len(one.groups) > 1]
        if any(look.brief for look, _ in told):
            says = summary.four_fifths_of_many([(look.called, one) for look, one in told])
        else:
            says = [*_by_saying((look, summary.four_fifths(one)) for look, one in told)]
        small = found[0][1].n_suppressed_groups
        if small:
            says.append(f"Left out because they have too few rows: {small} group{'s' * (small != 1)}.")
        table = tables.decision_table(found)
        yield Part(shown(attribute), says, table=table, folded=len(table.rows) > OPEN_ROWS)
        yield Part(table=tables.score_table(found), folded=True)
        if (calibrated := tables.calibration_table(found)).rows:
            yield Part(table=calibrated, folded=True)


def _data(report: Report, looks: Looks) -> Iterator[Part]:
    least = report.parameters.get("min_group_size")
    intro = (
        f"Groups with fewer than {least} rows are left out of this report and of every comparison. So are "
        "their rows, from every number, if subtracting the other groups from a total would show them."
    )
    yield Part(says=[intro] * (least is not None), table=tables.size_table(report))
    kept = tables.group_table(report)
    if kept.rows:
        yield Part(table=kept, folded=len(kept.rows) > OPEN_ROWS)


def _reproduce(report: Report, looks: Looks) -> Iterator[Part]:
    yield Part(table=tables.reproduce_table(report))
    yield Part("The call", code=report.reproduction.call)
    if report.reproduction.command:
        yield Part("The command", code=report.reproduction.command)


_SECTIONS: tuple[tuple[str, str, Callable[[Report, Looks], Iterable[Part]]], ...] = (
    ("attack", "Would an attacker with more rows learn more?", _attack),
    ("frontier", "What hiding the groups costs", _frontier),
    ("removed", "What was removed", _removed),
    ("maps", "Where the groups are in the embedding", _maps),
    ("gaps", "Gaps between the groups, beside what chance shows", _gaps),
    ("floors", "What the task itself gives away", _floors),
    ("decisions", "How decisions fall by group", _decisions),
    ("data", "The data, group by group", _data),
    ("reproduce", "Data and reproduction", _reproduce),
)


def _by_saying(said: Iterable[tuple[Series, str]]) -> Iterator[str]:
    """Yield each saying once, after the names of the embeddings that it is said of."""
    by_saying: dict[str, list[Series]] = {}
    for look, told in said:
        by_saying.setdefault(told, []).append(look)
    for told, looks in by_saying.items():
        yield f"{', '.join(look.called for look in looks)}: {told}"


def _texts(section: Section) -> Iterator[str]:
    yield section.heading
    for part in section.parts:
        yield from (part.title, *part.says)
        if part.table is not None:
            yield from _table_texts(part.table)


def _first_texts(first: FirstScreen) -> Iterator[str]:
    yield from (*first.warnings, first.limit, first.headline, first.caveat)
    yield from _table_texts(first.overview)


def _table_texts(table: Table) -> Iterator[str]:
    yield from (table.title, *table.header)
    for value in (value for row in table.rows for value in row):
        yield from (value.value, value.beside) if isinstance(value, Cell) else (value,)


def _letters() -> Iterator[str]:
    """Yield A, B, ..., Z, AA, AB, ..."""
    for length in count(1):
        yield from map("".join, product(ascii_uppercase, repeat=length))
