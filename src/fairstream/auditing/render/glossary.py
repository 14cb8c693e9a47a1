"""The words of a report that a reader may not know, each in one sentence or two."""

from __future__ import annotations

import re

GLOSSARY = {
    "attacker": (
        "A program that learns, from rows whose group is known, to tell the group of other rows. The "
        "strongest attacker is the one that does best in trials on rows that are not scored."
    ),
    "attribute": "A property of people that must not show, such as sex. Its values are the groups.",
    "AUC": (
        "The chance that an attacker ranks two rows of different groups the right way round. 0.5 is pure "
        "guessing, 1 is certainty. With more than two groups it is the average over the groups, each "
        "against all others."
    ),
    "calibration": (
        "Whether, of the rows with a score of about 0.7, about 70 % are truly positive, in every group."
    ),
    "digest": "A fingerprint of a file or of rows (SHA-256): if one number changes, the digest changes.",
    "direction": (
        "A weighted sum of features. Removing a direction means that the embedding can no longer depend on "
        "it."
    ),
    "embedding": "The few numbers that a model makes of each row, and that are handed on instead of the row.",
    "explained variance": (
        "The share of all differences between rows that the coordinates of the embedding have themselves. "
        "More can be worked out from them, because features tell of each other: see variance kept."
    ),
    "false positive rate": "The share of the truly negative rows of a group that are selected.",
    "four fifths": (
        "A rule of thumb of US employment law: a group that is selected at less than four fifths (0.8) of "
        "the rate of the group selected most often may be treated unfairly."
    ),
    "guessing": "Naming groups at random, which has an AUC of 0.5.",
    "interval": (
        "The range that holds the true number with the stated confidence, 95 % unless said otherwise; it is "
        "written in small letters or in brackets."
    ),
    "limit": "The AUC that no attacker may exceed, as stated by whoever asked for this audit.",
    "mean gap": "The distance in the embedding between the average of a group and the average of all others.",
    "MMD²": (
        "A distance between whole distributions, 0 if they are the same. Its p is the share of random "
        "relabellings of the rows that show as large a distance."
    ),
    "noise floor": (
        "How large a gap looks on as many rows if the groups do not differ: 95 % of random relabellings of "
        "the rows show less. A gap below it is within noise."
    ),
    "plain PCA": (
        "The usual way to make an embedding: it keeps as much variance as possible and does nothing for "
        "fairness."
    ),
    "raw data": (
        "The rows before any embedding. They hold all there is to read, but an attacker can do better on an "
        "embedding, which spares it much that is irrelevant."
    ),
    "reconstruction error": (
        "How much of a row, on average, is lost if it is rebuilt from its embedding (squared)."
    ),
    "second-moment gap": (
        "The largest difference, along any direction of the embedding, between the spread of a group and the "
        "spread of all others; both are measured from the average of all rows."
    ),
    "seed": "The number that fixes all random choices, so that the same audit gives the same report.",
    "selection rate": "The share of a group that a decision selects.",
    "task score": (
        "How well the target can be predicted from the embedding: the chance that a row with the target is "
        "ranked above one without it (its AUC)."
    ),
    "true positive rate": "The share of the truly positive rows of a group that are selected.",
    "variance kept": (
        "The share of all differences between rows that weighted sums can work out from the embedding. "
        "Differences that only a handful of rows show count less."
    ),
    "verdict": (
        "“Holds” if, with the stated confidence, the AUC is at most the limit; “does not hold” if it is "
        "above; “cannot tell” if the audited rows do not decide. Its bounds look at one side each, so they "
        "lie a little inside the interval."
    ),
}


def words_in(text: str) -> dict[str, str]:
    """Return the entries whose words are in the text, or in an entry that is."""
    found: dict[str, str] = {}
    while True:
        read = " ".join([text, *found.values()])
        more = {word: told for word, told in GLOSSARY.items() if re.search(rf"(?<!\w){word}", read, re.I)}
        if len(more) == len(found):
            return more
        found = more
