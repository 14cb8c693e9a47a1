"""tune: users say how much may leak or must be kept; rows held back judge the candidates."""

from fairstream.auditing.tuning.candidates import Candidate, Tuned
from fairstream.auditing.tuning.search import tune

__all__ = ["Candidate", "Tuned", "tune"]
