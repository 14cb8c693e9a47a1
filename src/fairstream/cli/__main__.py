"""`python -m fairstream.cli` is the command `fairstream`."""

from fairstream.cli.commands import main

main(prog_name="fairstream")
