"""A PostgreSQL server of its own on this machine, as long as the tests need one."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def server():
    """Start a server and yield the address of its database; skip if that is not possible."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fairstream-postgres-"))
    before = []
    if os.geteuid() == 0:  # initdb refuses to run as root
        user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        before = ["runuser", "-u", "nobody", "--"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, log = str(folder / "data"), str(folder / "log")
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    make = [*before, programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"]
    start = [*before, programs / "pg_ctl", "-D", data, "-l", log, "-w", "-t", "60", "-o", settings, "start"]
    stop = [*before, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
    try:
        for command in (make, start):
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder)
            if done.returncode:
                pytest.skip(f"PostgreSQL cannot be started here: {done.stderr.strip()[-200:]}")
        yield f"postgresql://tester:secret@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*map(str, stop)], capture_output=True, cwd=folder)
        shutil.rmtree(folder, ignore_errors=True)


def _programs():
    found = shutil.which("pg_ctl")
    asked = shutil.which("pg_config")
    if found is None and asked is not None:
        folder = Path(subprocess.run([asked, "--bindir"], capture_output=True, text=True).stdout.strip())
        found = str(folder / "pg_ctl") if (folder / "pg_ctl").exists() else None
    return None if found is None else Path(found).resolve().parent
