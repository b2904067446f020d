"""Reads what OSS Connector for AI/ML is configured by: the file of settings, the file of credentials, the provider of oss2."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._native import Credentials
from ..client import Client
from ..errors import AccessDenied, UsageError

if TYPE_CHECKING:
    from .._settings import Settings

__all__ = ["client_of"]

#: Keys whose end nothing tells are asked for again every five minutes, which is how long before the end a client asks.
_LIFE_S = 600

#: A file that is no JSON may be half written: it is read so often in all, with pauses, until it is refused.
_READS, _PAUSE_S = 5, 0.05

#: The keys of the connectors' configuration files, those without documentation included.
_SECTION = {
    "prefetchConcurrency": int,
    "prefetchWorker": int,
    "prefetchIoSizeMB": int,
    "prefetchMB": int,
    "prefetchUnitMB": int,
    "uploadConcurrency": int,
    "uploadIoSizeMB": int,
    "uploadBufferSizeMB": int,
    "writeIoSizeMB": int,
    "listConcurrency": int,
    "listWorker": int,
    "enableFastList": bool,
    "enableBatchGet": bool,
    "batchGetSize": int,
    "timeoutMs": int,
}
_THREADS = {"vcpus": int, "workers": int}
_KEYS: dict[str, Any] = {
    "logLevel": int,
    "logPath": str,
    "auditPath": str,
    "expireTimeSec": int,
    "ioEngineType": int,
    "datasetConfig": _SECTION,
    "checkpointConfig": _SECTION,
    "prefetch": _THREADS,
    "fastList": _THREADS,
}
_SHOWN = {int: "a number from 0 on", bool: "true or false", str: "a text"}

#: Of the model connector: threads, and requests of each.
_MODEL_VCPUS, _MODEL_WORKERS = 16, 16
#: What the setting ``parallel`` takes.
_PARALLEL_LIMIT = 4096


def client_of(section: str, endpoint: str, cred_path: str, config_path: str, cred_provider: Any, region: str) -> Client:
    """The client of an object that is made with these arguments, and reads ``section`` of the configuration file.

    Raises:
        UsageError: an argument or the configuration file is invalid.
        AccessDenied: the credentials file cannot be used.
    """
    if not endpoint:
        hint = "as in endpoint='http://oss-cn-hangzhou-internal.aliyuncs.com'; local folders are not read"
        raise UsageError(doing="settings", cause="endpoint is empty", hint=hint)
    settings: Settings = {"oss_endpoint": endpoint, "oss_region": region or None}
    if config_path:
        settings["parallel"] = _parallel(_config(config_path), section)
    if cred_provider is not None:
        if not callable(getattr(cred_provider, "get_credentials", None)):
            cause = f"cred_provider is {type(cred_provider).__name__}, which has no method get_credentials"
            raise UsageError(doing="settings", cause=cause, hint="give a provider of oss2, or cred_path='FILE'")
        settings["credentials"] = _OfProvider(cred_provider)
    elif cred_path:
        keys = settings["credentials"] = _OfFile(cred_path)
        keys()
    return Client(**settings)


def _parallel(config: dict[str, Any], section: str) -> int | None:
    """How many requests are in flight, as the configuration says; None where it says nothing."""
    told = config.get(section, {})
    if section == "prefetch":
        count = told.get("vcpus", _MODEL_VCPUS) * told.get("workers", _MODEL_WORKERS) if told else 0
    else:
        count = max(told.get("prefetchConcurrency", 0), told.get("uploadConcurrency", 0))
    return min(count, _PARALLEL_LIMIT) or None


def _config(path: str) -> dict[str, Any]:
    """The configuration file, checked."""
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except OSError as error:
        cause = f"the configuration file cannot be read: {error.strerror}"
        raise UsageError(doing="settings", object=path, cause=cause, hint="correct config_path, or leave it out") from error
    except ValueError as error:
        raise UsageError(doing="settings", object=path, cause=f"the configuration file is no JSON: {error}") from error
    _check(config, _KEYS, path, "")
    return config


def _check(found: Any, known: dict[str, Any], path: str, within: str) -> None:
    if not isinstance(found, dict):
        where = f"'{within.rstrip('.')}'" if within else "the configuration file"
        raise UsageError(doing="settings", object=path, cause=f"{where} holds no JSON object, {{…}}")
    for name, value in found.items():
        kind = known.get(name)
        if kind is None:
            hint = f"it may have {', '.join(sorted(known))}"
            raise UsageError(doing="settings", object=path, cause=f"there is no key '{within}{name}'", hint=hint)
        if isinstance(kind, dict):
            _check(value, kind, path, f"{within}{name}.")
        elif type(value) is not kind or (kind is int and value < 0):
            cause = f"'{within}{name}' is {json.dumps(value)}, not {_SHOWN[kind]}"
            raise UsageError(doing="settings", object=path, cause=cause)


class _OfFile:
    """The keys of a credentials file, which another program refreshes: read whenever a client asks. Pickles as its path."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)

    def __call__(self) -> Credentials:
        told = self._read()
        names = ("AccessKeyId", "AccessKeySecret", "SecurityToken", "Expiration")
        for name in names:
            value = told.get(name)
            if value is not None and not isinstance(value, str):
                raise self._refused(f"'{name}' is no text")
        key, secret, token, end = (told.get(name) for name in names)
        if not key or not secret:
            missing = "AccessKeySecret" if key else "AccessKeyId"
            hint = "the file holds AccessKeyId, AccessKeySecret and, of temporary keys, SecurityToken and Expiration"
            raise self._refused(f"'{missing}' is missing or empty", hint)
        return Credentials(key, secret, token or None, expires=self._end(end) if end else time.time() + _LIFE_S)

    def _read(self) -> dict[str, Any]:
        for left in reversed(range(_READS)):
            try:
                told = json.loads(self._content())
                break
            except ValueError as error:
                if not left:
                    # The exception holds the text.
                    where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
                    raise self._refused(f"it is no JSON{where}") from None
            time.sleep(_PAUSE_S)
        if not isinstance(told, dict):
            raise self._refused("it holds no JSON object, {…}")
        return told

    def _content(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                mode, content = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read()
        except OSError as error:
            raise self._refused(f"it cannot be read: {error.strerror}", "correct cred_path, or leave it out") from error
        if mode & 0o006:
            cause = f"every user of this machine may read or write it: its mode is {mode:04o}"
            hint = f"chmod o-rw {self._path}; of a secret of Kubernetes set defaultMode: 0440"
            raise self._refused(cause, hint)
        return content

    def _end(self, text: str) -> float:
        try:
            end = datetime.fromisoformat(text)
        except ValueError:
            end = None
        if end is None or end.tzinfo is None:
            raise self._refused(f"'Expiration' is {text!r}, not a time with a zone", "as in 2026-08-02T15:04:05Z")
        if end.timestamp() <= time.time():
            raise self._refused(f"its keys ended at {text}", "what refreshes the file has to do so before they end")
        return end.timestamp()

    def _refused(self, cause: str, hint: str | None = None) -> AccessDenied:
        return AccessDenied(doing="credentials", object=self._path, cause=cause, hint=hint)


class _OfProvider:
    """The keys of a provider of oss2's. Pickles with the provider."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __call__(self) -> Credentials:
        found = self._provider.get_credentials()
        key, secret, token = (_told(found, name) for name in ("access_key_id", "access_key_secret", "security_token"))
        return Credentials(key, secret, token or None, expires=time.time() + _LIFE_S)


def _told(found: Any, name: str) -> Any:
    """Of oss2's object by its method, of oss2 version 2's by its attribute."""
    method = getattr(found, f"get_{name}", None)
    return method() if callable(method) else getattr(found, name, None)
