"""universal_pathlib's interface: ``UPath("flatout://bucket/key")``, found by the installed package's entry points."""

from fsspec import get_filesystem_class as _get_filesystem_class
from upath._flavour import WrappedFileSystemFlavour as _Flavour
from upath.implementations.cloud import CloudPath as _CloudPath

from .fsspec import OssFileSystem

__all__ = ["FlatoutOssPath", "FlatoutS3Path"]

# The bucket is the path's drive, and a key may have empty parts, as universal_pathlib has it of s3://: there is no
# other way to say so. It takes a file system's rules for paths from the class only if that is loaded before the first
# path is made.
for _protocol in ("flatout", "flatoutoss", "flatout+s3", "flatout+oss"):
    _get_filesystem_class(_protocol)
    _Flavour.protocol_config["netloc_is_anchor"].add(_protocol)
    _Flavour.protocol_config["supports_empty_parts"].add(_protocol)
del _protocol


class FlatoutS3Path(_CloudPath):
    """A read-only path of ``flatout://``, with the options of :class:`flatout.fsspec.S3FileSystem`. Methods that write
    raise :class:`flatout.Unsupported`."""

    __slots__ = ()


class FlatoutOssPath(_CloudPath):
    """A read-only path of ``flatoutoss://``, with the options of :class:`flatout.fsspec.OssFileSystem`."""

    __slots__ = ()

    @classmethod
    def _transform_init_args(cls, args, protocol, storage_options):
        # universal_pathlib takes protocols for the same up to their '+', and flatout is short for flatout+s3: paths of
        # this one are held against the other unless they come without it.
        bare = tuple(OssFileSystem._strip_protocol(arg) if isinstance(arg, (str, cls)) else arg for arg in args)
        return super()._transform_init_args(bare, protocol, storage_options)
