"""universal_pathlib's interface: ``UPath("flatout+s3://bucket/key")``, found by the installed package's entry points."""

from upath._flavour import WrappedFileSystemFlavour as _Flavour
from upath.implementations.cloud import CloudPath as _CloudPath

__all__ = ["FlatoutPath"]

# The bucket is the path's drive, and a key may have empty parts, as universal_pathlib has it of s3://. There is no other way to say so.
for _trait in ("netloc_is_anchor", "supports_empty_parts"):
    _Flavour.protocol_config[_trait].update(("flatout", "flatout+s3", "flatout+oss"))
del _trait


class FlatoutPath(_CloudPath):
    """A path of ``flatout+s3://`` or ``flatout+oss://``, with the options of :class:`flatout.fsspec.FlatoutFileSystem`. It reads; what
    writes raises :class:`flatout.Unsupported`."""

    __slots__ = ()

    def __init__(self, *args, protocol=None, **options):
        super().__init__(*args, protocol=protocol, **options)
        if not self.drive and len(self.parts) > 1:
            raise ValueError(f"no bucket in {str(self)!r}: write {self.protocol}://BUCKET/KEY")
