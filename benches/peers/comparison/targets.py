"""The proxies: how each is told to listen, which CA to use, and whom to trust. Logs are off everywhere."""

import os
import shutil
import subprocess
import time

from . import machine
from .install import HUDSUCKER, MITMDUMP, find

OURS, RECORDING, PEER = "robots-proxy", "robots-proxy, audit all", "hudsucker-nodelay"
DIRECT = "no proxy"


class Target:
    """A proxy: its command, made when it starts, and what it can do."""

    def __init__(self, name, command, tls=True, http2=True):
        self.name, self.command, self.tls, self.http2 = name, command, tls, tls and http2
        self.port = machine.free_port()
        self.process = None

    def can(self, scenario):
        """Whether it has what a scenario wants."""
        return (self.tls or not scenario.tls) and (self.http2 or not scenario.http2)

    def start(self, site, under=()):
        """Starts it, perhaps run by another program, and says whether it listens."""
        command = [*under, *self.command(site, self.port)]
        self.process = site.machine.start("proxy", command, f"{self.name}.log")
        return machine.listens(self.process, self.port)

    def stop(self):
        """Stops it."""
        if self.process:
            machine.stop(self.process)
        self.process = None

    def restart(self, site):
        """Starts it anew, with fresh memory."""
        self.stop()
        self.port = machine.free_port()
        if not self.start(site):
            raise SystemExit(f"benches/peers/run: {self.name} does not start again: {site.machine.log(self.name + '.log')}")
        time.sleep(0.5)


class Direct(Target):
    """No proxy: what client and origin can do by themselves."""

    def __init__(self):
        super().__init__(DIRECT, None)

    def start(self, site, under=()):
        return True

    def restart(self, site):
        pass


def all_of(program):
    """Those that are installed."""
    targets = [Direct(), Target(OURS, ours(program, "blocked")), Target(RECORDING, ours(program, "all"))]
    if os.path.exists(HUDSUCKER):
        targets += [Target(PEER, hudsucker("nodelay")), Target("hudsucker", hudsucker())]
    if find("squid"):
        targets.append(Target("squid", squid, http2=False))
    if find("tinyproxy"):
        targets.append(Target("tinyproxy", tinyproxy, tls=False))
    if os.path.exists(MITMDUMP):
        targets.append(Target("mitmproxy", mitmproxy))
    return targets


def ours(program, record):
    """The proxy with everything as it is by default, robots.txt enforced."""
    def command(site, port):
        folder = f"ours-{port}"
        certificates = site.machine.path(f"{folder}/certs")
        os.makedirs(certificates)
        shutil.copy(site.proxy_ca, f"{certificates}/ca.pem")
        shutil.copy(site.proxy_key, f"{certificates}/ca.key")
        os.chmod(f"{certificates}/ca.key", 0o600)
        config = site.machine.write(f"{folder}/config.toml", f"""
            listen = ["127.0.0.1:{port}"]
            state_dir = "state"
            upstream.ca_files = ["{site.origin_ca}"]
            audit.record = "{record}"
        """)
        return [program, "serve", "--config", config]
    return command


def hudsucker(*options):
    return lambda site, port: [HUDSUCKER, port, site.proxy_ca, site.proxy_key, site.origin_ca, *options]


def squid(site, port):
    """With ssl_bump: it reads the client's hello, and then intercepts."""
    helper = "/usr/lib/squid/security_file_certgen"
    folder = f"squid-{port}"
    place = site.machine.path(folder)
    os.makedirs(place)
    subprocess.run([helper, "-c", "-s", f"{place}/certificates", "-M", "64MB"], check=True, stdout=subprocess.DEVNULL)
    site.machine.write(f"{folder}/squid.conf", f"""
pid_filename {place}/pid
cache_log {place}/cache.log
coredump_dir {place}
access_log none
cache_store_log none
netdb_filename none
cache deny all
http_access allow all
max_filedescriptors 16000
dns_nameservers {site.resolver}
shutdown_lifetime 0 seconds
client_db off
via off
forwarded_for delete
pinger_enable off
visible_hostname comparison
client_idle_pconn_timeout 10 minutes
server_idle_pconn_timeout 10 minutes
http_port 127.0.0.1:{port} ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=64MB tls-cert={site.proxy_ca} tls-key={site.proxy_key}
sslcrtd_program {helper} -s {place}/certificates -M 64MB
sslcrtd_children 4 startup=2 idle=1
tls_outgoing_options cafile={site.origin_ca}
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
""")
    subprocess.run(["chown", "-R", "proxy:proxy", place], check=True)
    return [find("squid"), "-N", "-f", f"{place}/squid.conf"]


def tinyproxy(site, port):
    config = site.machine.write(f"tinyproxy-{port}.conf", f"""
Port {port}
Listen 127.0.0.1
Allow 127.0.0.1
Timeout 600
MaxClients 15000
LogLevel Critical
LogFile "{site.machine.path('tinyproxy-own.log')}"
DisableViaHeader Yes
""")
    return [find("tinyproxy"), "-d", "-c", config]


def mitmproxy(site, port):
    with open(site.proxy_key) as key, open(site.proxy_ca) as certificate:
        site.machine.write(f"mitmproxy-{port}/mitmproxy-ca.pem", key.read() + certificate.read())
    return [MITMDUMP, "--quiet", "--listen-host", "127.0.0.1", "--listen-port", port, "--set", f"confdir={site.machine.path(f'mitmproxy-{port}')}",
            "--set", f"ssl_verify_upstream_trusted_ca={site.origin_ca}", "--set", "flow_detail=0"]
