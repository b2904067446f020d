"""The settings of a client as a type. Generated from crates/settings/src/knob.rs: run `cargo xtask docs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from ._native import Credentials

__all__ = ["Settings"]


class Settings(TypedDict, total=False):
    """The keyword arguments of :class:`flatout.Client`: those of docs/settings.md with ``_`` for ``-``, and ``credentials``.

    One that is None counts as not given. A size is bytes, or text with a unit (``"16MiB"``), a time text with one (``"30s"``).
    """

    credentials: Credentials | Callable[[], Credentials] | None
    """The keys to sign with, or a function that returns them and is asked again before they end; else they are found around"""
    endpoint_url: str | None
    """Where S3 is spoken, as in http://127.0.0.1:9000; without it AWS's own endpoint of the region"""
    region: str | None
    """Region to sign for; without it that of the endpoint's name, else us-east-1"""
    no_sign_request: bool | None
    """Ask without credentials, for public buckets"""
    addressing: Literal["auto", "path", "virtual"] | None
    """Bucket in the path or in the host name; auto takes path for IP addresses and localhost"""
    oss_endpoint: str | None
    """Where OSS is spoken, as in oss-cn-hangzhou-internal.aliyuncs.com; without it the public one of the region"""
    oss_region: str | None
    """Region of Alibaba Cloud to sign for, as in cn-hangzhou; without it that of the endpoint's name"""
    oss_signature: Literal["v4", "v1"] | None
    """Signature version for OSS; v1 is for old private clouds"""
    profile: str | None
    """Profile of ~/.config/flatout/config.toml, ~/.aws and ~/.aliyun to take settings and keys from"""
    request_payer: bool | None
    """Agree to pay for requests to a bucket whose owner does not"""
    ca_bundle: str | None
    """PEM file of certificates to trust for TLS in place of the system's"""
    proxy: str | None
    """Proxy for every origin, as in http://proxy:3128, in place of HTTPS_PROXY and HTTP_PROXY, which are not used for localhost, 127.0.0.1 and ::1"""
    no_proxy: str | None
    """Hosts, .suffixes, addresses and networks to reach without a proxy, with commas between; * is all"""
    resolve: str | list[str] | tuple[str, ...] | None
    """HOST[:PORT]:ADDR[,ADDR...]: connect there instead of asking for the name's addresses, as curl does; may be given several times"""
    bind: str | list[str] | tuple[str, ...] | None
    """Connect from this local address, or from those of this interface; may be given several times, and connections are spread over all"""
    parallel: int | str | None
    """Parts, or small objects, asked for at a time of an origin; auto finds how many bring most"""
    part_size: int | str | None
    """Bytes asked for in one request; auto takes 1MiB to 64MiB, by how fast a connection is. Of an upload the bytes of a part: at least 5MiB, and auto takes 8MiB or 16MiB"""
    shards: int | str | None
    """Threads that own connections; more than the machine's cores do not help"""
    window: int | str | None
    """Bytes that may wait to be read in order (cat, pipes), at least two parts; auto: as many as the pace needs and --memory allows, 1GiB at most"""
    memory: int | str | None
    """Maximum memory to use, not counting the caller's buffers and files; auto: a quarter of what the control group or else the machine has, from 256MiB to 8GiB"""
    bandwidth: int | str | None
    """Bytes a second at most, received and sent together, over all transfers, as in 100MiB/s"""
    request_rate: int | str | None
    """Requests sent to an origin a second at most, whatever they are for, as in 50/s"""
    connect_timeout: str | None
    """Timeout for opening a connection. An origin that has never accepted one is given up after 10s in total, or after the first timeout if that is longer"""
    stall_timeout: str | None
    """Ask again when no byte has come for this long"""
    outage_timeout: str | None
    """How long to wait for an origin that is away (refused, reset, silent, 5xx); 10s at most if it has never answered"""
    retries: int | str | None
    """How often in a row to ask for a part again while the origin serves others; 0 tries nothing twice"""
    no_verify: bool | None
    """Do not compare the bytes with the checksum that the origin states"""
    no_resume: bool | None
    """Start large files over, and keep nothing of one that fails for the next run"""
