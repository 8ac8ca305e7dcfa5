"""Processes: each started on its core, in a folder that is removed, and stopped by its id."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time


class Machine:
    """Everything that runs for the comparison. Leaving it (`with`) stops it all."""

    def __init__(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise SystemExit("benches/peers/run: two cores are needed, one for the proxies alone")
        # The proxy has a core for itself; client, origin and resolver share the other one.
        self.core = {"proxy": cores[1], "rest": cores[0]}
        self.folder = tempfile.mkdtemp(prefix="robots-proxy-peers-")
        # Squid gives up its privileges, and has to read its files.
        os.chmod(self.folder, 0o755)
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        """A file in the folder."""
        return os.path.join(self.folder, name)

    def write(self, name, text):
        """Writes a file into the folder, and returns its path."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def pinned(self, side, command):
        """The command on its core."""
        return ["taskset", "--cpu-list", str(self.core[side]), *map(str, command)]

    def start(self, side, command, log, **options):
        """Starts a process; what it prints is in `log`.

        It finds the names of the comparison by a resolv.conf that it alone sees: the machine's own stays as it is.
        """
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   'mount --bind "$0" /etc/resolv.conf && exec "$@"', self.path("resolv.conf")]
        with open(self.path(log), "ab") as out:
            options = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL, **options}
            process = subprocess.Popen(private + self.pinned(side, command), cwd=self.folder, **options)
        self.running.append(process)
        return process

    def log(self, name):
        """The end of what a process printed."""
        with open(self.path(name), errors="replace") as file:
            return file.read()[-800:]


def stop(process):
    """Ends a process that was started here, with what it has started itself."""
    if process.poll() is not None:
        return
    family = tree(process.pid)
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()


def tree(pid):
    """A process and all that it has started, and these in turn."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(entry))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def memory_kib(pid):
    """Memory of a process and its children; what they share is counted once (PSS)."""
    total = 0
    for member in tree(pid):
        try:
            with open(f"/proc/{member}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return total


class Peak:
    """The most memory that a process and its children have in use from now on, against now."""

    def __init__(self, pid):
        self.family = tree(pid)
        for member in self.family:
            # Linux forgets the peak so far (proc_pid_clear_refs(5)).
            with open(f"/proc/{member}/clear_refs", "w") as file:
                file.write("5")
        self.before = self.status("VmRSS:")

    def growth_kib(self):
        return self.status("VmHWM:") - self.before

    def status(self, key):
        total = 0
        for member in self.family:
            try:
                with open(f"/proc/{member}/status") as file:
                    total += sum(int(line.split()[1]) for line in file if line.startswith(key))
            except OSError:
                pass
        return total


def free_port():
    """Below those that the system gives to connections that go out."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def listens(process, port, address="127.0.0.1", seconds=60):
    """Waits until a process listens, and says whether it came to that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection((address, port), 1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False
