"""python3 bench/lab: peers side by side, on this machine, in one command."""

import argparse
import os
import shutil
import sys
import textwrap
from pathlib import Path

if sys.version_info < (3, 11) or sys.platform != "linux":
    sys.exit("lab: needs Linux and Python 3.11 or newer; Debian's is /usr/bin/python3")

import catalogue as catalogues
import compare
import install
import page
import results
import session
from cases import SUITES
from catalogue import Catalogue
from sizes import parse_size
from errors import Interrupted, LabError, UsageError, end_on_signals

BENCH = Path(__file__).resolve().parents[1]
INTERRUPTED = 130

ABOUT = """\
Measures Flatout and its peers side by side, against origins on this machine.

  run      installs what is missing, runs the cases of a suite, writes results and a page
  list     what there is: suites, cases, peers, settings, and why each of them
  install  installs the peers, and runs nothing
  compare  two results: per cell better, worse or the same, and how surely
  page     makes the page of results anew
"""

RUN = """\
Each case first runs every client once and compares what it delivered, byte by byte; then come the rounds, in each of
which every client has its turn. A client that fails, hangs, takes too much memory or delivers wrong bytes is shown as
failed with the reason, and the others go on. Ctrl-C ends everything that was started and leaves nothing behind.
"""

EXAMPLES = """\
examples:
  python3 bench/lab run --suite quick
  python3 bench/lab run --suite quick --case 'large-*' --peer flatout --peer floor --rounds 11 --out /tmp/mine
  python3 bench/lab compare before.json bench/results/latest.json

Writes latest.json and latest.html into --out (bench/results): only when all of it was run. A run with --case, --peer or
--size and without --out writes partial.json and partial.html there instead.
exit codes: 0 done, 1 a cell failed or something was in the way, 4 usage, 130 interrupted
"""

COMPARE = """\
Ratios B/A with their 95 % intervals (Hodges and Lehmann; exact, after Mann and Whitney), of plain figures; and, by case, how
the floor itself moved, which is the machine. --by-floor compares ratios to the floor of the same round instead: that takes
out what the machine did to both and puts in how the floor scatters, which is mostly more.
exit codes: 0 flatout is nowhere worse; 1 it is (interval wholly beyond the tolerance; Holm over all its comparisons), a cell that
worked in A fails in B, or nothing could be compared; 4 usage
"""


def main() -> int:
    end_on_signals()
    arguments = parser().parse_args()
    try:
        return arguments.act(arguments)
    except (LabError, install.InstallError) as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"lab: interrupted ({error}): everything that was started has ended, nothing was written", file=sys.stderr)
        return INTERRUPTED


class Parser(argparse.ArgumentParser):
    """Usage has an exit code of its own."""

    def error(self, message: str):
        self.print_usage(sys.stderr)
        self.exit(UsageError.exit_code, f"lab: error: {message}\n")


