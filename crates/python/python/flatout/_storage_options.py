"""From what users of fsspec, s3fs and ossfs write as ``storage_options`` to settings. Pure."""

import re

from ._native import Credentials
from .errors import UsageError

__all__ = ["settings"]

# Secrets: none may become an argument, for arguments end in pickles, tokens and the repr of a Dask graph.
_SECRETS = {"key", "secret", "token", "username", "password", "access_key_id", "access_key_secret", "security_token"}
_CLIENT_SECRETS = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}

# Of fsspec, s3fs and ossfs, and no settings: what is awaited is awaited on the loop of whoever awaits it; the engine
# finds how much to ask for ahead and at a time, and where a bucket lies.
_WITHOUT_EFFECT = {
    "batch_size",
    "cache_regions",
    "default_block_size",
    "default_cache_type",
    "default_fill_cache",
    "fixed_upload_size",
    "loop",
    "max_concurrency",
    "max_paths",
    "listings_expiry_time",
    "skip_instance_cache",
    "use_listings_cache",
}

_USER_INFO = re.compile(r"://[^/?#]*@")

# Hosts, with or without a scheme: an '@' says that a user stands before it.
_HOSTS = {"proxy", "endpoint", "endpoint_url", "oss_endpoint"}


def settings(options: dict, scheme: str) -> dict:
    """The settings of a client for ``scheme``, ``"s3"`` or ``"oss"``. An option that is None counts as not given.

    Raises:
        UsageError: a secret, or something of s3fs that would be disregarded to the user's harm. A name that is no
        option at all
            is left for the client to refuse.
    """
    found: dict = {}
    for name, value in options.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        if name in _SECRETS or isinstance(value, Credentials):
            if value != "":
                raise _secret(name, scheme)
        elif name in _TRANSLATED:
            _TRANSLATED[name](found, value, scheme)
        else:
            found[name] = value
    _check_use_ssl(options, found)
    for name, value in found.items():
        is_host = name.replace("-", "_") in _HOSTS
        if "@" in str(value) if is_host else _USER_INFO.search(str(value)):
            hint = (
                "give a proxy that needs one in HTTPS_PROXY"
                if name == "proxy"
                else "leave out what stands before the '@'"
            )
            raise _usage(f"'{name}' holds a password, which would get into pickles and tokens", hint)
    return found


def _secret(name: str, scheme: str) -> UsageError:
    variables = (
        "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET"
        if scheme == "oss"
        else "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    return _usage(
        f"'{name}' is a secret, and arguments get into pickles, logs and tokens",
        f"leave it out: keys come from {variables}, from a profile (profile='NAME'), from the machine's role, or from a "
        "function that returns them (credentials=FUNCTION)",
    )


def _usage(cause: str, hint: str) -> UsageError:
    return UsageError(kind="usage", doing="storage_options", cause=cause, hint=hint)


def _anon(found, value, scheme):
    if value:
        found["no_sign_request"] = True


def _requester_pays(found, value, scheme):
    if value:
        found["request_payer"] = True


def _endpoint(found, value, scheme):
    # ossfs's name for it. What it is to S3 the client says.
    found["oss_endpoint" if scheme == "oss" else "endpoint"] = value


def _use_ssl(found, value, scheme):
    pass  # `_check_use_ssl` sees it beside the endpoint.


def _check_use_ssl(options, found):
    endpoint = found.get("endpoint_url") or found.get("oss_endpoint") or ""
    if options.get("use_ssl") is False and not str(endpoint).startswith("http://"):
        raise _usage("use_ssl=False says nothing about where", "write endpoint_url='http://HOST[:PORT]'")


def _version_aware(found, value, scheme):
    if value:
        raise _usage(
            "versions are not listed",
            "leave out version_aware: each file that is open stays one version, and version_id= opens another one",
        )


def _session(found, value, scheme):
    raise _usage("a session of botocore is of no use here", "name its profile: profile='NAME'")


def _client_kwargs(found, value, scheme):
    for name, inner in dict(value).items():
        if inner is None:
            continue
        if name in _CLIENT_SECRETS:
            raise _secret(f"client_kwargs['{name}']", scheme)
        if name == "endpoint_url":
            found.setdefault("endpoint_url", inner)
        elif name == "region_name":
            found.setdefault("region", inner)
        elif name == "verify" and inner is True:
            continue
        elif name == "verify" and isinstance(inner, str):
            found.setdefault("ca_bundle", inner)
        elif name == "verify":
            raise _usage("certificates are always checked", "name the authority's certificate: ca_bundle='FILE.pem'")
        else:
            raise _usage(
                f"client_kwargs['{name}'] means nothing here", "docs/settings.md has the settings, with '_' for '-'"
            )


def _config_kwargs(found, value, scheme):
    for name, inner in dict(value).items():
        if inner is None or name in ("max_pool_connections", "tcp_keepalive"):
            continue
        if name == "s3" and set(inner) <= {"addressing_style"}:
            found.setdefault("addressing", inner.get("addressing_style", "auto"))
        elif name == "region_name":
            found.setdefault("region", inner)
        elif name == "signature_version" and inner in ("s3v4", "v4"):
            continue
        elif name == "connect_timeout":
            found.setdefault("connect_timeout", f"{round(float(inner) * 1000)}ms")
        elif name == "read_timeout":
            found.setdefault("stall_timeout", f"{round(float(inner) * 1000)}ms")
        else:
            raise _usage(
                f"config_kwargs['{name}'] means nothing here", "docs/settings.md has the settings, with '_' for '-'"
            )


def _s3_additional_kwargs(found, value, scheme):
    for name, inner in dict(value).items():
        if name != "RequestPayer":
            raise _usage(f"s3_additional_kwargs['{name}'] is not sent", "leave it out, or use s3fs where it is needed")
        found["request_payer"] = inner == "requester"


_TRANSLATED = {
    "anon": _anon,
    "client_kwargs": _client_kwargs,
    "config_kwargs": _config_kwargs,
    "endpoint": _endpoint,
    "requester_pays": _requester_pays,
    "s3_additional_kwargs": _s3_additional_kwargs,
    "session": _session,
    "use_ssl": _use_ssl,
    "version_aware": _version_aware,
}
