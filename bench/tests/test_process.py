"""One run of one client, whatever the client does."""

import contextlib
import hashlib
import os
import subprocess
import unittest
from dataclasses import replace
from unittest import mock

import support  # first: it finds the lab's modules
import tree
from streams import Lines, Tail
from support import MIB

SPIN = """
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
"""
# CPU seconds of any process.
USED = """
def used(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
"""
# A process in a session of its own, whose parent is gone, that does not listen to TERM.
ORPHAN = """
def orphan(then):
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0: os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        then()
        os._exit(0)
    os.wait()
"""
HOLD = "time.sleep(1000)"
# What an event may take on a machine that others keep busy.
PATIENCE_S = 60


class Commands(support.WithClients):
    """Programs that are measured from their start to their exit."""

    def test_time_and_cpu(self):
        found = self.run_client(SPIN + "spin(0.2); time.sleep(0.2)")
        self.assertGreater(found.seconds, 0.4)
        self.assertGreater(found.cpu_seconds, 0.2)
        self.assertLess(found.cpu_seconds, found.seconds - 0.15)

    def test_cpu_of_children_counts(self):
        found = self.run_client(SPIN + "if os.fork() == 0: spin(0.2); os._exit(0)\nos.wait()")
        self.assertGreater(found.cpu_seconds, 0.2)

    def test_cpu_of_orphans_counts(self):
        # The pipe ends with the orphan, however long a busy machine lets it wait for its CPU.
        code = "r, w = os.pipe(); orphan(lambda: spin(0.2)); os.close(w); os.read(r, 1)"
        found = self.run_client(SPIN + ORPHAN + code, seconds=PATIENCE_S)
        self.assertGreater(found.cpu_seconds, 0.2)

    def test_peak_memory(self):
        found = self.run_client("a = b'x' * (64 << 20); time.sleep(0.1)")
        self.assertGreater(found.peak_rss, 64 * MIB)
        self.assertLess(found.peak_rss, 90 * MIB)

    def test_peak_memory_is_not_the_labs_own(self):
        large = b"x" * (200 * MIB)
        found = self.run_client("time.sleep(0.1)")
        self.assertLess(found.peak_rss, 50 * MIB, f"the lab holds {len(large)}")

    def test_others_at_work_are_seen(self):
        classify = tree.Tree.classify
        other = subprocess.Popen(["sh", "-c", "while :; do :; done"])
        code = f"until = used({other.pid}) + 0.3\nwhile used({other.pid}) < until: time.sleep(0.01)"
        around = self.client(USED + code, seconds=PATIENCE_S)
        try:
            with mock.patch.object(tree.Tree, "classify", lambda found, pid: classify(found, pid) if pid != other.pid else False):
                found = support.run(*around)
        finally:
            other.kill()
            other.wait()
        self.assertGreater(found.foreign_cpu_seconds, 0.1)

    def test_a_file_too_large(self):
        client, around = self.client("open('large', 'wb').write(b'x' * (4 << 20))")
        around = replace(around, limits=replace(around.limits, file_bytes=MIB))
        with self.assertRaisesRegex(support.RunFailed, "File too large|SIGXFSZ"):
            support.run(client, around)

    def test_no_space_is_left_for_others(self):
        with mock.patch("process.SHM_KEPT_BYTES", 1 << 60):
            self.assertRegex(self.reason(HOLD), "^left less than .* free in /dev/shm: killed$")

    def test_memory_of_the_whole_tree(self):
        # Both hold it at once for a second: the parent until the child has gone.
        code = """
r, w = os.pipe(); pid = os.fork(); a = b"x" * (40 << 20)
if pid: os.write(w, b"x"); os.wait()
else: os.read(r, 1); time.sleep(1)
"""
        found = self.run_client(code, seconds=PATIENCE_S)
        self.assertGreater(found.peak_rss, 80 * MIB)

    def test_stdout_is_hashed(self):
        found = self.run_client("for _ in range(300): os.write(1, b'x' * 10000)", stdout="hash")
        self.assertEqual(found.stdout_bytes, 3_000_000)
        self.assertEqual(found.stdout_sha256, hashlib.sha256(b"x" * 3_000_000).hexdigest())

    def test_a_pipe_is_drained(self):
        self.run_client("for _ in range(300): os.write(1, b'x' * 100000)", stdout="drain")

    def test_its_environment_is_only_what_was_given(self):
        self.run_client("assert set(os.environ) <= {'FOLDER', 'LC_CTYPE'}, os.environ")

    def test_files_are_not_left_open(self):
        self.run_client("")
        before = support.open_files()
        self.run_client("", stdout="drain")
        self.reason("sys.exit(3)")
        self.assertEqual(support.open_files(), before)


