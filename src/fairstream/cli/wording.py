r"""Puts the library's messages, which name Python arguments, into the words of one command.

A rule that names an option applies only to commands that have it; other commands get another text, or none:
no message suggests an option that the command would refuse.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable
from collections.abc import Set as Collection
from typing import NamedTuple

from fairstream.cli.name_lists import joined_names

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


class Rule(NamedTuple):
    """A pattern in the library's messages, its replacement, and another one for commands without the options.

    The options are those named in `typed`, and those in `needs`, on which the advice depends.
    """

    pattern: str
    typed: str
    otherwise: str = ""
    needs: tuple[str, ...] = ()

    def words(self, options: Collection[str]) -> str:
        """Return what to say instead for a command with these options."""
        return self.typed if options >= {*OPTION.findall(self.typed), *self.needs} else self.otherwise


class Argument(NamedTuple):
    """An argument of the library: the option that sets it, and its name for commands without that option."""

    name: str
    option: str
    otherwise: str


_NAME = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_NAMES = rf"\[{_NAME}(?:, {_NAME})*\]"
_CATEGORIES = r"categories=\{'((?:[^'\\]|\\.)*)': \[\.\.\.\]\}"
# Options of `open_source` that have no option of their own.
_OPTIONS = (
    "column_names|column_types|newlines_in_values|query|storage_options|key|missing_chunks|name_column|names|"
    "mode|resize|workers|prefetch|max_pixels|max_bytes|on_error"
)
_TO_ENCODE = ("--impute",)  # only commands that choose how columns become features have it

RULES = (
    # Sensitive attributes
    Rule(
        r"sensitive_features is missing: pass one label per row and attribute(, name columns .*?_columns)?",
        "no sensitive attribute is named: name its column with --sensitive",
        "no sensitive attribute is named",
    ),
    Rule(
        r', or constraint="none" for ordinary streaming PCA',
        ", or pass --constraint none for ordinary streaming PCA",
    ),
    Rule(
        r"no sensitive attribute was seen: pass sensitive_features",
        "no sensitive attribute was seen: name its column with --sensitive",
        "the moments hold no sensitive attribute: collect them again with fairstream moments --sensitive",
    ),
    Rule(
        r"open it with sensitive_features=\.\.\.",
        "name it with --sensitive",
        "name it when the moments are made",
    ),
    Rule(r", with quantile_groups\(values, 4\)", ""),
    Rule(r"sensitive_features\[('(?:[^'\\]|\\.)*')\]", r"the sensitive attribute \1"),
    Rule(r"without sensitive_features=\[\.\.\.\]", "without --sensitive", "without sensitive attributes"),
    # Tables
    Rule(
        r'fill them with open_source\(\.\.\., impute="mean"\), drop those rows, or leave (it|them) out of '
        r"features",
        r"pass --impute mean, drop those rows, or leave \1 out (--exclude, or --features without \1)",
        "fill or drop those rows, or fit the model again with fairstream fit --impute mean",
    ),
    Rule(
        r'Fill the others with open_source\(\.\.\., impute="mean"\), drop those rows, or leave them out of '
        r"features",
        "For the others pass --impute mean, drop those rows, or leave them out (--exclude, or --features "
        "without them)",
        "Fill the others, or drop those rows",
    ),
    Rule(
        r'or fill what is missing with open_source\(\.\.\., impute="mean"\)',
        "or pass --impute mean",
        "or fill what is missing",
    ),
    Rule(
        r"^the encoding needs column",
        "the file of --like needs column",
        "the model needs column",
    ),
    Rule(
        r"name the column that tells whose rows these are with ids=\.\.\.",
        "name the column that tells whose rows these are with --id-column",
        "name the column that tells whose rows these are",
    ),
    Rule(
        rf"or fit again and list every category in {_CATEGORIES}",
        r'or fit again and list every category in the JSON file of --categories: {"\1": [...]}',
        r'or fit the model again with every category in the JSON file of fairstream fit --categories: {"\1": '
        r"[...]}",
    ),
    Rule(
        rf"(list (?:every (?:category|value)|all of them)) in {_CATEGORIES}",
        r'\1 in the JSON file of --categories: {"\2": [...]}',
        r"\1 when the model is fitted",
    ),
    Rule(
        r"leave (it|them) out of features",
        r"leave \1 out of --features",
        r"fit the model without \1",
        _TO_ENCODE,
    ),
    Rule(r"column_types=\{name: type\}", """--option 'column_types={"NAME": "TYPE"}'""", "another file"),
    Rule(
        r"^query is \S+: (say what to read from .*), as in query='(.*)'",
        r"\1, as in --option 'query=\2'",
        r"\1",
    ),
    Rule(rf"^({_OPTIONS}) (is|names|does) ", r"--option \1 \2 ", r"\1 \2 "),
    Rule(r"""delimiter=(['"].['"])""", r"--delimiter \1", "another delimiter"),
    Rule(r"newlines_in_values=True", "--option newlines_in_values=true", "another file"),
    Rule(
        r"^sensitive_features names '([^']*,[^']*)', (.*): name one of these$",
        r"--sensitive names '\1', \2: name one of these, and give --sensitive once for each",
        r"sensitive_features names '\1', \2: name one of these",
    ),
    Rule(
        r"has (\S*;\S*): name one of these",
        r"has \1: name one of these, or pass --delimiter ';' if that separates its columns",
        r"has \1: name one of these",
    ),
    Rule(
        r"pass null_values=\['((?:[^'\\]|\\.)*)'\]",
        r"pass --null-values '\1' --impute mean",
        "declare it",
        _TO_ENCODE,
    ),
    Rule(r"save subspace_, which leaves", "write a model with fairstream solve or fit, which leaves"),
    Rule(r"checkpoint=('(?:[^'\\]|\\.)*') is in use", r"the checkpoint folder \1 is in use"),
    Rule(
        r"does not apply beside features: leave",
        "does not apply beside --features: leave",
        "does not apply beside a choice of features: leave",
    ),
    Rule(
        r"does not apply beside encoding, which settles it",
        "does not apply beside --like, which settles it",
        "does not apply beside a model, which settles it",
    ),
    Rule(r"name them with features=\[\.\.\.\]", "name them with --features", "choose other data"),
    # Images
    Rule(r"as attributes=\.\.\.", "with --attributes", "with its attributes"),
    Rule(r"name_column=\.\.\.", "--option name_column=COLUMN", "the column of names"),
    Rule(r"with key=\.\.\.", "with --option key=NAME", "in Python"),
    Rule(r'on_error="skip"', "--option on_error=skip", "other images"),
    Rule(r"resize=\(height, width\)", "--option resize=[HEIGHT,WIDTH]", "images of one size"),
    Rule(r"use FairStreamingPCA", "leave out --channels", "use another model"),
    # Tuning
    Rule(
        r"give one of limit \(the AUC no attacker may exceed\) and keep \(a share of variance\)",
        "give one of --limit (the AUC no attacker may exceed) and --keep (a share of variance)",
    ),
    Rule(
        r"maximise='target' needs the target: pass y",
        "--maximise target needs the target: name it with --target",
    ),
    Rule(
        r"needs the target of the rows, these have none: pass y, or collect .* with a target",
        "needs the target of the rows, these have none: name it with --target, for moments in "
        "fairstream moments --sample --target",
    ),
    Rule(r"^guard needs a", "--guard needs a", "a guard needs a"),
    Rule(
        r"(hold no|needs a) sample of rows: collect (?:them|the moments) with sample=(\d+) or so",
        r"\1 sample of rows: collect them with fairstream moments --sample \2",
        r"\1 sample of rows: collect them with fairstream moments --sample \2",
    ),
    Rule(
        r"keep_target needs the target of the sampled rows: pass y to fit",
        "--keep-target needs the target of the sampled rows: name it with --target, for moments in "
        "fairstream moments --sample --target",
        "keeping the target needs that of the sampled rows: collect them with fairstream moments --sample "
        "--target",
    ),
    Rule(
        r"only one of the summaries keeps a sample of rows: collect both with sample=",
        "only one of them keeps a sample of rows: collect both with fairstream moments --sample",
        "only one of them keeps a sample of rows: collect both with fairstream moments --sample",
    ),
    # Dither
    Rule(
        r"or name a file that holds it \((.*)\); dither=0 (would add .*)",
        r"or name a file that holds it with --dither-key (\1); --dither 0 \2",
        r"or use transform or erase with a key file",
    ),
    Rule(r"^the key file of dither", "the file of --dither-key", "the key file"),
    Rule(r"; a key itself is passed as bytes", "; a key itself is never typed"),
    Rule(
        r"^a key (and ids )?given, .*",
        "--dither-key is given, but no noise is added: pass --dither 0.3, or leave it out",
        "a key is given, but no noise is added",
    ),
    # Solvers and passes
    Rule(
        r"a larger rank \(it is (\d+)\) or solver=\"exact\"",
        r"a larger --rank (it is \1) or --solver exact",
        r"moments of a larger rank (it is \1), or exact ones: fairstream moments without --rank",
    ),
    Rule(
        r'use solver="sketch" or "power" \(rank= for GroupMoments\)',
        "use --solver sketch or power, or leave out columns of many categories (--exclude, --max-categories)",
        "keep a sketch",
    ),
    Rule(
        r"keep a sketch$",
        "pass --rank for a sketch, or leave out columns of many categories (--exclude, --max-categories)",
        "choose fewer columns",
    ),
    Rule(r"take a larger rank", "take a larger --rank", "collect moments of a larger rank"),
    Rule(r"step_rows=\(b, B\)", "--step-rows b,B", "blocks of some size"),
    Rule(r""", or pass on_empty_group=['"]zero['"]""", ""),
    Rule(r"take a larger step_rows", "take a larger --step-rows", "take larger blocks"),
    Rule(
        r'use solver "exact", "sketch" or "auto"', "use --solver exact, sketch or auto", "use another solver"
    ),
    Rule(r"use solver[= ]'exact' or 'sketch'", "use --solver exact or sketch", "use another solver"),
    Rule(
        r"pass resume=True to continue", "pass --resume to continue", "resume it with fairstream fit --resume"
    ),
    Rule(r"checkpoint='((?:[^'\\]|\\.)*)' already", r"--checkpoint \1 already", r"\1 already"),
    Rule(
        r"(resume|every) is given without checkpoint",
        r"--\1 is given without --checkpoint",
        r"\1 is given alone",
    ),
    Rule(r"\(partition_rows, or more partitions\)", "(more files or row groups)"),
    Rule(r" and partition_rows", ""),
    Rule(r"client is ", "--workers is ", "the number of workers is "),
    # Audits
    Rule(r"raise sample_rows, or leave y out", "leave --target out", "leave the target out"),
    Rule(r"open the data with fairstream\.streaming\.embed\.open_like, and fit", "fit"),
    Rule(r"pass seen_rows='flag'", "pass --seen-rows flag", "let them be flagged"),
    Rule(r"^intersections (has|are)", r"--intersections \1", r"intersections \1"),
    Rule(r"pass y too", "pass --target too", "give a target too"),
    Rule(r"leave y out", "leave --target out", "leave the target out"),
    Rule(r"^y (has|is)", r"--target \1", r"the target \1"),
    # What only Python can do
    Rule(r"^backend='\w+' needs", "the data of this command needs"),
    Rule(r", or a DataFrame(?: for mixed columns)?", ", or a table"),
    Rule(r"; a sample_weight counts as repetition.*", ""),
    Rule(r" or sample_weight", ""),
    Rule(r"n_features=(\d+)", r"\1 features"),
    Rule(r"\bX (has|is)\b", r"the data \1"),
    Rule(r"rescale X\b", "rescale the data"),
)

