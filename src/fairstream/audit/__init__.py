"""The audit: what an embedding keeps, what it costs, and what it still gives away."""

from fairstream.audit.probes import Estimate, ProbeResult, probe, run_probes
from fairstream.audit.report import AuditReport
from fairstream.audit.run import audit

__all__ = ["AuditReport", "Estimate", "ProbeResult", "audit", "probe", "run_probes"]
