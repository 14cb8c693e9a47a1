"""Make the compact tables embedded in the package from the raw UCI and ProPublica files.

    python paper/make_embedded_data.py RAW_FOLDER [OUTPUT_FOLDER]

RAW_FOLDER holds adult.data, adult.test, german.data and compas-scores-two-years.csv as published. Rows keep
their published order; Adult is adult.data followed by adult.test. An empty field is a missing value.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from pathlib import Path

Rows = list[list[str]]

OUTPUT = Path(__file__).parents[1] / "src" / "fairstream" / "datasets" / "data"

ADULT_HEADER = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
)

GERMAN_HEADER = (
    "status month credit_history purpose credit_amount savings employment investment_as_income_percentage "
    "personal_status other_debtors residence_since property age installment_plans housing number_of_credits "
    "skill_level people_liable_for telephone foreign_worker credit"
)

# What the published analyses use. Names, birth dates, case numbers and jail dates stay out.
COMPAS_HEADER = (
    "sex age age_cat race juv_fel_count juv_misd_count juv_other_count priors_count days_b_screening_arrest "
    "c_charge_degree c_charge_desc is_recid decile_score score_text v_decile_score v_score_text "
    "two_year_recid"
)


def adult(raw: Path) -> tuple[list[str], Rows]:
    rows: Rows = []
    for part in ("adult.data", "adult.test"):
        for line in (raw / part).read_text(encoding="ascii").splitlines():
            # adult.test opens with a remark and ends its labels with a full stop; both end in a blank line.
            if line and not line.startswith("|"):
                rows.append(["" if field == "?" else field for field in line.rstrip(".").split(", ")])
    return ADULT_HEADER.split(), rows


def german(raw: Path) -> tuple[list[str], Rows]:
    return GERMAN_HEADER.split(), [
        line.split() for line in (raw / "german.data").read_text("ascii").splitlines()
    ]


def compas(raw: Path) -> tuple[list[str], Rows]:
    with (raw / "compas-scores-two-years.csv").open(encoding="utf-8", newline="") as file:
        header, *records = csv.reader(file)
    # Two columns occur twice with the same content; index() takes the first.
    columns = COMPAS_HEADER.split()
    keep = [header.index(name) for name in columns]
    return columns, [[record[j] for j in keep] for record in records]


def as_csv(columns: list[str], rows: Rows) -> bytes:
    for row in rows:
        if len(row) != len(columns):
            raise SystemExit(f"a row has {len(row)} fields, expected {len(columns)}: {row}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue().encode("utf-8")


TABLES = {"adult": adult, "compas": compas, "german": german}


def main(raw: Path, output: Path = OUTPUT) -> None:
    for name, read in TABLES.items():
        # No time stamp: the same raw files give the same bytes.
        packed = gzip.compress(as_csv(*read(raw)), compresslevel=9, mtime=0)
        (output / f"{name}.csv.gz").write_bytes(packed)
        print(f"{name}.csv.gz: {len(packed):,} bytes")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(*map(Path, sys.argv[1:]))
