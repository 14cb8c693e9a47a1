"""The audit: what an embedding keeps, what it costs, and what it still gives away."""

from fairstream.auditing.measure.probes import Estimate, ProbeResult, probe, run_probes
from fairstream.auditing.report import AuditReport
from fairstream.auditing.run import audit

__all__ = ["AuditReport", "Estimate", "ProbeResult", "audit", "probe", "run_probes"]
