#!/usr/bin/env python3
"""The driver under the real kubelet: publishes, deaths, restarts, and what is left behind.

    go build -o kubernetes . && ./try.py --program target/debug/flatout [--only readonly,...] [--keep]

Needs root and /dev/fuse. Everything lies in one folder, in namespaces of mounts and processes that end with
this script. Of a cluster it plays what main.go has not: claims are bound by hand.
"""
import argparse
import base64
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
DRIVER = "csi.flatout.dev"
NODE = "node-1"
ENGINE_USER = 65532
CORE, STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
DEFAULT = f"{CORE}/namespaces/default"


class Wrong(Exception):
    """A check does not hold."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


def wait(what, holds, seconds=30, step=0.1):
    """The first answer of `holds` that says yes."""
    end = time.monotonic() + seconds
    while True:
        answer = holds()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(step)


def note(*what):
    print("     ", *what, flush=True)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def shell(command, seconds=15):
    """A command that may hang on a mount: (exit code, output)."""
    arguments = ["timeout", "-s", "KILL", str(seconds), "sh", "-c", command]
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=seconds + 5)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return 137, "it hangs"


def mounts():
    """(mount point, type) of this namespace, from the kernel's list."""
    lines = [line.split(" - ") for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    return [(left.split()[4], right.split()[0]) for left, right in lines]


def documents(path):
    """(where the API takes it, text) of each object in a manifest, which the API server reads itself."""
    for text in re.split(r"^---$", path.read_text(), flags=re.M):
        kind = re.search(r"^kind: (\w+)", text, re.M)
        if kind:
            version = re.search(r"^apiVersion: (\S+)", text, re.M)[1]
            space = re.search(r"^metadata:\n(?:  .*\n)*?  namespace: (\S+)", text, re.M)
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            plural = kind[1].lower() + ("es" if kind[1].endswith("s") else "s")
            yield f"{base}/namespaces/{space[1]}/{plural}" if space else f"{base}/{plural}", text


class Cluster:
    def __init__(self, folder, kubernetes, flatout, verbosity):
        self.folder, self.kubernetes, self.flatout, self.verbosity = folder, kubernetes, flatout, verbosity
        self.kubelet_folder, self.driver_folder = folder / "kubelet", folder / "driver"
        self.socket = self.kubelet_folder / "plugins" / DRIVER / "csi.sock"
        self.bucket, self.temporary = folder / "buckets/data", folder / "temporary"
        self.port, self.read_port, self.origin_port, self.sts_port = (free_port() for _ in range(4))
        self.processes = {}
        for each in (self.socket.parent, self.kubelet_folder / "plugins_registry", self.kubelet_folder / "pods", folder / "logs",
                     self.bucket / "deep", self.bucket / "other"):
            each.mkdir(parents=True)
        (self.bucket / "hello.txt").write_text("hello\n")
        (self.bucket / "deep/file.txt").write_text("deep\n")
        (self.bucket / "other/file.txt").write_text("other\n")
        (self.bucket / "big").write_bytes(os.urandom(16 << 20))
        # As kubelet's folder and the driver's are on a node. Everything else is private.
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "--make-shared", folder], check=True)
        # Kubelet makes /var/log/containers.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/log"], check=True)

    # Processes.

    def start(self, name, *command, env=None):
        log = open(self.folder / f"{name}.log", "ab")
        log.write(f"--- {time.strftime('%T')} {' '.join(map(str, command))}\n".encode())
        log.flush()
        self.processes[name] = subprocess.Popen([str(each) for each in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                env={**os.environ, **(env or {})}, cwd=self.folder / "logs")

    def kill(self, name, how=signal.SIGKILL, seconds=20):
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(seconds)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start_api(self):
        self.start("api", self.kubernetes, "api", "--folder", self.folder, "--port", self.port)

        def is_ready():
            try:
                return self.ask("GET", "/readyz")[0] == 200
            except OSError:
                return False
        wait("the API server", is_ready, 90)

    def start_runtime(self):
        self.start("runtime", self.kubernetes, "runtime", "--folder", self.folder)
        wait("the runtime", (self.folder / "runtime.sock").exists)

    def start_kubelet(self):
        self.start("kubelet", self.kubernetes, "kubelet", "--folder", self.folder, "--port", self.port, "--read-port", self.read_port, f"--v={self.verbosity}")

    def start_plugin(self):
        # In a namespace of its own, as a container whose two folders propagate in both directions.
        self.start("plugin", "unshare", "--mount", "--propagation", "unchanged", self.flatout, "csi", "node", "--endpoint", f"unix://{self.socket}",
                   "--node-name", NODE, "--folder", self.driver_folder, "--memory", "2GiB", "--volume-memory", "64MiB")

    def start_engine(self, name="engine"):
        self.driver_folder.chmod(0o711)
        self.temporary.mkdir(exist_ok=True)
        self.temporary.chmod(0o1777)
        self.start(name, "unshare", "--mount", "--propagation", "slave", "setpriv", f"--reuid={ENGINE_USER}", f"--regid={ENGINE_USER}",
                   "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", self.flatout, "csi", "engine", "--folder", self.driver_folder,
                   env={"AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{self.sts_port}", "TMPDIR": str(self.temporary)})

    def start_driver(self):
        self.start_plugin()
        wait("the plugin's folder", (self.driver_folder / "engine").exists)
        self.start_engine()
        wait("an engine", lambda: "is connected" in self.log("plugin"))
        # It ends where the driver does not answer kubelet, and its container is started again.
        self.start("register", "sh", "-c", 'while :; do "$@"; sleep 1; done', "again", self.kubernetes, "register", "--folder", self.folder,
                   "--driver", DRIVER, "--socket", self.socket)

    def serving(self):
        """The process of the engine that serves: a child of the one that was started."""
        parent = self.processes["engine"].pid
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
        return int(wait("a serving process", lambda: children.read_text().split(), 10)[0])

    def kill_engine(self):
        """The whole container."""
        os.kill(self.serving(), signal.SIGKILL)
        self.kill("engine")

    def start_origin(self, key="key-1", secret="secret-1"):
        self.keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        self.start("origin", self.flatout, "serve", "--root", self.folder / "buckets", "--listen", f"127.0.0.1:{self.origin_port}",
                   "--access-key", key, "--secret-key", secret)

        def answers():
            with socket.socket() as asked:
                return asked.connect_ex(("127.0.0.1", self.origin_port)) == 0
        wait("the origin", answers)

    # The API.

    def ask(self, method, path, body=None, kind="application/json"):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=ssl._create_unverified_context())
        try:
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, text, {"Authorization": "Bearer admin", "Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
        finally:
            connection.close()

    def api(self, method, path, body=None, kind="application/json"):
        status, answer = self.ask(method, path, body, kind)
        if status >= 300:
            raise Wrong(f"{method} {path}: {status} {answer.get('message') if isinstance(answer, dict) else answer}")
        return answer

    def apply(self, path, how=""):
        count = 0
        for where, text in documents(path):
            self.api("POST", f"{where}?fieldValidation=Strict{how}", text, "application/yaml")
            count += 1
        return count

    def secret(self, name, keys):
        body = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "stringData": keys}
        if self.ask("PUT", f"{DEFAULT}/secrets/{name}", body)[0] == 404:
            self.api("POST", f"{DEFAULT}/secrets", body)

    def attributes(self, **more):
        own = {"source": "s3://data", "endpoint-url": f"http://127.0.0.1:{self.origin_port}", "region": "eu-central-1"}
        return {**own, **more}

    def volume(self, name, secret="keys", modes=("ReadWriteMany",), options=(), **attributes):
        """A PV and its claim, bound."""
        size = {"storage": "1Gi"}
        csi = {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": self.attributes(**attributes)}
        if secret:
            csi["nodePublishSecretRef"] = {"name": secret, "namespace": "default"}
        both = {"accessModes": list(modes), "storageClassName": ""}
        claim = self.api("POST", f"{DEFAULT}/persistentvolumeclaims", {
            "metadata": {"name": name}, "spec": {**both, "volumeName": name, "resources": {"requests": size}}})
        owner = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": name, "uid": claim["metadata"]["uid"]}
        self.api("POST", f"{CORE}/persistentvolumes", {"metadata": {"name": name}, "spec": {
            **both, "capacity": size, "csi": csi, "mountOptions": list(options), "persistentVolumeReclaimPolicy": "Retain", "claimRef": owner}})
        bound = {"status": {"phase": "Bound", "accessModes": list(modes), "capacity": size}}
        self.api("PATCH", f"{DEFAULT}/persistentvolumeclaims/{name}/status", bound, "application/merge-patch+json")

    def pod(self, name, claim=None, read_only=False, inline=None, group=None, waits=True, mounts=({},)):
        """A pod of one container and one volume, at /data unless a mount says otherwise."""
        claim = claim or name
        source = {"csi": inline} if inline else {"persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}
        container = {"name": "c", "image": "none", "volumeMounts": [{"name": "data", "mountPath": "/data", **each} for each in mounts]}
        spec = {"nodeName": NODE, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "dnsPolicy": "Default",
                "containers": [container], "volumes": [{"name": "data", **source}]}
        if group:
            spec["securityContext"] = {"fsGroup": group}
        made = self.api("POST", f"{DEFAULT}/pods", {"metadata": {"name": name}, "spec": spec})
        pod = Pod(self, name, made["metadata"]["uid"], "data" if inline else claim)
        if waits:
            pod.wait_running()
        return pod

    def inline(self, **attributes):
        return {"driver": DRIVER, "readOnly": True, "nodePublishSecretRef": {"name": "keys"}, "volumeAttributes": self.attributes(**attributes)}

    # What kubelet says of itself, and what is left.

    def read(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.read_port, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        expect(answer.status == 200, f"{path}: {answer.status} {text}")
        return text

    def calls(self):
        """Calls of the driver that kubelet has made since it was started, by name and answer."""
        seen = {}
        for labels, count in re.findall(r"^csi_operations_seconds_count\{(.*)\} (\d+)", self.read("/metrics"), re.M):
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            seen[f"{found['method_name'].split('/')[-1]}:{found['grpc_status_code']}"] = int(count)
        return seen

    def left(self):
        def names(kind, folder):
            return [f"{kind} {each.name}" for each in folder.iterdir()] if folder.exists() else []
        own = [f"mount {point} ({kind})" for point, kind in mounts() if point.startswith(f"{self.folder}/")]
        own += names("record", self.driver_folder / "volumes") + names("folder", self.driver_folder / "mounts")
        own += names("pod", self.kubelet_folder / "pods")
        return own + [f"token {each}" for each in self.temporary.rglob("token.*")]

    def expect_nothing_left(self, seconds=60):
        try:
            wait("", lambda: not self.left(), seconds)
        except Wrong:
            raise Wrong(f"left behind: {'; '.join(self.left())}") from None

    def stop(self):
        for name in reversed(list(self.processes)):
            try:
                self.kill(name)
            except subprocess.TimeoutExpired:
                pass


class Pod:
    def __init__(self, cluster, name, uid, volume):
        self.cluster, self.name, self.uid = cluster, name, uid
        self.path = f"{DEFAULT}/pods/{name}"
        self.folder = cluster.kubelet_folder / "pods" / uid
        # Where kubelet has it published.
        self.target = self.folder / "volumes/kubernetes.io~csi" / volume / "mount"

    @property
    def container(self):
        return json.loads((self.cluster.folder / f"containers/{self.name}.c.json").read_text())

    @property
    def pid(self):
        return self.container["Pid"]

    def inside(self, command, seconds=15):
        """A command in the container."""
        return shell(f"exec nsenter --mount=/proc/{self.pid}/ns/mnt --root=/proc/{self.pid}/root --wd=/proc/{self.pid}/root sh -c '{command}'", seconds)

    def expect(self, command, output, seconds=15):
        seen = self.inside(command, seconds)
        expect(seen == (0, output), f"{self.name}: {command}: {seen}")

    def expect_soon(self, command, output, seconds=30):
        try:
            wait("", lambda: self.inside(command, 10) == (0, output), seconds)
        except Wrong:
            raise Wrong(f"{self.name}: {command}: not within {seconds} s, now {self.inside(command, 10)}") from None

    def expect_refused(self, command="echo no > /data/no.txt"):
        code, output = self.inside(command)
        expect(code and "Read-only" in output, f"{self.name}: {command}: {code} {output}")

    def is_running(self):
        status = self.cluster.api("GET", self.path)["status"]
        return status.get("containerStatuses") and all(each["ready"] for each in status["containerStatuses"])

    def wait_running(self, seconds=60):
        try:
            wait(f"{self.name} runs", self.is_running, seconds)
        except Wrong as wrong:
            raise Wrong(f"{wrong}: {self.events()[-3:]}") from None

    def restart_container(self):
        """As after a crash: kubelet starts it again."""
        before = self.pid
        os.kill(before, signal.SIGKILL)
        try:
            wait(f"{self.name}: its container is started again", lambda: self.pid != before, 90)
        except Wrong as wrong:
            raise Wrong(f"{wrong}: {self.events()[-3:]}") from None

    def events(self):
        seen = self.cluster.api("GET", f"{DEFAULT}/events?fieldSelector=involvedObject.uid={self.uid}")["items"]
        return [each["message"] for each in seen if each["type"] == "Warning"]

    def wait_event(self, text, seconds=60):
        try:
            return wait("", lambda: [each for each in self.events() if text in each], seconds)[-1]
        except Wrong:
            raise Wrong(f"{self.name}: no event says '{text}' within {seconds} s: {self.events()}") from None

    def ask_deletion(self, grace=1):
        self.cluster.api("DELETE", self.path, {"gracePeriodSeconds": grace})

    def wait_gone(self, seconds=60):
        wait(f"{self.name} is gone from the API", lambda: self.cluster.ask("GET", self.path)[0] == 404, seconds)
        wait(f"{self.name}: its folder is gone", lambda: not self.folder.exists(), seconds)

    def delete(self, seconds=60):
        self.ask_deletion()
        self.wait_gone(seconds)


# The checks. Each is done once it has left nothing behind.

def manifests(cluster):
    """The API server takes our examples, to the last field."""
    for each in sorted((cluster.repository / "deploy/examples").glob("*.yaml")):
        try:
            cluster.apply(each, "&dryRun=All")
        except Wrong as wrong:
            raise Wrong(f"{each.name}: {wrong}") from None


def registration(cluster):
    """Kubelet has found the driver, and asked it about the node."""
    driver = cluster.api("GET", f"{STORAGE}/csinodes/{NODE}")["spec"]["drivers"][0]
    expect((driver["name"], driver["nodeID"], driver["allocatable"]["count"]) == (DRIVER, NODE, 32), f"{driver}")


def publish(cluster):
    """A pod reads and writes a bucket; two pods share its mount."""
    cluster.volume("shared")
    pod = cluster.pod("shared")
    expect((pod.target / "hello.txt").read_text() == "hello\n", "the file at the target")
    pod.expect("cat /data/hello.txt", "hello\n")
    pod.expect("echo new > /data/new.txt && cat /data/new.txt", "new\n")
    expect((cluster.bucket / "new.txt").read_text() == "new\n", "the file in the bucket")
    second = cluster.pod("shared-2", claim="shared")
    second.expect("cat /data/new.txt && rm /data/new.txt", "new\n")
    expect(len(list((cluster.driver_folder / "mounts").iterdir())) == 1, "one mount for both")
    pod.delete()
    second.expect("cat /data/hello.txt", "hello\n")
    second.delete()


def readonly(cluster):
    """Read-only claims, mounts of containers and access modes refuse writes, beside a pod that writes."""
    cluster.volume("ro")
    writer = cluster.pod("ro-writer", claim="ro")
    reader = cluster.pod("ro-reader", claim="ro", read_only=True)
    mounted = cluster.pod("ro-mounted", claim="ro", mounts=[{"readOnly": True}])
    cluster.volume("rom", modes=["ReadOnlyMany"])
    many = cluster.pod("rom")
    for pod in (reader, mounted, many):
        pod.expect("cat /data/hello.txt", "hello\n")
        pod.expect_refused()
    expect(shell(f"echo no > {reader.target}/no.txt")[0], "the target of a read-only claim takes writes outside of its container")
    writer.expect("echo yes > /data/yes.txt && rm /data/yes.txt && echo done", "done\n")
    for pod in (writer, reader, mounted, many):
        pod.delete()


def inline(cluster):
    """A volume inside a pod."""
    pod = cluster.pod("inline", inline=cluster.inline())
    pod.expect("cat /data/deep/file.txt", "deep\n")
    pod.expect_refused()
    pod.delete()


def subpath(cluster):
    """Folders of a bucket, through kubelet's own bind; also in a container that is started again."""
    cluster.volume("sub")
    pod = cluster.pod("sub", mounts=[
        {"mountPath": "/deep", "subPath": "deep"},
        {"mountPath": "/file", "subPath": "other/file.txt", "readOnly": True},
        {"mountPath": "/made", "subPath": "made/by-kubelet"}])
    sources = [each["Source"] for each in pod.container["Mounts"] if "/volume-subpaths/sub/c/" in each["Source"]]
    expect(len(sources) == 3, f"{pod.container['Mounts']}")
    for _ in range(2):
        pod.expect("cat /deep/file.txt /file", "deep\nother\n")
        pod.expect("echo x > /made/x && cat /made/x && rm /made/x", "x\n")
        pod.restart_container()
    pod.delete()
    cluster.volume("sub-ro", modes=["ReadOnlyMany"])
    refused = cluster.pod("sub-ro", mounts=[{"subPath": "not-there"}], waits=False)
    note(refused.wait_event("subPath"))
    refused.delete()


def group(cluster):
    """fsGroup goes to the driver."""
    cluster.volume("group")
    pod = cluster.pod("group", group=2345)
    pod.expect('stat -c "%g %a" /data/hello.txt /data/deep', "2345 660\n2345 770\n")
    pod.delete()


def stats(cluster):
    """Kubelet's numbers of the volume."""
    cluster.volume("stats")
    pod = cluster.pod("stats")

    def summary():
        volumes = [each for one in json.loads(cluster.read("/stats/summary"))["pods"] for each in one.get("volume", [])]
        return [each for each in volumes if each.get("pvcRef", {}).get("name") == "stats"]
    seen = wait("the volume in /stats/summary", summary, 60, 1)[0]
    note({key: seen.get(key) for key in ("capacityBytes", "availableBytes", "usedBytes", "inodes", "inodesUsed")})
    expect('kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="stats"}' in cluster.read("/metrics"), "the metric")
    pod.delete()


def events(cluster):
    """What is wrong stands in an event of the pod, and is mended without a new pod where it can be."""
    cluster.volume("bad", mememory="1GiB")
    bad = cluster.pod("bad", waits=False)
    note("key:", bad.wait_event("mememory"))
    cluster.volume("nobucket", source="s3://nosuchbucket")
    bucket = cluster.pod("nobucket", waits=False)
    note("bucket:", bucket.wait_event("nosuchbucket"))
    cluster.volume("nosecret", secret="late")
    late = cluster.pod("nosecret", waits=False)
    note("Secret:", late.wait_event("late"))
    cluster.secret("late", {"AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "wrong"})
    note("keys:", late.wait_event("PermissionDenied", 90))
    cluster.secret("late", cluster.keys)
    late.wait_running(180)
    late.expect("cat /data/hello.txt", "hello\n")
    for pod in (bad, bucket, late):
        pod.delete()


def single(cluster):
    """ReadWriteOncePod: a second pod is refused, and comes once the first is gone."""
    cluster.volume("single", modes=["ReadWriteOncePod"])
    first = cluster.pod("single-1", claim="single")
    second = cluster.pod("single-2", claim="single", waits=False)
    note(second.wait_event("single"))
    first.delete()
    second.wait_running(180)
    second.expect("cat /data/hello.txt", "hello\n")
    second.delete()


def rotation(cluster):
    """The keys of a Secret change, and those before are refused."""
    cluster.secret("rotated", cluster.keys)
    cluster.volume("rotated", secret="rotated", **{"attribute-lifetime": "1s"})
    pod = cluster.pod("rotated")
    pod.expect("cat /data/hello.txt", "hello\n")
    before = dict(cluster.keys)
    cluster.kill("origin")
    cluster.start_origin("key-2", "secret-2")
    try:
        note("with the keys before:", pod.inside("cat /data/other/file.txt"))
        since = time.monotonic()
        cluster.secret("rotated", cluster.keys)
        pod.expect_soon("cat /data/other/file.txt", "other\n", 60)
        note(f"the new keys were used after {time.monotonic() - since:.1f} s")
        # A Secret that has become useless must not take the volume from its pod.
        cluster.secret("rotated", {"AWS_ACCESS_KEY_ID": "half"})
        time.sleep(12)
        pod.expect("cat /data/deep/file.txt", "deep\n")
        note("calls:", cluster.calls(), "events:", pod.events())
    finally:
        cluster.kill("origin")
        cluster.start_origin(*before.values())
    pod.delete()


class Sts(http.server.BaseHTTPRequestHandler):
    """Keys for whoever has a token."""

    def do_POST(self):
        asked = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        self.server.seen.append((asked["RoleArn"], asked["WebIdentityToken"]))
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        key, secret = self.server.cluster.keys.values()
        body = (f"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>"
                f"<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>token</SessionToken><Expiration>{end}</Expiration>"
                "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode()
        self.send_response(200)
        self.send_header("content-type", "text/xml")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def tokens(cluster):
    """A role for the token of the pod's own service account, which kubelet asks for and hands over."""
    service = http.server.ThreadingHTTPServer(("127.0.0.1", cluster.sts_port), Sts)
    service.seen, service.cluster = [], cluster
    threading.Thread(target=service.serve_forever, daemon=True).start()
    role = "arn:aws:iam::1:role/reader"
    cluster.volume("token", secret=None, roleArn=role, authenticationSource="pod")
    pod = cluster.pod("token")
    pod.expect("cat /data/hello.txt", "hello\n")
    asked, token = service.seen[0]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    expect((asked, claims["sub"], claims["aud"]) == (role, "system:serviceaccount:default:default", ["sts.amazonaws.com"]), f"{asked} {claims}")
    expect(claims["kubernetes.io"]["pod"]["uid"] == pod.uid, f"{claims}")

    def files():
        return [each.read_text() for each in cluster.temporary.rglob("token.sts.amazonaws.com")]
    expect(files() == [token], f"the engine's files of tokens: {len(files())}")
    # Kubelet has tokens in memory alone: after it is started again it hands over another one.
    cluster.kill("kubelet")
    cluster.start_kubelet()
    wait("another token", lambda: files() not in ([], [token]), 60)
    pod.expect("cat /data/hello.txt", "hello\n")
    pod.delete()
    service.shutdown()
    service.server_close()


def kubelet_restart(cluster):
    """Kubelet dies: readers do not notice, and it finds the volumes again."""
    cluster.volume("restart")
    pod = cluster.pod("restart")
    other = cluster.pod("restart-inline", inline=cluster.inline())
    gone = cluster.pod("restart-gone", claim="restart")
    pid = pod.pid
    cluster.kill("kubelet")
    pod.expect("cat /data/hello.txt", "hello\n")
    # Deleted while kubelet is away: only what lies on disk tells of its volume.
    gone.ask_deletion(0)
    cluster.start_kubelet()
    gone.wait_gone(120)
    wait("kubelet publishes again", lambda: cluster.calls().get("NodePublishVolume:OK", 0) >= 2, 60)
    expect(pod.pid == pid, "the container was started again")
    pod.expect("cat /data/hello.txt", "hello\n")
    other.expect("cat /data/hello.txt", "hello\n")
    pod.delete()
    other.delete()


class Reader:
    """A process in a container that compares the big file again and again."""

    def __init__(self, pod):
        code, output = pod.inside("cp /data/big /copy")
        expect(code == 0, output)
        inside = f"exec nsenter --mount=/proc/{pod.pid}/ns/mnt --root=/proc/{pod.pid}/root sh -c"
        self.process = subprocess.Popen(f"{inside} 'while :; do cmp /data/big /copy 2>&1 && echo right; done'", shell=True,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)

    def expect_no_errors(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        lines = self.process.communicate()[0].splitlines()
        wrong = [line for line in lines if line != "right"]
        expect(not wrong and lines, f"a reader has seen {len(wrong)} errors, and {len(lines) - len(wrong)} times the file: {wrong[:3]}")
        note(f"a reader has read it {len(lines)} times")


def engine_death(cluster):
    """The engine is killed: its process, and its container. Readers wait."""
    cluster.volume("death")
    pod = cluster.pod("death")
    reader = Reader(pod)
    for _ in range(3):
        os.kill(cluster.serving(), signal.SIGKILL)
        time.sleep(1)
    pod.expect("cat /data/deep/file.txt", "deep\n")
    cluster.kill_engine()
    time.sleep(2)
    cluster.start_engine()
    pod.expect("cat /data/other/file.txt", "other\n", 30)
    reader.expect_no_errors()
    pod.delete()


def plugin_death(cluster):
    """The plugin is killed while a pod reads, and while one is made and one is deleted."""
    cluster.volume("plugin")
    pod = cluster.pod("plugin")
    reader = Reader(pod)
    cluster.kill("plugin")
    pod.expect("cat /data/deep/file.txt", "deep\n")
    made = cluster.pod("plugin-made", claim="plugin", waits=False)
    time.sleep(2)
    cluster.start_plugin()
    made.wait_running(120)
    made.expect("cat /data/hello.txt", "hello\n")
    cluster.kill("plugin")
    made.ask_deletion()
    time.sleep(3)
    cluster.start_plugin()
    made.wait_gone(120)
    reader.expect_no_errors()
    pod.delete()


def both_deaths(cluster):
    """Plugin and engine are killed at once: the volume comes back with kubelet's next call, which has its Secret."""
    cluster.volume("both")
    slave = {"mountPropagation": "HostToContainer"}
    pod = cluster.pod("both", mounts=[slave])
    read_only = cluster.pod("both-ro", claim="both", read_only=True, mounts=[slave])
    private = cluster.pod("both-private", claim="both")
    sub = cluster.pod("both-sub", claim="both", mounts=[{"subPath": "deep"}])
    cluster.kill("plugin")
    cluster.kill_engine()
    time.sleep(1)
    note("meanwhile:", pod.inside("cat /data/hello.txt"))
    since = time.monotonic()
    cluster.start_plugin()
    cluster.start_engine()
    pod.expect_soon("cat /data/hello.txt", "hello\n", 90)
    note(f"again after {time.monotonic() - since:.1f} s")
    read_only.expect_soon("cat /data/hello.txt", "hello\n", 30)
    read_only.expect_refused()
    note("without propagation:", private.inside("cat /data/hello.txt"))
    note("subPath:", sub.inside("cat /data/file.txt"))
    # Containers that are started again see it, by subPath too.
    private.restart_container()
    private.expect_soon("cat /data/hello.txt", "hello\n")
    sub.restart_container()
    sub.expect_soon("cat /data/file.txt", "deep\n")
    for one in (pod, private, sub, read_only):
        one.delete()


def neighbours(cluster):
    """After plugin and engine were lost at once, a pod that goes takes nothing from another pod of its volume."""
    cluster.volume("near")
    slave = {"mountPropagation": "HostToContainer"}
    pods = [cluster.pod(f"near-{at}", claim="near", mounts=[slave]) for at in range(3)]
    cluster.kill("plugin")
    cluster.kill_engine()
    cluster.start_plugin()
    cluster.start_engine()
    for pod in pods:
        pod.expect_soon("cat /data/hello.txt", "hello\n", 90)
    readers = [Reader(pod) for pod in pods[1:]]
    pods[0].delete()
    pods[1].expect_soon("cat /data/deep/file.txt", "deep\n")
    for reader in readers:
        reader.expect_no_errors()
    for pod in pods[1:]:
        pod.delete()


def crowd(cluster):
    """Many pods of one volume come at once, and go at once: no call waits for kubelet's next attempt."""
    cluster.volume("crowd")
    since = time.monotonic()
    pods = [cluster.pod(f"crowd-{at}", claim="crowd", waits=False) for at in range(cluster.crowd)]
    for pod in pods:
        pod.wait_running(120)
    note(f"{len(pods)} pods came within {time.monotonic() - since:.1f} s")
    complaints = [event for pod in pods for event in pod.events()]
    since = time.monotonic()
    for pod in pods:
        pod.ask_deletion()
    for pod in pods:
        pod.wait_gone(120)
    took = time.monotonic() - since
    aborted = {call: count for call, count in cluster.calls().items() if "Aborted" in call}
    note(f"and went within {took:.1f} s; {aborted}")
    expect(not complaints, f"{len(complaints)} warnings at pods of which nothing is wrong: {complaints[:1]}")
    expect(not aborted, f"kubelet had to call again, each time after twice as long: {aborted}")


def upgrade(cluster):
    """Another engine comes before the first one leaves, and another plugin after it: readers and writers do not notice."""
    cluster.volume("upgrade")
    pod = cluster.pod("upgrade")
    reader = Reader(pod)
    code, output = pod.inside("exec 3> /data/slow; echo one >&3; echo two >&3; exec 3>&-; cat /data/slow")
    expect((code, output) == (0, "one\ntwo\n"), f"{code} {output}")
    cluster.start_engine("next")
    wait("two engines", lambda: cluster.log("plugin").count("is connected") >= 2)
    cluster.kill("engine", signal.SIGTERM, 60)
    cluster.processes["engine"] = cluster.processes.pop("next")
    pod.expect("cat /data/other/file.txt", "other\n")
    cluster.kill("plugin", signal.SIGTERM, 60)
    time.sleep(2)
    pod.expect("cat /data/deep/file.txt", "deep\n")
    cluster.start_plugin()
    made = cluster.pod("upgrade-made", claim="upgrade")
    made.expect("cat /data/slow && rm /data/slow", "one\ntwo\n")
    reader.expect_no_errors()
    made.delete()
    pod.delete()


def storm(cluster):
    """Pods come and go, and everything is killed, in an order that --seed chooses."""
    chance = random.Random(cluster.seed)
    for at in range(3):
        cluster.volume(f"storm-{at}")
    pods, count = [], 0
    kills = {"plugin": cluster.start_plugin, "engine": cluster.start_engine, "kubelet": cluster.start_kubelet}
    for _ in range(cluster.rounds):
        deed = chance.choice(["pod", "pod", "pod", "inline", "delete", "delete", "plugin", "engine", "serving", "kubelet", "wait"])
        if deed in ("pod", "inline"):
            count += 1
            inline = cluster.inline() if deed == "inline" else None
            claim, read_only = f"storm-{chance.randrange(3)}", chance.random() < 0.3
            mounts = [chance.choice([{}, {"mountPropagation": "HostToContainer"}, {"subPath": "deep"}])]
            pods.append((cluster.pod(f"storm-{count}", claim=claim, read_only=read_only, inline=inline, mounts=mounts, waits=False), read_only or inline, mounts[0]))
        elif deed == "delete" and pods:
            pods.pop(chance.randrange(len(pods)))[0].ask_deletion(chance.choice([0, 1]))
        elif deed == "serving":
            os.kill(cluster.serving(), signal.SIGKILL)
        elif deed in kills:
            cluster.kill_engine() if deed == "engine" else cluster.kill(deed)
            time.sleep(chance.random())
            kills[deed]()
        time.sleep(2 * chance.random())
    note(f"{count} pods, {len(pods)} are left")
    for pod, read_only, mount in pods:
        pod.wait_running(240)
        # One without propagation that has lost its mount needs a new container.
        command = "cat /data/file.txt" if "subPath" in mount else "cat /data/deep/file.txt"
        if "mountPropagation" not in mount and pod.inside(command)[0]:
            pod.restart_container()
        pod.expect_soon(command, "deep\n", 60)
        if read_only:
            pod.expect_refused()
        else:
            pod.expect(f"echo {pod.name} > /data/{pod.name} && cat /data/{pod.name} && rm /data/{pod.name}", f"{pod.name}\n")
    for pod, _, _ in pods:
        pod.ask_deletion()
    for pod, _, _ in pods:
        pod.wait_gone(240)


def deaths_at_deletion(cluster):
    """Pods are deleted while engine, plugin and origin are dead."""
    cluster.volume("dying")
    pods = [cluster.pod(f"dying-{at}", claim="dying") for at in range(3)]
    os.kill(cluster.serving(), signal.SIGSTOP)
    pods[0].delete()
    cluster.kill_engine()
    pods[1].delete()
    cluster.kill("plugin")
    pods[2].ask_deletion()
    time.sleep(3)
    cluster.start_plugin()
    pods[2].wait_gone(120)
    cluster.start_engine()
    cluster.expect_nothing_left()
    cluster.kill("origin")
    late = cluster.pod("dying-late", claim="dying", waits=False)
    note(late.wait_event("dying", 200))
    late.delete(200)
    cluster.start_origin(*cluster.keys.values())


def orphans(cluster):
    """Everything but the API server dies, the pods are deleted meanwhile, and all of it is started again."""
    cluster.volume("orphan")
    pods = [cluster.pod("orphan-1", claim="orphan"), cluster.pod("orphan-2", claim="orphan", mounts=[{"subPath": "deep"}]),
            cluster.pod("orphan-3", inline=cluster.inline())]
    for name in ("kubelet", "plugin"):
        cluster.kill(name)
    cluster.kill_engine()
    for pod in pods:
        pod.ask_deletion(0)
    cluster.start_kubelet()
    time.sleep(5)
    cluster.start_plugin()
    cluster.start_engine()
    for pod in pods:
        pod.wait_gone(240)


CHECKS = [manifests, registration, publish, readonly, inline, subpath, group, stats, events, single, rotation, tokens,
          kubelet_restart, engine_death, plugin_death, both_deaths, neighbours, crowd, upgrade, deaths_at_deletion, orphans, storm]


def revive(cluster):
    """Starts what a check that failed has left dead, and deletes its pods."""
    if "next" in cluster.processes:
        cluster.kill("next")
    for name in ("origin", "plugin", "engine", "kubelet"):
        if name not in cluster.processes or cluster.processes[name].poll() is not None:
            getattr(cluster, f"start_{name}")()
    for pod in cluster.api("GET", f"{DEFAULT}/pods")["items"]:
        cluster.ask("DELETE", f"{DEFAULT}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 1})
    try:
        cluster.expect_nothing_left(150)
    except Wrong as wrong:
        note("also then:", wrong)


def check_all(cluster, only, first):
    """The names of those that do not hold."""
    failed = []
    for check in CHECKS:
        if only and check.__name__ not in only:
            continue
        began = time.monotonic()
        print(f"---- {check.__name__}: {check.__doc__}", flush=True)
        try:
            check(cluster)
            cluster.expect_nothing_left()
            print(f"ok   {time.monotonic() - began:.1f} s", flush=True)
        except Exception as wrong:  # Also a defect of the check: the next ones run all the same.
            failed.append(check.__name__)
            why = wrong if isinstance(wrong, Wrong) else traceback.format_exc()
            print(f"FAIL {time.monotonic() - began:.1f} s: {why}", flush=True)
            if first:
                break
            revive(cluster)
    return failed


def run(arguments):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kubernetes-", dir=arguments.folder)).resolve()
    folder.chmod(0o711)
    # A user without rights has to reach it.
    flatout = shutil.copy(arguments.program, folder / "flatout")
    cluster = Cluster(folder, arguments.kubernetes.resolve(), flatout, arguments.verbosity)
    cluster.repository = arguments.repository.resolve()
    cluster.seed, cluster.rounds, cluster.crowd = arguments.seed, arguments.rounds, arguments.crowd
    failed = ["start"]
    try:
        began = time.monotonic()
        cluster.start_origin()
        cluster.start_api()
        count = cluster.apply(cluster.repository / "deploy/kubernetes/flatout-csi.yaml")
        cluster.api("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        cluster.secret("keys", cluster.keys)
        cluster.start_runtime()
        cluster.start_driver()
        cluster.start_kubelet()
        node = f"{STORAGE}/csinodes/{NODE}"
        wait("kubelet knows the driver", lambda: cluster.ask("GET", node)[1].get("spec", {}).get("drivers"), 60)
        print(f"{count} objects of deploy/ are applied, and kubelet knows the driver, after {time.monotonic() - began:.1f} s", flush=True)
        failed = check_all(cluster, arguments.only and arguments.only.split(","), arguments.first)
        print("kubelet's calls since it was last started:", cluster.calls())
    finally:
        cluster.stop()
        if arguments.keep or failed:
            logs = arguments.folder / "logs"
            shutil.rmtree(logs, ignore_errors=True)
            logs.mkdir()
            for each in folder.glob("*.log"):
                shutil.copy(each, logs)
            print(f"logs: {logs}")
        for point, _ in reversed(mounts()):
            if point.startswith(str(folder)):
                subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(failed)} do not hold: {', '.join(failed)}" if failed else "all hold")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="flatout")
    parser.add_argument("--kubernetes", type=pathlib.Path, default=HERE / "kubernetes", help="what main.go was built to")
    parser.add_argument("--repository", type=pathlib.Path, default=HERE.parent.parent, help="where deploy/ is")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--only", help="checks by name, with commas between")
    parser.add_argument("--first", action="store_true", help="end with the first that does not hold")
    parser.add_argument("--keep", action="store_true", help="keep the logs, in FOLDER/logs")
    parser.add_argument("--seed", type=int, default=0, help="of the storm")
    parser.add_argument("--crowd", type=int, default=10, help="how many pods come and go at once")
    parser.add_argument("--rounds", type=int, default=40, help="of the storm")
    parser.add_argument("--verbosity", type=int, default=3, help="kubelet's")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        own = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp(own[0], [*own, sys.executable, *sys.argv, "--inside"])
    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
