"""Rounds of a scenario: every proxy in turn, and the other way round in the next round, so that no drift favours one of them."""

import json
import subprocess
import time

from . import machine
from .install import LOAD
from .targets import DIRECT, RECORDING
from .site import ADDRESS, BULK

# Each new host gets a number of its own, over all proxies and rounds.
next_host = 1


def route(target, site, tls, path="/page", host="h{}"):
    """The client's options for the way through a proxy."""
    if target.name == DIRECT:
        way = ["--origin", f"{ADDRESS}:{site.https if tls else site.http}"]
    else:
        way = ["--proxy", f"127.0.0.1:{target.port}"]
    return ["--url", site.url(tls, path, host), *way]


def requests(target, site, options, route_options, seconds=150):
    """One run of the client."""
    processes = ",".join(map(str, machine.tree(target.process.pid))) if target.process else ""
    watched = ["--processes", processes] if processes else []
    command = [LOAD, "requests", *route_options, *options, *watched]
    ran = subprocess.run(site.machine.pinned("rest", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds)
    if ran.returncode:
        return {"requests": 0, "errors": 1, "error": ran.stderr.strip()[-200:]}
    return json.loads(ran.stdout)


def answers(target, site):
    """Whether a proxy does its job, certificates verified; what it says where it does not."""
    for tls in [False, True] if target.tls else [False]:
        trusted = site.origin_ca if target.name == DIRECT else site.proxy_ca
        ran = requests(target, site, ["--number", 3, "--ca", trusted], route(target, site, tls))
        if ran["errors"] or ran["requests"] != 3:
            return f"{'HTTPS' if tls else 'HTTP'}: {ran.get('error')}"
    return None


def scenario(scenario, targets, site, rounds, seconds):
    """All rounds; the outcomes by label."""
    entrants = []
    for label, name, host in scenario.entrants or [(target.name, target.name, "h{}") for target in targets if target.name != RECORDING]:
        entrants += [(label, target, host) for target in targets if target.name == name and target.can(scenario)]
    outcomes = {label: [] for label, _, _ in entrants}
    for number in range(rounds if not scenario.held else 1):
        for label, target, host in entrants if number % 2 == 0 else reversed(entrants):
            if target.process and target.process.poll() is not None:
                raise SystemExit(f"benches/peers/run: {target.name} has ended: {site.machine.log(target.name + '.log')}")
            outcome = held(scenario, target, site) if scenario.held else one(scenario, target, site, host, seconds)
            outcomes[label].append(outcome)
    return outcomes


def one(scenario, target, site, host, seconds):
    global next_host
    options = list(scenario.options)
    if scenario.bodies:
        # Over a connection to the site that is there already, as all of them are that are not the first.
        requests(target, site, ["--number", 1], route(target, site, scenario.tls, "/page", host))
        peak = machine.Peak(target.process.pid) if target.process else None
    elif scenario.unit == "host":
        options += ["--seconds", seconds, "--first-host", next_host]
    else:
        options += ["--warm-up", 0.5, "--seconds", seconds]
    outcome = requests(target, site, options, route(target, site, scenario.tls, scenario.path, host))
    if scenario.unit == "host":
        next_host += outcome.get("started", 0)
    if scenario.bodies and target.process:
        outcome["growth_kib"] = peak.growth_kib()
    units = outcome["octets"] / 1e6 if scenario.bodies else outcome["requests"]
    if units:
        outcome["rate"] = units / outcome["seconds"]
        if target.process:
            outcome["cpu_us"] = outcome["cpu_seconds"] * 1e6 / units
    return outcome


def held(scenario, target, site):
    """What a connection costs that does nothing."""
    if not target.process:
        return {}
    target.restart(site)
    requests(target, site, ["--number", 20], route(target, site, True))
    time.sleep(1)
    fresh = machine.memory_kib(target.process.pid)
    command = [LOAD, "hold", *route(target, site, True), "--connections", scenario.held]
    client = subprocess.Popen(site.machine.pinned("rest", command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    site.machine.running.append(client)
    told = client.stdout.readline()
    outcome = {"fresh_kib": fresh, **(json.loads(told) if told else {"held": 0, "error": "the client has ended"})}
    time.sleep(2)
    if outcome["held"] == scenario.held:
        outcome["kib_each"] = (machine.memory_kib(target.process.pid) - fresh) / scenario.held
    client.stdin.close()
    client.wait(60)
    target.restart(site)
    return outcome
