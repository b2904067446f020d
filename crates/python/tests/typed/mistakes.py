"""What both checkers have to find: `error` stands behind each line that is one, and behind no other (test_types.py)."""

import flatout

flatout.Client(parralel=3)  # error
flatout.Client(parallel=[3])  # error
flatout.Client(addressing="paht")  # error
flatout.Client(credentials="secret")  # error
flatout.AsyncClient(part_sise="4MiB")  # error
flatout.Client(parallel=3, part_size="4MiB")
flatout.read(5)  # error
flatout.read("s3://b/k", "5")  # error
flatout.read_ranges("s3://b/k", [5])  # error
flatout.readinto("s3://b/k", "text")  # error
flatout.open("s3://b/k", "wb").readline().decod()  # error
flatout.write("s3://b/k", "text")  # error
flatout.write("s3://b/k", b"", contenttype="a/b")  # error
flatout.upload_many([("s3://b/k",)])  # error
flatout.read("s3://b/k").decod()  # error
