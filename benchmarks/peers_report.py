"""Tables and verdicts of the comparison with peers, and its page, all from the stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers_data import FULL, Workload
from peers_fits import CONTENDERS
from peers_plot import FAMILIES, plot

from fairstream.estimators.solvers import EXACT_FEATURES

FAIR_AUC, ENOUGH_VARIANCE = 0.55, 0.9
STREAM_GOAL, STREAM_GOAL_4096, DENSE_GOAL, FLAT_GOAL = 1.0, 5.0, 1.5, 1.1
ORDER = {contender.name: number for number, contender in enumerate(CONTENDERS)}

INTRODUCTION = """# Against every peer

<!-- written by benchmarks/peers.py from benchmarks/results/peers.json: do not edit -->

Same rows, same k, same threads, every fit in a fresh process; `make bench-full` measures all of it again
and writes this page.

- Seconds: from opening the file to having the components. Reading is included, from the page cache. Fits
  shorter than three seconds are repeated, and the median counts.
- Busy: the same beside two processes that do nothing but use the processors, for those who learn from a
  stream. Three attributes: ours with two more, of 5 and 8 groups. Both only of fits that took less than a
  twelfth of the limit.
- Peak memory: what the fit takes above the interpreter, its imports and a fit of 400 rows.
- Quality, on held-out rows: the variance of the embedding as a share of all variance; the mean gap and the
  second-moment gap in the embedding as shares of the same gaps of the rows themselves; the AUC of a
  cross-validated linear probe of the group, with its 95 % interval.
- Fair: FAIR
  Held-out rows have gaps by chance; with fewer rows than features the gap itself is known only roughly.
- Our best: the quickest of our solvers that is fair and keeps ENOUGH of the variance that any of them keeps.
  It is in bold."""

HOW_PEERS_ARE_RUN = """How peers are run: PCA with its default solver on all rows in memory (sparse rows stay
sparse). IncrementalPCA and torch-incremental-pca block by block, 5 k rows each (at least 200), dask-ml 1,000;
IncrementalPCA also with its default of 5 d rows. torch-incremental-pca uses its Gram solver, the quickest it
has. CorrelationRemover and LeaceFitter are followed by PCA; CorrelationRemover needs the group of every row
it transforms. Our power method makes ten steps in each of its two phases, all in one pass. A rival that went
beyond a limit on a smaller workload is not started on a larger one; who takes an eighth of the limit for a
sixteenth of 5,000 rows or more is not given all of them."""

Line = dict[str, Any]


def lines_of(stored: dict[str, Any], workload: Workload) -> list[Line]:
    """Return a workload's lines in the order of the contenders."""
    lines = [line for line in stored["lines"] if line["workload"] == workload.name and line["contender"]]
    return sorted(lines, key=lambda line: ORDER.get(line["contender"], len(ORDER)))


def is_fair(line: Line, lines: list[Line]) -> bool:
    """Say whether a linear probe reads next to nothing, or no more than from what fair peers leave."""
    if "auc" not in line:
        return False
    others = [other["auc"] for other in lines if other["family"] == "fair" and "auc" in other]
    return line["auc"] <= FAIR_AUC or line["auc_low"] <= min(others, default=0.5)


def best_of_ours(lines: list[Line]) -> Line | None:
    """Return the quickest of our solvers that is fair and keeps about as much variance as the others."""
    fair = [line for line in lines if line["family"] == "ours" and is_fair(line, lines)]
    most = max((line["explained_variance"] for line in fair), default=0.0)
    good = [line for line in fair if line["explained_variance"] >= ENOUGH_VARIANCE * most]
    return min(good, key=lambda line: line["seconds"], default=None)


# Verdicts --------------------------------------------------------------------------------------------


