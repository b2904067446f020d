"""Origins for the tests: `flatout serve` and MinIO on ports of the loopback that the kernel chose, gone with whoever started them."""

import contextlib
import ctypes
import datetime
import hashlib
import hmac
import itertools
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

ACCESS_KEY, SECRET_KEY = "flatout-test-key", "flatout-test-secret/+="
ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get("FLATOUT_CACHE") or pathlib.Path.home() / ".cache/flatout")
PATIENCE_S = 60

# A bucket that is nowhere, for requests that are no test's own.
MARKS = "marks-of-the-tests"

VARIABLES = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "OSS_ACCESS_KEY_ID": ACCESS_KEY,
    "OSS_ACCESS_KEY_SECRET": SECRET_KEY,
    "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
}


_names = itertools.count()


def new_name():
    """Of a bucket that no other test has. Origins go with the tests, so the numbers begin anew with each run."""
    return f"test-{os.getpid()}-{next(_names)}"


def noise(length, seed=0):
    """Bytes that nothing repeats, the same in each run."""
    return random.Random(f"{seed} {length}").randbytes(length)


def program():
    """The command line, as `make test` or `cargo test` has built it."""
    for profile in ("unchecked", "debug", "release"):
        built = ROOT / "target" / profile / "flatout"
        if built.exists():
            return str(built)
    raise FileNotFoundError("no flatout in target: cargo build -p flatout-cli")


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing stays, however the tests end


class Origin:
    """An origin that runs, and its log where it writes one."""

    def __init__(self, name, command, url=None, log=None, **variables):
        self.name, self._log, self._marks = name, log, 0
        output = subprocess.PIPE if url is None else subprocess.DEVNULL
        self._process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.DEVNULL if url else None,
            text=True,
            env={**os.environ, **variables},
            preexec_fn=_die_with_parent,
        )
        self.url = url or re.search(r"https?://[0-9.:]+", self._process.stdout.readline()).group()

    @property
    def endpoint(self):
        return self.url

    @property
    def settings(self):
        """What a client needs to reach it by either dialect."""
        return {"endpoint_url": self.url, "oss_endpoint": self.url, "oss_region": "cn-hangzhou"}

    def ask(self, method, path, body=b"", headers=()):
        """A signed request; what it was answered."""
        url = self.url + urllib.parse.quote(path)
        request = urllib.request.Request(url, data=body or None, method=method, headers=dict(headers))
        for name, value in _signature(method, url, body).items():
            request.add_header(name, value)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read()

    @property
    def s3(self):
        """A client of boto3, for whoever wants one."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def requests(self):
        """What was asked of it so far, as its log has it (docs/wind-tunnel.md).

        A line is written when its answer has ended, which may be after the client has it. So one more request is made,
        and its line is waited for.
        """
        self._marks += 1
        key = f"mark-{self._marks}"
        with contextlib.suppress(urllib.error.HTTPError):
            self.ask("HEAD", f"/{MARKS}/{key}")
        until = time.monotonic() + PATIENCE_S
        while True:
            lines = [json.loads(line) for line in self._log.read_text().splitlines()]
            if any((line["bucket"], line["key"]) == (MARKS, key) for line in lines):
                return [line for line in lines if line["bucket"] != MARKS]
            assert time.monotonic() < until, f"{key} is not in the log: {lines[-3:]}"
            time.sleep(0.005)

    def stop(self):
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


class Bucket:
    """A bucket of a test's own."""

    def __init__(self, origin, name):
        self.origin, self.name = origin, name
        origin.ask("PUT", f"/{name}")

    def put(self, key, data, headers=()):
        self.origin.ask("PUT", f"/{self.name}/{key}", bytes(data), headers)
        return f"s3://{self.name}/{key}"

    def delete(self, key):
        self.origin.ask("DELETE", f"/{self.name}/{key}")

    def url(self, key, scheme="s3"):
        return f"{scheme}://{self.name}/{key}"


def serve(*arguments, log=None):
    """`flatout serve` with these arguments; in memory if they say nothing else."""
    store = () if any(word in arguments for word in ("--root", "--synthetic")) else ("--memory",)
    keys = () if "--no-auth" in arguments else ("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
    logged = () if log is None else ("--log", str(log))
    command = [program(), "serve", "--listen", "127.0.0.1:0", *store, *keys, *logged, *arguments]
    return Origin("serve", command, log=log)


def minio(folder):
    """MinIO as scripts/deps.sh installs it."""
    address = f"127.0.0.1:{_free_port()}"
    command = [CACHE / "bin/minio", "server", "--quiet", "--address", address, str(folder)]
    variables = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off"}
    origin = Origin("minio", command, url=f"http://{address}", **variables)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            # It says that it is ready before it is.
            origin.ask("GET", "/")
            return origin
        except OSError:
            if time.monotonic() > until:
                origin.stop()
                raise
            time.sleep(0.05)


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _signature(method, url, body):
    """AWS's version 4, of the headers that it cannot do without."""
    parts = urllib.parse.urlsplit(url)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    content = hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": content, "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join((method, parts.path, parts.query, lines, names, content))
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{SECRET_KEY}".encode()
    for step in scope.split("/"):
        key = hmac.digest(key, step.encode(), "sha256")
    signed = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers.pop("host")
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signed}"
    )
    return headers
