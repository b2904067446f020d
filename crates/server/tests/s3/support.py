"""What the cases share: a client, calls that are refused, requests by hand, uploads in parts."""

import hashlib
import http.client
import random
import urllib.parse

import boto3
import botocore
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

ACCESS_KEY, SECRET_KEY = "flatout-test-key", "flatout-test-secret/+="
MIB = 1 << 20
PART_BYTES = 5 * MIB


def client(url, access_key=ACCESS_KEY, secret_key=SECRET_KEY, **settings):
    """Of boto3, which sends each request once. Checksums only where a case asks for them."""
    settings = {
        "retries": {"max_attempts": 1, "mode": "standard"},
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {"addressing_style": "path"},
        # Else it presigns by version 2.
        "signature_version": "s3v4",
        "read_timeout": 60,
        **settings,
    }
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(**settings),
    )


def anonymous(url):
    return client(url, signature_version=botocore.UNSIGNED)


def refused(call, status, *codes, **arguments):
    """The call is answered with this status and one of these codes; what the answer says."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    response = raised.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status, response
    if codes:
        assert response["Error"]["Code"] in codes, response
    return response


def status(response):
    return response["ResponseMetadata"]["HTTPStatusCode"]


def headers(response):
    return response["ResponseMetadata"]["HTTPHeaders"]


def body(s3, bucket, key, **arguments):
    return s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


def put_all(s3, bucket, keys):
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())


def ask(url, method="GET", body=None, headers=()):
    """One request by hand, unsigned unless the URL is; status, headers and body of the answer."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request(method, target, body=body, headers=dict(headers))
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def data(size, seed=0):
    return random.Random(seed).randbytes(size)


def md5(content):
    return hashlib.md5(content).hexdigest()


def etag_of_parts(parts):
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f'"{hashlib.md5(digests).hexdigest()}-{len(parts)}"'


class Upload:
    """A multipart upload while it is made."""

    def __init__(self, s3, bucket, key, **arguments):
        self.s3, self.at = s3, {"Bucket": bucket, "Key": key}
        self.id = s3.create_multipart_upload(**self.at, **arguments)["UploadId"]
        self.parts = []

    def put(self, content, number=None, **arguments):
        number = number or len(self.parts) + 1
        answer = self.s3.upload_part(**self.at, UploadId=self.id, PartNumber=number, Body=content, **arguments)
        return self._note(number, answer)

    def copy(self, source, number=None, **arguments):
        number = number or len(self.parts) + 1
        answer = self.s3.upload_part_copy(
            **self.at, UploadId=self.id, PartNumber=number, CopySource=source, **arguments
        )
        return self._note(number, answer["CopyPartResult"])

    def _note(self, number, answer):
        sums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        sums.pop("ChecksumType", None)
        part = {"PartNumber": number, "ETag": answer["ETag"], **sums}
        self.parts = [other for other in self.parts if other["PartNumber"] != number] + [part]
        return answer

    def complete(self, parts=None, **arguments):
        parts = self.parts if parts is None else parts
        return self.s3.complete_multipart_upload(
            **self.at, UploadId=self.id, MultipartUpload={"Parts": parts}, **arguments
        )

    def abort(self):
        return self.s3.abort_multipart_upload(**self.at, UploadId=self.id)


def upload(s3, bucket, key, content, part_bytes=PART_BYTES, **arguments):
    """An object of several parts, completed; the answer."""
    begun = Upload(s3, bucket, key, **arguments)
    for at in range(0, len(content), part_bytes):
        begun.put(content[at : at + part_bytes])
    return begun.complete()
