"""The Run:ai streamer: a safetensors file to tensors in memory, which are the caller's (`owned`)."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from runai_model_streamer import SafetensorsStreamer

import talk


def safetensors(job):
    def transfer():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(f"s3://{job.bucket}/{job.key}")
            tensors = dict(streamer.get_tensors())
        return talk.Delivered(job).all(tensors[name].numpy() for name in sorted(tensors))

    return transfer


if __name__ == "__main__":
    talk.run(__doc__, {("python", "safetensors"): safetensors})
