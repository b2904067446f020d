"""A certificate authority of the lab's own, for a day, and one certificate of it for loopback."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from errors import LabError


@dataclass(frozen=True)
class Certificates:
    """What clients trust, and what origins show."""

    ca: Path
    certificate: Path
    key: Path


def make(folder: Path) -> Certificates:
    folder.mkdir()
    made = Certificates(folder / "ca.pem", folder / "origin.pem", folder / "origin.key")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
    openssl(
        ["req", "-x509", *key, "-days", "2", "-subj", "/CN=flatout lab", "-keyout", str(folder / "ca.key"), "-out", str(made.ca)]
        + ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    )
    request = folder / "origin.csr"
    openssl(["req", *key, "-subj", "/CN=127.0.0.1", "-keyout", str(made.key), "-out", str(request)])
    names = folder / "names"
    names.write_text(
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
    )
    openssl(
        ["x509", "-req", "-in", str(request), "-CA", str(made.ca), "-CAkey", str(folder / "ca.key"), "-CAcreateserial"]
        + ["-days", "2", "-extfile", str(names), "-out", str(made.certificate)]
    )
    return made


def openssl(arguments: list[str]):
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise LabError("openssl is not installed, and the cases with TLS need it: apt-get install openssl") from None
    if done.returncode != 0:
        raise LabError(f"openssl {arguments[0]}: {done.stderr.strip()}")
