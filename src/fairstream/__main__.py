"""`python -m fairstream` is the command `fairstream`."""

from fairstream.cli import main

main(prog_name="fairstream")
