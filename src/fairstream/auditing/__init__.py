"""Audits: what an embedding keeps, what it costs, and what it still gives away.

`run.audit` surveys the rows (`survey`), measures every embedding (`measure`), and returns a `report`, which
`render` turns into Markdown or a page. Imports point the same way.
"""

from fairstream.auditing.audit_report import AuditReport
from fairstream.auditing.measure.probes import ProbeResult, probe, run_probes
from fairstream.auditing.report import Estimate
from fairstream.auditing.run import audit
from fairstream.auditing.tuning import Tuned, tune

__all__ = ["AuditReport", "Estimate", "ProbeResult", "Tuned", "audit", "probe", "run_probes", "tune"]
