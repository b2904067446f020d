#!/usr/bin/env python3
"""One object through the AWS CRT, its bytes dropped: the peer beside `flatout bench get` until the lab (bench/) has it.

usage: crt_get.py HOST PORT PATH CA_PEM|- PART_MIB TARGET_GBPS     (`-` speaks plain HTTP)
Needs awscrt 0.38 from PyPI. Prints GiB/s, CPU seconds per GiB and peak memory.
"""
import resource
import sys
import time

from awscrt import http, io, s3


def main(host, port, path, ca, part_mib, gbps):
    bootstrap = io.ClientBootstrap(group := io.EventLoopGroup(0), io.DefaultHostResolver(group))
    tls = None
    if ca != "-":
        options = io.TlsContextOptions()
        options.override_default_trust_store_from_path(None, ca)
        tls = io.ClientTlsContext(options).new_connection_options()
    client = s3.S3Client(
        bootstrap=bootstrap,
        region="us-east-1",
        part_size=int(part_mib) << 20,
        throughput_target_gbps=float(gbps),
        tls_connection_options=tls,
        tls_mode=s3.S3RequestTlsMode.ENABLED if tls else s3.S3RequestTlsMode.DISABLED,
    )
    received = 0

    def on_body(chunk, offset, **_):
        nonlocal received
        received += len(chunk)

    request = http.HttpRequest("GET", path, http.HttpHeaders([("host", f"{host}:{port}")]))
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.time()
    client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request, on_body=on_body).finished_future.result()
    seconds, after = time.time() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    gib = received / 2**30
    print(f"crt {gib / seconds:.2f} GiB/s, {cpu / gib:.3f} CPU s/GiB, {after.ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