def verdicts(workload: Workload, lines: list[Line]) -> list[tuple[str, bool | None, str]]:
    """Return (goal, met or None where it could not be judged, figures) for one workload."""
    best = best_of_ours(lines)
    if best is None:
        return [("fair", False, "none of our solvers is")]
    who = best["contender"].removeprefix("fairstream ")
    answers: list[tuple[str, bool | None, str]] = [
        ("fair", True, f"{who}: linear probe AUC {best['auc']:.3f}, control {_control(lines)}")
    ]
    wanted = STREAM_GOAL_4096 if workload.n_features == 4_096 else STREAM_GOAL
    streaming = [line for line in lines if line["family"] == "plain" and line["streams"]]
    if wanted != STREAM_GOAL:
        slower = [line for line in streaming if "IncrementalPCA" in line["contender"]]
        answers.append(_against(f"{wanted:g} times as fast as IncrementalPCA", best, slower, wanted))
    answers.append(_against("as fast as every incremental peer", best, streaming, STREAM_GOAL))
    default = f"fairstream {'exact' if workload.n_features <= EXACT_FEATURES else 'sketch'}"
    chosen = [line for line in lines if line["contender"] == default and "seconds" in line]
    for line in chosen:
        solver = default.removeprefix("fairstream ")
        answers.append(
            _against(f"our default ({solver}) as fast as every incremental peer", line, streaming, 1)
        )
    fair = [line for line in lines if line["family"] in ("fair", "rival")]
    answers.append(_against("as fast as every fair contender", best, fair, STREAM_GOAL))
    dense = [line for line in lines if line["family"] == "plain" and not line["streams"]]
    answers.append(_against(f"within {DENSE_GOAL:g} times of PCA in memory", best, dense, 1 / DENSE_GOAL))
    for line in lines:
        if line["family"] == "ours" and line.get("peak_mb_half"):
            growth = line["peak_mb"] / max(line["peak_mb_half"], 1e-9)
            small = line["peak_mb"] - line["peak_mb_half"] < 8  # the allocator's rounding, not rows
            figures = f"{line['peak_mb_half']:.0f} MB for half the rows, {line['peak_mb']:.0f} MB for all"
            solver = line["contender"].removeprefix("fairstream ")
            answers.append((f"memory flat in rows, {solver}", growth <= FLAT_GOAL or small, figures))
    if workload.kind == "sparse":
        shares = {
            line["contender"]: line["densified_share"]
            for line in lines
            if line["family"] == "ours" and "seconds" in line
        }
        figures = ", ".join(
            f"{name.removeprefix('fairstream ')} {share:.2%}" for name, share in shares.items()
        )
        answers.append(
            ("sparse never densified", max(shares.values()) == 0, f"share of the rows made dense: {figures}")
        )
    return answers


def _control(lines: list[Line]) -> str:
    plain = [line["auc"] for line in lines if line["family"] == "plain" and "auc" in line]
    return f"plain PCA {max(plain):.3f}" if plain else "none of the plain ones ran"


def _against(goal: str, best: Line, others: list[Line], wanted: float) -> tuple[str, bool | None, str]:
    """Compare with the quickest of the others; one that was ended for its time took at least that long."""
    done = {line["contender"]: line["seconds"] for line in others if "seconds" in line}
    bounds = {line["contender"]: line["at_least"] for line in others if "at_least" in line}
    if not done and not bounds:
        reasons = sorted({line.get("failed", "not measured") for line in others})
        return goal, None, f"none of them finished: {', '.join(reasons)}" if reasons else "not measured"
    quickest = min(done or bounds, key=lambda name: (done or bounds)[name])
    ratio = (done or bounds)[quickest] / best["seconds"]
    met = ratio >= wanted if done else (True if ratio >= wanted else None)
    more = "" if done else "at least "
    return goal, met, f"{more}{ratio:.2f} times the speed of {quickest}"


# Tables ----------------------------------------------------------------------------------------------


def table_of(stored: dict[str, Any]) -> str:
    """Return all workloads as Markdown: verdicts and one table each."""
    return "\n\n".join(part for workload in FULL for part in _section(stored, workload))


def _section(stored: dict[str, Any], workload: Workload, image: str | None = None) -> list[str]:
    lines = lines_of(stored, workload)
    skipped = [
        line["skipped"] for line in stored["lines"] if line["workload"] == workload.name and "skipped" in line
    ]
    if not lines:
        return [f"## {workload.title}", f"Not measured: {skipped[0]}."] if skipped else []
    first = lines[0]
    facts, limits = first["facts"], first["limits"]
    about = facts["workload"]
    dates = sorted({line["date"] for line in lines})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    share = about["n_rows"] / workload.n_rows
    parts = [
        f"## {workload.title}" + (f" ({share:.0%} of the rows)" if share < 1 else ""),
        f"{about['n_rows']:,} rows fitted, {about['n_held_out']:,} held out, k = {about['n_components']}, "
        f"m = {about['n_unfair']}; {facts['file_mb']:,.0f} MB of rows. Limits: {limits['seconds']:g} s and "
        f"{limits['gigabytes']:g} GB. {_clock(lines)}. Measured {when}.",
        _verdict_table(workload, lines),
    ]
    if image:
        parts.append(f"![{workload.title}: seconds, peak memory and probe AUC of every contender]({image})")
    return [*parts, _line_table(lines)]


