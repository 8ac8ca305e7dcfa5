"""What is measured: the load of each scenario, who takes part in it, and which figures it yields."""

from dataclasses import dataclass, field

from .site import BULK
from .targets import OURS, PEER, RECORDING


@dataclass
class Scenario:
    """A load, by the options of the client."""
    name: str
    title: str
    tls: bool
    options: list = field(default_factory=list)
    path: str = "/page"
    unit: str = "request"
    # Who takes part, as (label, target, host); None is everybody who can.
    entrants: list | None = None
    # Whom the others are compared with.
    reference: str = PEER
    # Connections that are held, instead of a load.
    held: int = 0
    # So many large bodies, one after the other.
    bodies: int = 0

    @property
    def http2(self):
        return "--streams" in self.options



def load(connections, *more):
    return ["--connections", connections, *more]


BODIES = 8
ALL = [
    Scenario("plain-64", "Plain HTTP, 64 kept connections", False, load(64)),
    Scenario("intercepted-16", "Intercepted HTTPS, 16 kept connections", True, load(16)),
    Scenario("intercepted-64", "Intercepted HTTPS, 64 kept connections", True, load(64)),
    Scenario("http2-4x16", "HTTP/2 in the tunnel, 4 connections of 16 streams", True, load(4, "--streams", 16)),
    Scenario("connection-16", "New intercepted connection for each request, 16 at once", True, load(16, "--fresh", "connection"),
             unit="connection"),
    Scenario("connection-1", "New intercepted connection for each request, one after the other", True, load(1, "--fresh", "connection"),
             unit="connection"),
    Scenario("host-8", "New host for each request, 8 at once: name, connection, certificate, with ours its robots.txt", True,
             load(8, "--fresh", "host"), unit="host"),
    Scenario("bulk", f"Intercepted bodies of {BULK >> 20} MiB, one connection", True, load(1, "--number", BODIES), "/bulk", unit="MB",
             bodies=BODIES),
    Scenario("idle-5000", "5,000 idle intercepted connections, one request made on each", True, held=5000, unit="connection"),
    Scenario("rules-16", "A robots.txt of 20,000 rules against one of three, 16 kept intercepted connections", True, load(16),
             entrants=[("3 rules", OURS, "h{}"), ("20,000 rules", OURS, "long{}")], reference="3 rules"),
    Scenario("audit-64", "audit.record all against blocked, 64 kept plain connections", False, load(64),
             entrants=[("blocked", OURS, "h{}"), ("all", RECORDING, "h{}")], reference="blocked"),
]


def chosen(names):
    """Those that are asked for by name, or all."""
    unknown = set(names or []) - {scenario.name for scenario in ALL}
    if unknown:
        raise SystemExit(f"benches/peers/run: no scenario {', '.join(unknown)}; there are {', '.join(one.name for one in ALL)}")
    return [scenario for scenario in ALL if not names or scenario.name in names]
