"""A function that gives keys, of a module, so that clients with it pickle."""

import os

import flatout


def given():
    return flatout.Credentials(os.environ["GIVEN_KEY"], os.environ["GIVEN_SECRET"])
