"""What several test files need. A test file imports it by name: `from support.command import run`."""
