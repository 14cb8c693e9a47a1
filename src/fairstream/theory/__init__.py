"""PAFO learnability: the constants of a problem, sufficient sample sizes, and checks on fresh rows."""

from fairstream.theory.assumptions import KnownGroups, PafoConstants, pafo_constants
from fairstream.theory.plan import (
    HOEFFDING_CONSTANT,
    STEP_CONSTANT,
    PafoCheck,
    PafoGap,
    PafoPlan,
    Truth,
    pafo_check,
    pafo_gap,
    pafo_plan,
)
from fairstream.theory.sources import plan_source

__all__ = [
    "HOEFFDING_CONSTANT",
    "STEP_CONSTANT",
    "KnownGroups",
    "PafoCheck",
    "PafoConstants",
    "PafoGap",
    "PafoPlan",
    "Truth",
    "pafo_check",
    "pafo_constants",
    "pafo_gap",
    "pafo_plan",
    "plan_source",
]
