"""What the proxies are asked for: an origin (nginx), its certificates, and a resolver that leads every name to it."""

import os
import subprocess

from . import machine
from .install import LOAD

# Not 127.0.0.1, which some proxies refuse.
ADDRESS = "127.77.0.1"
BULK = 64 << 20
RULES = 20_000

SHORT_ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*.cgi$\nAllow: /\n"
LONG_ROBOTS = "User-agent: *\n" + "".join(
    f"{'Allow' if rule % 20 == 0 else 'Disallow'}: /{'*/' if rule % 25 == 1 else ''}section{rule % 97}/{rule}\n" for rule in range(RULES))

NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log crit;
events {{ worker_connections 11000; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; open_file_cache max=100; default_type text/plain; types {{ }}
  keepalive_timeout 1h; keepalive_requests 1000000000;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  ssl_certificate {folder}/site.pem; ssl_certificate_key {folder}/site.key; ssl_session_cache shared:S:20m; ssl_protocols TLSv1.2 TLSv1.3;
  map $host $robots {{ ~^long /long.txt; default /short.txt; }}
  server {{
    listen {address}:{http} backlog=4096; listen {address}:{https} ssl http2 backlog=4096;
    root {folder}/www; location = /robots.txt {{ try_files $robots =404; }}
  }}
}}
"""


class Site:
    """The origin. It starts with its making."""

    def __init__(self, running):
        self.machine = running
        self.http, self.https = machine.free_port(), machine.free_port()
        self.origin_ca, self.proxy_ca, self.proxy_key = (running.path(name) for name in ("origins.pem", "ca.pem", "ca.key"))
        self.certificates()
        running.write("www/short.txt", SHORT_ROBOTS)
        running.write("www/long.txt", LONG_ROBOTS)
        running.write("www/page", "0123456789abcdef" * 64)
        running.write("www/bulk", "0123456789abcdef" * (BULK // 16))
        self.resolver = f"127.53.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"
        running.write("resolv.conf", f"nameserver {self.resolver}\noptions timeout:1 attempts:2\n")
        config = running.write("nginx.conf", NGINX.format(folder=running.folder, address=ADDRESS, http=self.http, https=self.https))
        nginx = running.start("rest", ["nginx", "-c", config, "-p", running.folder], "nginx.log")
        names = running.start("rest", [LOAD, "names", "--listen", f"{self.resolver}:53", "--address", ADDRESS], "names.log")
        if not machine.listens(nginx, self.https, ADDRESS):
            raise SystemExit(f"benches/peers/run: nginx does not start: {running.log('nginx.log')}")
        if names.poll() is not None:
            raise SystemExit(f"benches/peers/run: the resolver does not start: {running.log('names.log')}")

    def url(self, tls, path="/page", host="h{}"):
        """A URL of the origin; `{}` is for the number of the host."""
        scheme, port = ("https", self.https) if tls else ("http", self.http)
        return f"{scheme}://{host}.bench.test:{port}{path}"

    def certificates(self):
        """A CA for the origin, and one for the proxies: the same for all of them."""
        folder = self.machine.folder
        for name in ("origins", "ca"):
            openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-sha256",
                    "-subj", f"/CN=comparison {name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
                    "-keyout", f"{name}.key", "-out", f"{name}.pem")
        self.machine.write("site.ext", f"subjectAltName=DNS:*.bench.test,IP:{ADDRESS}\nextendedKeyUsage=serverAuth\n"
                                       "keyUsage=digitalSignature\n")
        openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=bench.test",
                "-keyout", "site.key", "-out", "site.csr")
        openssl(folder, "x509", "-req", "-in", "site.csr", "-CA", "origins.pem", "-CAkey", "origins.key", "-CAcreateserial", "-days", "30",
                "-sha256", "-extfile", "site.ext", "-out", "site.pem")


def openssl(folder, *arguments):
    """Runs openssl to a good end."""
    ran = subprocess.run(["openssl", *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ran.returncode:
        raise SystemExit(f"benches/peers/run: openssl {arguments[0]}: {ran.stderr}")