ARGUMENTS = (
    Argument("n_components", "--n-components", "the number of components"),
    Argument("n_unfair", "--n-unfair", "the number of unfair directions"),
    Argument("constraint", "--constraint", "the constraint"),
    Argument("directions", "--directions", "the choice of directions"),
    Argument("solver", "--solver", "the solver"),
    Argument("rank", "--rank", "the rank"),
    Argument("step_rows", "--step-rows", "the rows of a step"),
    Argument("power_steps", "--power-steps", "the steps"),
    Argument("random_state", "--seed", "the seed"),
    Argument("sensitive_features", "--sensitive", "the sensitive attributes"),
    Argument("ids", "--id-column", "the ids"),
    Argument("with_sample", "--with-sample", "the sampled rows"),
    Argument("features", "--features", "the features"),
    Argument("exclude", "--exclude", "the columns left out"),
    Argument("target", "--target", "the target"),
    Argument("attributes", "--attributes", "the attributes"),
    Argument("categories", "--categories", "the categories"),
    Argument("standardize", "--standardize", "scaling"),
    Argument("impute", "--impute", "filling missing values"),
    Argument("unseen", "--unseen", "the choice for unknown categories"),
    Argument("max_categories", "--max-categories", "the most categories"),
    Argument("delimiter", "--delimiter", "the delimiter"),
    Argument("text_encoding", "--text-encoding", "the text encoding"),
    Argument("null_values", "--null-values", "the missing values"),
    Argument("decimal", "--decimal", "the decimal mark"),
    Argument("bad_rows", "--bad-rows", "the choice for bad rows"),
    Argument("dither", "--dither", "the noise"),
    Argument("min_group_size", "--min-group-size", "the least group size"),
    Argument("sample_rows", "--sample", "the number of sampled rows"),
    Argument("limit", "--limit", "the limit"),
    Argument("keep", "--keep", "the share to keep"),
    Argument("maximise", "--maximise", "what to keep"),
    Argument("overwrite", "--overwrite", "replacing files"),
    Argument("eps_optimality", "--eps-optimality", "the loss of variance"),
    Argument("eps_fairness", "--eps-fairness", "the unfairness"),
)