class Failures(support.WithClients):
    """Programs that do not do what they should. That nothing is left of them, `run_client` sees to."""

    def test_fails_with_words(self):
        self.assertEqual(self.reason("sys.exit('one\\n  no such bucket  \\n\\n')"), "exit status 1: no such bucket")

    def test_fails_with_words_on_stdout(self):
        self.assertEqual(self.reason("print('no such key'); sys.exit(3)"), "exit status 3: no such key")

    def test_fails_without_words(self):
        self.assertEqual(self.reason("sys.exit(3)"), "exit status 3")

    def test_words_are_bounded(self):
        self.assertLess(len(self.reason("sys.exit('x' * 100000)")), 400)

    def test_ended_by_a_signal(self):
        self.assertEqual(self.reason("os.kill(os.getpid(), signal.SIGSEGV)"), "ended by SIGSEGV")

    def test_hangs(self):
        self.assertEqual(self.reason(HOLD, seconds=0.3), "it ran for 0.3 s, which is the limit: killed")

    def test_hangs_with_a_grandchild_that_ignores_term(self):
        # The limit is long beside what a busy machine takes to start it.
        said = self.reason(ORPHAN + f"orphan(lambda: {HOLD}); sys.stderr.write('waiting'); sys.stderr.flush(); {HOLD}", seconds=3)
        self.assertEqual(said, "it ran for 3 s, which is the limit: killed: waiting")

    def test_leaves_an_orphan(self):
        self.run_client(ORPHAN + f"orphan(lambda: {HOLD})")

    def test_an_orphan_holds_the_drained_pipe(self):
        self.run_client(ORPHAN + f"orphan(lambda: {HOLD})", stdout="drain")

    def test_forks_without_end(self):
        code = "while True:\n    if os.fork(): time.sleep(0.02)\n    else: time.sleep(1000)"
        self.assertIn("limit", self.reason(code, seconds=0.5))

    def test_eats_memory(self):
        code = "a = []\nwhile True: a.append(b'x' * (8 << 20)); time.sleep(0.01)"
        said = self.reason(code, memory_mib=100)
        self.assertRegex(said, r"^took \d+\.\d MiB of memory, over the limit of 100\.0 MiB: killed$")

    def test_children_eat_memory_together(self):
        code = "for _ in range(4):\n    if os.fork() == 0: a = b'x' * (40 << 20); time.sleep(1000)\ntime.sleep(1000)"
        self.assertIn("over the limit of 100.0 MiB", self.reason(code, memory_mib=100))

    def test_speaks_without_end(self):
        self.assertIn("limit", self.reason("while True: os.write(2, b'x' * 65536)", seconds=0.5))

    def test_what_it_says_is_bounded(self):
        tail, lines = Tail(), Lines()
        for _ in range(300):
            tail.take(b"x" * 65536)
            lines.take(b"\n" * 65536 + b"x")
        self.assertLessEqual(len(tail.kept), 65536)
        self.assertLessEqual(len(lines.whole), 300)

    def test_no_signal_ends_it(self):
        """As a process that the kernel keeps: it fails its run, and later ones neither wait for it nor count it."""
        with self.spare():
            with self.assertRaisesRegex(support.RunFailed, r"^it ran for 0.3 s, which is the limit: killed; then process \d+ does not end, even by SIGKILL$"):
                support.run(*self.client("a = b'x' * (64 << 20); time.sleep(1000)", seconds=0.3))
            self.assertEqual(len(tree.stuck), 1)
            # A run that waited for it would have failed as it does.
            found = support.run(*self.client("time.sleep(0.1)"))
            self.assertLess(found.peak_rss, 50 * MIB)

    def test_a_leftover_that_no_signal_ends(self):
        with self.spare(), self.assertRaisesRegex(support.RunFailed, r"^process \d+ does not end, even by SIGKILL$"):
            support.run(*self.client(f"if os.fork() == 0: {HOLD}"))

    @contextlib.contextmanager
    def spare(self):
        """No signal reaches whoever comes first."""
        send, spared = tree.send, []

        def pretend(pid, number):
            spared.append(pid)
            if pid != spared[0]:
                send(pid, number)

        with mock.patch.object(tree, "send", pretend), mock.patch.object(tree, "GONE_S", 0.2):
            yield
        os.kill(spared[0], 9)
        os.waitpid(spared[0], 0)
        tree.stuck.clear()

    def test_cannot_be_started(self):
        around = support.Surroundings(support.Limits(1, MIB), [], self.loopback, support.DRAIN)
        client = support.Client([str(self.folder / "none")], {}, str(self.folder))
        with self.assertRaisesRegex(support.RunFailed, "^cannot start .*/none: No such file or directory$"):
            support.run(client, around)


