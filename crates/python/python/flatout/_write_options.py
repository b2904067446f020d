"""What an object is stored with: keyword arguments of the verbs that write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

__all__ = ["WriteOptions"]


class WriteOptions(TypedDict, total=False):
    """The keyword arguments of verbs that make an object. One that is None counts as not given."""

    content_type: str | None
    """Its type; without it that of the extension of its name"""
    metadata: Mapping[str, str] | None
    """Metadata of the user's; origins keep names in lower case"""
    cache_control: str | None
    """As in ``"max-age=3600"``"""
    content_disposition: str | None
    """As in ``'attachment; filename="x"'``"""
    content_encoding: str | None
    """Say it where the bytes are compressed already"""
    content_language: str | None
    """As in ``"de"``"""
    expires: str | datetime | None
    """Until when caches may keep it: a datetime, or an HTTP date"""
    storage_class: str | None
    """S3: ``"STANDARD_IA"``, …; OSS: ``"IA"``, …"""
    acl: str | None
    """A canned access list, as in ``"bucket-owner-full-control"``"""
    sse: str | None
    """Encryption by the origin: ``"AES256"``, ``"aws:kms"``, ``"KMS"``"""
    sse_kms_key_id: str | None
    """The key for an encryption by KMS"""
    tags: Mapping[str, str] | None
    """Tags of the object"""
    if_match: str | None
    """Replace only the version with this ETag; S3 alone knows this condition"""
    overwrite: bool | None
    """False: raise :class:`flatout.AlreadyExists` where an object has the name; it stays as it is"""