_VALUE = r"""(?:"(?P<text>[^"]*)"|'(?P<label>[^']*)'|(?P<number>-?\d+(?:\.\d+)?)(?![\w/.]))"""


class Wording:
    """How the library's messages read for one command.

    Parameters
    ----------
    options : set of str
        All long options of the command.
    typed : iterable of str
        What was typed, such as file names: it is repeated unchanged.

    Examples
    --------
    >>> Wording({"--constraint", "--n-components"})('n_components=3: lower it, or use constraint="none"')
    '--n-components 3: lower it, or use --constraint none'
    >>> Wording(set())('n_components=3: lower n_components')
    'the number of components 3: lower the number of components'
    """

    def __init__(self, options: Collection[str], typed: Iterable[str] = ()) -> None:
        self._options = frozenset(options)
        # As a whole: "power" was typed, but not the name power_steps.
        kept = sorted((rf"(?<!\w){re.escape(text)}(?!\w)" for text in typed if len(text) > 1), key=len)
        names = "|".join(re.escape(argument.name) for argument in ARGUMENTS)
        plain = "|".join(argument.name for argument in ARGUMENTS if "_" in argument.name)
        self._tokens = re.compile(
            "|".join(
                [
                    *reversed(kept),
                    r"'(?:[^'\\]|\\.)*'",  # a value from the data
                    rf"(?<![\w./-])(?P<set>{names})=(?:{_VALUE}|(?P<flag>True)|(?P<none>None))",
                    rf"^(?P<subject>{names})(?= (?:names|is|has|holds|does not)\b)",
                    rf"(?<![\w./-])(?P<plain>{plain})(?![\w./=-])",
                ]
            )
        )

    def __call__(self, text: str) -> str:
        """Return a message in the words of the command."""
        text = re.sub(r"^(\w+) does not apply to (.*) \(options: ([\w, ]+)\)$", self._listed, text)
        for rule in RULES:
            text = re.sub(rule.pattern, rule.words(self._options), text)
        text = re.sub(rf" with exclude=({_NAMES})", self._excluded, text)
        text = re.sub(rf", or keep components off (\w+) with screen=({_NAMES})", self._screened, text)
        return self._tokens.sub(self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        name = match["set"] or match["subject"] or match["plain"]
        if name is None:
            return match[0]
        argument = next(argument for argument in ARGUMENTS if argument.name == name)
        words = argument.option if argument.option in self._options else argument.otherwise
        if match["none"]:
            return f"no {words}" if words.startswith("--") else f"{words} not given"
        value = match["text"] or match["label"] or match["number"]
        return words if value is None else f"{words} {value}"

    def _excluded(self, match: re.Match[str]) -> str:
        """Return how columns are left out, ready to be pasted."""
        if not self._options >= {"--exclude", *_TO_ENCODE}:
            return ""
        return f" with --exclude {shlex.quote(joined_names(ast.literal_eval(match[1])))}"

    def _screened(self, match: re.Match[str]) -> str:
        """Return how columns are screened, ready to be pasted."""
        if "--screen" not in self._options:
            return ""
        names = shlex.quote(joined_names(ast.literal_eval(match[2])))
        return f", or keep components off {match[1]} with --screen {names}"

    def _listed(self, match: re.Match[str]) -> str:
        names = [name for name in match[3].split(", ") if name != "encoding" or "--like" in self._options]
        listed = ", ".join(map(self._option_of, names))
        return f"{self._option_of(match[1])} does not apply to {match[2]} (options: {listed})"

    def _option_of(self, name: str) -> str:
        """Return how an option of `open_source` is typed."""
        option = "--like" if name == "encoding" else f"--{name.replace('_', '-')}"
        return option if option in self._options else f"--option {name}=..."