class Talking(support.WithClients):
    """Programs that say ready and done."""

    def run_talker(self, code: str, **more):
        return self.run_client(code, talks=True, **more)

    def why(self, code: str, **more) -> str:
        return self.reason(code, talks=True, **more)

    def test_only_from_go_to_done_counts(self):
        # By the client's own clock: a busy machine makes all of it longer.
        code = """
spin(0.6); time.sleep(0.5); ready = time.monotonic(); say("ready"); input()
go = time.monotonic(); spin(0.1); done = time.monotonic(); say("done 5"); spin(0.6); sys.stdin.read()
open("clock", "w").write(f"{done - go} {time.monotonic() - ready}")
"""
        found = self.run_talker(SPIN + code, seconds=PATIENCE_S)
        least, most = map(float, (self.folder / "clock").read_text().split())
        self.assertEqual(found.said_bytes, 5)
        self.assertTrue(least <= found.seconds <= most, (found, least, most))
        self.assertTrue(0.1 <= found.cpu_seconds < 0.6, found)

    def test_cpu_of_its_children_counts(self):
        child = "if os.fork() == 0: spin(0.2); os._exit(0)"
        waited = self.run_talker(SPIN + f"say('ready'); input()\n{child}\nos.wait(); say('done 0'); sys.stdin.read()")
        self.assertGreater(waited.cpu_seconds, 0.17)
        # It says when it has used it: no time would be long enough on a busy machine.
        alive = "if os.fork() == 0: spin(0.2); os.write(w, b'x'); time.sleep(1000)"
        code = f"r, w = os.pipe(); say('ready'); input()\n{alive}\nos.read(r, 1); say('done 0'); sys.stdin.read()"
        left = self.run_talker(SPIN + code, seconds=PATIENCE_S)
        self.assertGreater(left.cpu_seconds, 0.17)

    def test_what_a_dead_child_used_before_go_does_not_count(self):
        code = """
r, w = os.pipe(); a, b = os.pipe()
if os.fork() == 0: spin(0.4); os.write(w, b"x"); os.read(a, 1); os._exit(0)
os.read(r, 1); say("ready"); input(); os.write(b, b"x"); os.wait(); say("done 0"); sys.stdin.read()
"""
        found = self.run_talker(SPIN + code)
        self.assertLess(found.cpu_seconds, 0.2)

    def test_memory_at_done(self):
        found = self.run_talker("a = b'x' * (64 << 20); say('ready'); input(); say('done 0'); sys.stdin.read()")
        self.assertTrue(64 * MIB < found.peak_rss < 90 * MIB, found)

    def test_failed_before_ready(self):
        self.assertEqual(self.why("say('failed no such bucket'); sys.exit(1)"), "no such bucket")

    def test_failed_after_go(self):
        self.assertEqual(self.why("say('ready'); input(); say('failed no such key'); sys.exit(1)"), "no such key")

    def test_says_nothing(self):
        self.assertEqual(self.why(HOLD, seconds=0.3), "it did not say ready for 0.3 s, which is the limit: killed")

    def test_never_done(self):
        said = self.why(f"say('ready'); {HOLD}", seconds=3)
        self.assertEqual(said, "it did not say done for 3 s, which is the limit: killed")

    def test_ends_without_a_word(self):
        self.assertEqual(self.why("sys.exit('no module named x')"), "exit status 1: no module named x (it had not said ready)")

    def test_ends_instead_of_done(self):
        self.assertEqual(self.why("say('ready'); input()"), "exit status 0 (it had not said done)")

    def test_says_something_else(self):
        self.assertEqual(self.why(f"say('Loading…'); {HOLD}"), "it said 'Loading…' where ready was due")
        self.assertEqual(self.why(f"say('ready'); input(); say('done soon'); {HOLD}"), "it said 'done soon' where a number was due")

    def test_says_garbage_without_end(self):
        said = self.why("while True: os.write(1, b'\\xff' * 65536)", seconds=3)
        self.assertRegex(said, "^it said '\ufffd+…' where ready was due$")

    def test_only_the_client_that_is_named_counts(self):
        code = """
r, w = os.pipe()
pid = os.fork()
if pid == 0: os.read(r, 1); a = b"x" * (64 << 20); spin(0.2); os.write(1, b"done 7 0.25\\n"); sys.stdin.read(); os._exit(0)
b = b"x" * (128 << 20); say(f"ready {pid}"); input(); spin(0.4); os.write(w, b"x"); os.waitpid(pid, 0)
"""
        found = self.run_talker(SPIN + code)
        self.assertEqual((found.said_bytes, found.seconds), (7, 0.25))
        self.assertTrue(0.19 < found.cpu_seconds < 0.39, found)
        self.assertGreater(found.drain_cpu_seconds, 0.39)
        self.assertTrue(64 * MIB < found.peak_rss < 120 * MIB, found)

    def test_a_time_that_is_none(self):
        said = self.why(f"say('ready'); input(); say('done 1 soon'); {HOLD}")
        self.assertEqual(said, "it said that it took 'soon' where seconds were due")

    def test_fails_after_done(self):
        self.assertEqual(self.why("say('ready'); input(); say('done 1'); sys.exit('boom')"), "after done: exit status 1: boom")

    def test_reads_no_go(self):
        self.assertEqual(self.why("say('ready'); os.close(0); sys.exit(2)"), "exit status 2 (it had not said done)")


