"""The origins: what they are, how they start, and that they end."""

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import certificates
import listing
from content import BUCKET, Content
from errors import LabError
from tree import die_with_parent

ACCESS_KEY = "labadmin"
SECRET_KEY = "labsecret123"
# How long an origin may take until it answers, and until it ends.
START_S = 30.0
STOP_S = 5.0
ENDS_S = 0.25
# Where nginx says how many requests there were.
STATUS = "/.lab-status"
# What makes concurrency matter: each connection gets little, and each answer takes time.
SHAPE = ["--latency", "20ms", "--per-connection", "64MiB/s"]
# The same from further away.
AFAR = ["--latency", "30ms", "--per-connection", "64MiB/s"]
# For what is sent: the request's body has the same limit.
SINK_AFAR = ["--latency", "30ms", "--per-connection", "16MiB/s"]


@dataclass(frozen=True)
class Site:
    """What origins are made of."""

    scratch: Path
    content: Content
    # What clients send: no origin serves it.
    sources: Content
    flatout: str
    cache: Path


class Origin:
    """A server on loopback, as a context: it answers inside, and is gone outside."""

    # Whether it keeps no more of what is sent than names, sizes and checksums.
    forgets = False

    def __init__(self, name: str, site: Site, counts: bool = False):
        self.name, self.site, self.counts = name, site, counts
        self.kind, self.tls = name.removesuffix("-tls"), name.endswith("-tls")
        self.folder = site.scratch / "origin"
        self.process: subprocess.Popen | None = None
        self.ca: Path | None = None
        self.cores = os.cpu_count() or 1
        self.port = 0

    def __enter__(self) -> "Origin":
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.port = free_port()
        try:
            if self.tls:
                self.certificates = certificates.make(self.folder / "tls")
                self.ca = self.certificates.ca
            self.start(self.command())
            self.wait_until_it_answers()
            self.fill()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def died(self) -> str | None:
        """How it ended by itself; None while it lives. One that was just killed may take a moment to end."""
        if self.process is None:
            return None
        try:
            self.process.wait(timeout=ENDS_S)
        except subprocess.TimeoutExpired:
            return None
        return f"origin {self.name}: ended with status {self.process.returncode}: {self.last_words()}"

    def again(self):
        """In the place of one that died. Raises LabError."""
        self.stop()
        self.__enter__()

    def requests(self) -> int | None:
        """How many it has answered; None where it does not count them."""
        return None

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [self.process.pid]

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def fill(self):
        """For who does not serve the folder as it is."""

    def make_bucket(self):
        self.must("made no bucket", ["--request", "PUT", f"{self.endpoint}/{BUCKET}"])

    def put_all(self):
        """One curl puts all objects, over connections that it keeps."""
        if not self.site.content.sha256:
            return
        wanted = self.folder / "puts"
        with wanted.open("w") as file:
            for key in self.site.content.sha256:
                file.write(f'url = "{self.endpoint}/{BUCKET}/{key}"\nupload-file = "{self.site.content.bucket / key}"\noutput = "/dev/null"\n')
        self.must("took not all objects", ["--fail-early", "--parallel", "--parallel-max", "8", "--config", str(wanted)])

    def must(self, what: str, arguments: list[str]):
        wrong = self.curl(arguments)
        if wrong is not None:
            raise LabError(f"origin {self.name}: {what}: {wrong}")

    def curl(self, arguments: list[str]) -> str | None:
        """What went wrong, None when nothing did."""
        trust = ["--cacert", str(self.ca)] if self.ca else []
        sign = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{ACCESS_KEY}:{SECRET_KEY}"]
        # Else curl would hash each body before it sends it.
        sign += ["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
        command = [found("curl", "curl"), "--silent", "--show-error", "--fail", "--globoff", *trust, *sign, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        return None if done.returncode == 0 else done.stderr.strip() or f"curl: exit status {done.returncode}"

    def about(self) -> str:
        raise NotImplementedError

    def start(self, command: list[str]):
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def wait_until_it_answers(self):
        deadline = time.monotonic() + START_S
        while not self.answers():
            if self.process.poll() is not None:
                raise LabError(f"origin {self.name}: ended with status {self.process.returncode}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise LabError(f"origin {self.name}: does not answer at {self.endpoint} after {START_S:g} s: {self.last_words()}")
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self):
        process, self.process = self.process, None
        if process and process.returncode is None:
            process.terminate()
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nginx(Origin):
    """The cheapest origin there is: the kernel sends the file. Signatures are not looked at."""

    def __init__(self, name: str, site: Site, counts: bool = False):
        super().__init__(name, site, counts)
        self.cores = 1
        self.asked = 0

    def command(self) -> list[str]:
        listing.write(self.folder / "listings", self.site.content)
        config = self.folder / "nginx.conf"
        config.write_text(self.config())
        return [found("nginx", "nginx-light", "/usr/sbin"), "-e", "stderr", "-p", str(self.folder), "-c", str(config)]

    def config(self) -> str:
        temporary = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        secure = ""
        if self.tls:
            secure = f"ssl_certificate {self.certificates.certificate}; ssl_certificate_key {self.certificates.key}; ssl_session_cache shared:tls:1m;"
        return f"""daemon off; master_process off; pid {self.folder}/pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off; default_type application/octet-stream; {temporary}
    sendfile on; tcp_nopush on; keepalive_requests 10000000;
    {listing.nginx_map()}
    server {{
        listen 127.0.0.1:{self.port}{" ssl" if self.tls else ""} backlog=1024; root {self.site.content.www}; {secure}
        {listing.nginx_location(self.folder / "listings")}
        # A folder is no object: nginx would send whoever asks for it to its name with a slash.
        location / {{ try_files $uri =404; }}
        location = {STATUS} {{ stub_status; }}
    }}
}}
"""

    def requests(self) -> int | None:
        """Its own count, less the questions for it: they are requests too."""
        trust = ssl.create_default_context(cafile=self.ca) if self.tls else None
        try:
            with urllib.request.urlopen(f"{self.endpoint}{STATUS}", timeout=5, context=trust) as answer:
                # Active connections: 1 / server accepts handled requests / 4 4 17 / …
                counted = int(answer.read().split(b"\n")[2].split()[2])
        except OSError:
            return None
        self.asked += 1
        return counted - self.asked

    def about(self) -> str:
        version = said(["nginx", "-v"]).rpartition("/")[2]
        return f"nginx {version}, {'TLS by OpenSSL' if self.tls else 'sendfile'} from tmpfs, one worker"


class MinIo(Origin):
    """The commonest origin that one runs oneself."""

    def command(self) -> list[str]:
        options = ["--address", f"127.0.0.1:{self.port}", "--console-address", f"127.0.0.1:{free_port()}"]
        if self.tls:
            options += ["--certs-dir", str(self.certs_folder())]
        return [str(self.program()), "server", *options, str(self.folder / "store")]

    def program(self) -> Path:
        program = self.site.cache.parent / "bin/minio"
        if not os.access(program, os.X_OK):
            raise LabError(f"origin {self.name}: there is no {program}: sudo make deps builds it")
        return program

    def certs_folder(self) -> Path:
        folder = self.folder / "certs"
        folder.mkdir()
        shutil.copy(self.certificates.certificate, folder / "public.crt")
        shutil.copy(self.certificates.key, folder / "private.key")
        return folder

    def environment(self) -> dict[str, str]:
        keys = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
        return {**keys, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}

    def answers(self) -> bool:
        return super().answers() and self.curl(["--output", "/dev/null", f"{self.endpoint}/minio/health/ready"]) is None

    def fill(self):
        """By PUT, since it keeps objects in a form of its own."""
        self.make_bucket()
        self.put_all()

    def about(self) -> str:
        # Built from its module it does not know its version; the folder that scripts/deps.sh built it into does.
        version = self.program().resolve().parent.name.removeprefix("minio-")
        return f"MinIO {version}, one drive in tmpfs{', TLS' if self.tls else ''}"


class Serve(Origin):
    """Our own origin. It looks at signatures, and can be shaped."""

    def command(self) -> list[str]:
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        secure = ["--tls-cert", str(self.certificates.certificate), "--tls-key", str(self.certificates.key)] if self.tls else []
        shape = self.shape()
        where = [*self.store(), "--listen", f"127.0.0.1:{self.port}"]
        # Only where somebody asks how many there were: of many small objects each would be a line.
        log = ["--log", str(self.folder / "requests")] if self.counts else []
        return [self.site.flatout, "serve", *where, *keys, *secure, *shape, *log]

    def store(self) -> list[str]:
        return ["--root", str(self.site.content.www)]

    def requests(self) -> int | None:
        """The lines of its log; the lab's own puts stand there too, but before the first run."""
        if not self.counts:
            return None
        with (self.folder / "requests").open("rb") as log:
            return sum(1 for _ in log)

    def shape(self) -> list[str]:
        return {"shaped": SHAPE, "afar": AFAR, "sink-afar": SINK_AFAR}.get(self.kind, [])

    def fill(self):
        """What was put through it has a checksum that it states. Shaped, each of many would take its time."""
        if self.kind == "serve":
            self.put_all()

    def about(self) -> str:
        shape = self.shape()
        shape = f", {shape[1]} before each answer, {shape[3]} a connection" if shape else ""
        return f"{said([self.site.flatout, '--version'])} serve {self.keeps()}{', TLS' if self.tls else ''}{shape}"

    def keeps(self) -> str:
        return "from tmpfs"


class Sink(Serve):
    """For what is sent: our own origin, which remembers names, sizes and checksums, and forgets the bytes."""

    forgets = True

    def store(self) -> list[str]:
        return ["--memory", "--sink"]

    def fill(self):
        """Some clients ask for the bucket before they send to it."""
        self.make_bucket()

    def keeps(self) -> str:
        return "--sink, which keeps sizes and checksums alone"


SERVED = {"serve": Serve, "shaped": Serve, "afar": Serve, "sink": Sink, "sink-afar": Sink}
KINDS = {"nginx": Nginx, "minio": MinIo, **SERVED}


def origin(name: str, site: Site, counts: bool = False) -> Origin:
    """`counts`: whether somebody will ask how many requests there were."""
    return KINDS[name.removesuffix("-tls")](name, site, counts)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def found(program: str, package: str, beside: str = "") -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{beside}")
    if not path:
        raise LabError(f"{program} is not installed: apt-get install {package}")
    return path


def said(command: list[str]) -> str:
    """The first line that a program says of itself."""
    done = subprocess.run([found(command[0], command[0], "/usr/sbin"), *command[1:]], capture_output=True, text=True, errors="replace")
    return next(iter((done.stdout + done.stderr).strip().splitlines()), "")
