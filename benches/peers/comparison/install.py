"""Gets what is needed: the origin and the peers from their registries, and what is built here."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT = os.path.dirname(os.path.dirname(HERE))
BUILT = os.path.join(HERE, "target")
LOAD = os.path.join(BUILT, "release/load")
HUDSUCKER = os.path.join(BUILT, "release/hudsucker-peer")
MITMDUMP = os.path.join(BUILT, "mitmproxy/bin/mitmdump")
OURS = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target")), "release/robots-proxy")

# A program, and its Debian package. Without those of the first list there is no comparison.
NEEDED = {"nginx": "nginx-light", "openssl": "openssl", "taskset": "util-linux"}
PEERS = {"squid": "squid-openssl", "tinyproxy": "tinyproxy", "valgrind": "valgrind"}
POLICY = "/usr/sbin/policy-rc.d"


def everything(program):
    """Installs and builds what is not there yet; `program` is a built proxy to take instead of a fresh build."""
    for package in missing(NEEDED):
        if not debian(package):
            raise SystemExit(f"benches/peers/run: no comparison without {package}")
    for package in missing(PEERS):
        debian(package) or skip(package)
    pypi("mitmproxy", MITMDUMP) or skip("mitmproxy")
    if not cargo("--package", "load", folder=HERE):
        raise SystemExit("benches/peers/run: the client does not build")
    # By itself, so that no feature of the client's dependencies gets into it.
    cargo("--package", "hudsucker-peer", folder=HERE) or skip("hudsucker")
    if program is None and not cargo(folder=PROJECT):
        raise SystemExit("benches/peers/run: robots-proxy does not build")
    return os.path.abspath(program or OURS)


def find(program):
    """Where a program is; Debian's servers are not in everybody's PATH."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing(programs):
    return [package for program, package in programs.items() if not find(program)]


def skip(name):
    print(f"{name} cannot be installed, and is left out", file=sys.stderr)


def debian(package):
    """Installs a package, but lets Debian start no service of it: they are for the comparison alone."""
    if os.geteuid() != 0 or not find("apt-get"):
        print(f"{package} is missing: apt-get install {package}, as root", file=sys.stderr)
        return False
    print(f"installing {package}", flush=True)
    barred = not os.path.exists(POLICY)
    if barred:
        with open(POLICY, "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(POLICY, 0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
        for command in (["apt-get", "update", "-qq"], install):
            if not succeeds(command, env=environment):
                return False
        return True
    finally:
        if barred:
            os.unlink(POLICY)


def pypi(package, program):
    """Installs a package into a virtual environment of its own."""
    if os.path.exists(program):
        return True
    folder = os.path.dirname(os.path.dirname(program))
    print(f"installing {package}", flush=True)
    try:
        import ensurepip  # noqa: F401, Debian has it in a package of its own
    except ImportError:
        if not debian("python3-venv"):
            return False
    shutil.rmtree(folder, ignore_errors=True)
    return succeeds([sys.executable, "-m", "venv", folder]) and \
        succeeds([f"{folder}/bin/pip", "install", "--quiet", "--disable-pip-version-check", package])


def cargo(*arguments, folder):
    print(f"building {arguments[-1] if folder == HERE else 'robots-proxy'}", flush=True)
    environment = dict(os.environ)
    if folder == HERE:
        environment["CARGO_TARGET_DIR"] = BUILT
    return succeeds(["cargo", "build", "--quiet", "--release", "--locked", *arguments], cwd=folder, env=environment)


def succeeds(command, **options):
    """Runs a command; what it has to say is only said where it fails."""
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if ran.returncode:
        print(f"{' '.join(command)}:\n{ran.stdout[-2000:]}", file=sys.stderr)
    return ran.returncode == 0
