"""Files: atomic, digest-checked, without pickle."""