class Numbers(support.WithClients):
    def test_a_number_that_is_given_again(self):
        """Who had it before it began anew was none of the client's."""
        child = subprocess.Popen(["sleep", "1000"])
        try:
            found = tree.Tree(set())
            found.inside[child.pid], found.newest = False, 1 << 30
            self.assertEqual(found.pids(), [child.pid])
        finally:
            child.kill()
            child.wait()

    def test_who_was_not_killed_may_have_a_follower(self):
        with mock.patch.dict(tree.stuck, {os.getpid(): "1"}):
            self.assertFalse(tree.is_stuck(os.getpid()))


class Counter(support.WithClients):
    def test_bytes_over_loopback(self):
        code = """
import socket
a = socket.create_server(("127.0.0.1", 0)); b = socket.create_connection(a.getsockname()); c, _ = a.accept()
for _ in range(100): b.sendall(b"x" * 65536); n = 0
while n < 65536 * 100: n += len(c.recv(65536))
"""
        # Both ends in one process: as much as the sockets hold.
        code = code.replace("65536", "10000")
        found = self.run_client(code)
        self.assertGreaterEqual(found.fetched_bytes, 1_000_000)
        self.assertGreater(found.peak_bytes_per_s, 0)


if __name__ == "__main__":
    unittest.main()
