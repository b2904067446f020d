"""One engine serves the main interpreter of a process: a subinterpreter is refused by an ImportError, and harms nobody."""

SETUP = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import os, sys

def run(program):
    # Such as mod_wsgi's: it shares the lock of the main one.
    try:
        created = interpreters.create("legacy")
    except TypeError:
        created = interpreters.create(isolated=False)
    read, write = os.pipe()
    path = [each for each in sys.path if each]
    told = interpreters.run_string(created, f"import sys, os; sys.path[:0] = {path!r}\\n" + program.replace("SAY", str(write)))
    os.close(write)
    said = os.fdopen(read).read()
    return created, said, told

REFUSED = '''
try:
    import flatout
    said = "imported"
except ImportError as error:
    said = str(error)
os.write(SAY, said.encode())
'''
"""


def test_a_subinterpreter_is_refused_and_the_process_ends(python):
    """The process hung for ever at its end."""
    said = python(SETUP + "print(run(REFUSED)[1])")
    assert "main interpreter only" in said and "WSGIApplicationGroup %{GLOBAL}" in said


def test_one_that_goes_leaves_the_main_one_alone(serve, bucket, python):
    """Every later read of the main one said: the interpreter ends."""
    url = bucket.put("key", b"123")
    said = python(
        SETUP
        + """
for before in (True, False):
    if before:
        created, said, _ = run(REFUSED)
        assert "main interpreter only" in said, said
        interpreters.destroy(created)
    import flatout
    with flatout.Client(endpoint_url=sys.argv[1]) as client:
        assert client.read(sys.argv[2]) == b"123"
        created, said, _ = run(REFUSED)
        assert "main interpreter only" in said, said
        interpreters.destroy(created)
        assert client.read(sys.argv[2]) == b"123"
print("read")
""",
        serve.url,
        url,
    )
    assert said == "read\n"