def _clock(lines: list[Line]) -> str:
    """Say what the seconds are, and how busy the machine was."""
    limits = lines[0]["limits"]
    loads = [line["load"] for line in lines if "load" in line]
    kind = "Wall-clock" if limits.get("clock", "wall") == "wall" else "Processor"
    load = f", load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return f"{kind} seconds, {limits.get('threads', 'all')} threads{load}"


def _verdict_table(workload: Workload, lines: list[Line]) -> str:
    marks = {True: "met", False: "**not met**", None: "cannot be judged"}
    rows = [f"| {goal} | {marks[met]} | {figures} |" for goal, met, figures in verdicts(workload, lines)]
    return "\n".join(["| goal | | measured |", "|---|---|---|", *rows])


def _line_table(lines: list[Line]) -> str:
    best = best_of_ours(lines)
    rows = [
        "| contender | kind | seconds | times our best | seconds, busy | seconds, three attributes | "
        "peak MB | explained variance | mean gap left | second-moment gap left | linear probe AUC |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in lines:
        name = f"**{line['contender']}**" if line is best else line["contender"]
        kind = FAMILIES[line["family"]]
        if "error" in line:
            cells = _escaped(line["error"])
            if "at_least" in line and best:
                cells += f" (over {line['at_least'] / best['seconds']:.1f} times our best)"
            rows.append(f"| {name} | {kind} | {cells} | | | | | | | | |")
            continue
        ratio = f"{line['seconds'] / best['seconds']:.2f}" if best else ""
        rows.append(
            f"| {name} | {kind} | {line['seconds']:.3g} | {ratio} | {_seconds(line, 'busy_seconds')} | "
            f"{_seconds(line, 'several_seconds')} | {line['peak_mb']:,.0f} | "
            f"{line['explained_variance']:.3f} | {line['mean_gap']:.3f} | {line['second_moment_gap']:.3f} | "
            f"{line['auc']:.3f} ({line['auc_low']:.3f} to {line['auc_high']:.3f}) |"
        )
    return "\n".join(rows)


def _seconds(line: Line, name: str) -> str:
    return f"{line[name]:.3g}" if line.get(name) else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


# Page and plots --------------------------------------------------------------------------------------


def write_report(stored: dict[str, Any], docs: Path) -> None:
    """Write docs/evidence/peers.md and one plot per workload."""
    sections: list[str] = []
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for workload in FULL:
        image = None
        if any("seconds" in line for line in lines_of(stored, workload)):
            image = f"images/peers-{workload.name}.svg"
            m, date = stored["machine"], max(line["date"] for line in lines_of(stored, workload))[:10]
            title = f"{workload.title}: {date}, {m['processor']}, {m['cores']} cores"
            plot(lines_of(stored, workload), title, docs / image)
        sections += _section(stored, workload, image)
    (docs / "peers.md").write_text("\n\n".join([_head(stored), *sections]) + "\n")


def _head(stored: dict[str, Any]) -> str:
    m = stored["machine"]
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in m["packages"].items())
    measured_on = (
        f"Measured on {m['processor']}, {m['cores']} cores, {m['memory_gb']:g} GB, {m['system']}, Python "
        f"{m['python']}, {m['blas']}. {versions}."
    )
    words = {
        "FAIR": f"this AUC is at most {FAIR_AUC}, or within its interval that of the best fair peer.",
        "ENOUGH": f"at least {ENOUGH_VARIANCE:.0%}",
    }
    introduction = INTRODUCTION
    for name, value in words.items():
        introduction = introduction.replace(name, value)
    return "\n\n".join([introduction, measured_on, _summary(stored), HOW_PEERS_ARE_RUN])


def _summary(stored: dict[str, Any]) -> str:
    """Return one row per workload: what was met, our best, and the two ratios that count."""
    rows = ["| workload | goals met | our best | against incremental peers | against PCA in memory |"]
    rows.append("|---|---|---|---|---|")
    for workload in FULL:
        lines = lines_of(stored, workload)
        if not lines:
            continue
        answers, best = verdicts(workload, lines), best_of_ours(lines)
        met = sum(answer is True for _, answer, _ in answers)
        shown = f"{best['contender']}, {best['seconds']:.3g} s, {best['peak_mb']:,.0f} MB" if best else "none"
        streams = [words for goal, _, words in answers if goal == "as fast as every incremental peer"]
        dense = [words for goal, _, words in answers if "PCA in memory" in goal]
        cells = [workload.title, f"{met} of {len(answers)}", shown, *(streams or [""]), *(dense or [""])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