def parser() -> Parser:
    top = Parser(prog="python3 bench/lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act, about: str, **more) -> Parser:
        made = commands.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter, **more)
        made.set_defaults(act=act)
        return made

    run = command("run", run_suite, "run a suite", description=RUN, epilog=EXAMPLES)
    run.add_argument("--suite", choices=SUITES, default="quick", help="; ".join(f"{name}: {each.about}" for name, each in SUITES.items()))
    run.add_argument("--case", action="append", default=[], metavar="GLOB", help="only cases whose name matches; may be repeated")
    run.add_argument("--peer", action="append", default=[], metavar="GLOB", help="only peers whose name matches; may be repeated")
    run.add_argument("--rounds", type=positive, metavar="N", help="instead of the suite's; under 6 no interval is 95 %% sure")
    run.add_argument("--size", type=size, metavar="SIZE", help="instead of the suite's, of cases of one object, as 512MiB")
    run.add_argument("--out", type=Path, metavar="DIR", help="where results go (bench/results)")
    run.add_argument("--flatout", type=Path, metavar="PATH", help="measure this program instead of building the sources for release")
    run.add_argument("--no-install", action="store_true", help="cells of peers that are not installed fail instead")
    run.add_argument("--wait", type=seconds, default=0.0, metavar="SECONDS", help="how long to wait for another lab on this machine (not at all)")

    command("list", show, "what there is, and why")

    setup = command("install", install_peers, "install the peers")
    setup.add_argument("--peer", action="append", default=[], metavar="GLOB", help="only peers whose name matches; may be repeated")

    judge = command("compare", compare_results, "compare two results", description=COMPARE)
    judge.add_argument("a", type=Path, metavar="A.json", help="results from before")
    judge.add_argument("b", type=Path, metavar="B.json", help="results from after")
    judge.add_argument("--json", action="store_true", help="write JSON instead of a table")
    judge.add_argument("--by-floor", action="store_true", help="compare ratios to the floor of the same round")
    judge.add_argument("--across-machines", action="store_true", help="compare results of different machines nevertheless")
    judge.add_argument("--tolerance", type=share, default=0.02, metavar="SHARE", help="smaller differences count as none (0.02)")

    render = command("page", make_page, "make the page of results anew")
    render.add_argument("results", type=Path, metavar="RESULTS.json")
    render.add_argument("out", type=Path, metavar="OUT.html")
    return top


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def size(text: str) -> int:
    try:
        found = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of 1 byte or more")
    return found


def seconds(text: str) -> float:
    if not text.replace(".", "", 1).isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return float(text)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1, as 0.02")
    return value


def run_suite(arguments) -> int:
    return session.run(
        catalogues.load(BENCH),
        session.Options(
            suite=arguments.suite,
            cases=arguments.case,
            peers=arguments.peer,
            rounds=arguments.rounds,
            size=arguments.size,
            out=arguments.out,
            flatout=arguments.flatout,
            no_install=arguments.no_install,
            wait_s=arguments.wait,
        ),
    )


def install_peers(arguments) -> int:
    """All that can be installed is; exit code 1 when one could not."""
    failed = 0
    for peer in chosen(catalogues.load(BENCH), arguments.peer):
        try:
            there = install.install(peer.folder, peer.install, install.default_cache())
            print(f"{peer.name} {there.version or peer.version}: {there.argv[-1]}", flush=True)
        except install.InstallError as error:
            failed += 1
            print(f"lab: error: {error}", file=sys.stderr)
    return 1 if failed else 0


def chosen(catalogue: Catalogue, globs: list[str]) -> list:
    found = [peer for peer in catalogue.peers.values() if catalogues.matches(peer.name, globs)]
    if not found:
        raise UsageError(f"no peer matches {' '.join(globs)}; there are: {', '.join(catalogue.peers)}")
    return found


def show(_) -> int:
    catalogue = catalogues.load(BENCH)
    print("suites")
    for name, suite in SUITES.items():
        told(f"  {name:<8}", suite.about)
    print("\ncases")
    for case in catalogue.cases.values():
        told(f"  {case.name}", f"{case.title} · {case.origin} · {', '.join(case.suites)} · {', '.join(case.peers)}")
        told("      ", case.why)
    print("\npeers")
    for peer in catalogue.peers.values():
        told(f"  {peer.name} {peer.version}".rstrip(), f"{peer.about} · {', '.join('.'.join(pair) for pair in peer.calls)}")
        for settings in peer.settings.values():
            told(f"      {settings.name}:", f"{' '.join(settings.args) or 'nothing set'} · {settings.why or peer.default or 'as it comes'}")
    return 0


def told(start: str, text: str):
    width = max(60, shutil.get_terminal_size((120, 24)).columns)
    print(textwrap.fill(f"{start} {text}", width, subsequent_indent=" " * 10, break_long_words=False, break_on_hyphens=False))


def compare_results(arguments) -> int:
    return compare.main(arguments.a, arguments.b, arguments.json, arguments.across_machines, arguments.tolerance, arguments.by_floor)


def make_page(arguments) -> int:
    results.write(arguments.out, page.render(results.read(arguments.results)))
    print(arguments.out)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # Whoever read, as head does, has enough; nor is there anybody to flush the rest to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
