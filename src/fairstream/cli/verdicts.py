"""The exit codes of commands that judge a model against a limit."""

from fairstream.auditing.measure.verdict import CANNOT_TELL, FAILS

VERDICT_CODES = {FAILS: 3, CANNOT_TELL: 4}  # for the worst verdict; docs/reference/cli.md lists them
