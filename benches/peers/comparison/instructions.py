"""Instructions in user space for a request, counted by callgrind: what no other program on the machine can change.

A proxy serves N requests in one life and 2N in another; the difference, divided by N, leaves start and stop out.
"""

from . import machine
from .measure import requests, route
from .targets import OURS, PEER

# The client's options, and N.
WORKLOADS = {
    "plain": (False, [], 2000),
    "intercepted": (True, [], 2000),
    "new connection": (True, ["--fresh", "connection"], 150),
    "new host": (True, ["--fresh", "host"], 80),
}


def of(targets, site):
    """Instructions by workload and proxy."""
    counted = [target for target in targets if target.name in (OURS, PEER)]
    return {workload: {target.name: cost(target, site, *load) for target in counted} for workload, load in WORKLOADS.items()}


def cost(target, site, tls, options, number):
    once, twice = (life(target, site, tls, options, times * number) for times in (1, 2))
    return round((twice - once) / number) if once and twice else None


def life(target, site, tls, options, number):
    target.stop()
    target.port = machine.free_port()
    counts = f"callgrind-{target.port}"
    under = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={site.machine.path(counts)}"]
    if not target.start(site, under):
        return None
    ran = requests(target, site, ["--number", number, *options], route(target, site, tls))
    target.stop()
    if ran["errors"]:
        print(f"{target.name} under callgrind: {ran['error']}", flush=True)
        return None
    with open(site.machine.path(counts)) as file:
        return next((int(line.rpartition(":")[2]) for line in file if "Collected" in line), None)
