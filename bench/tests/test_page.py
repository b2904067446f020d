"""The page of the lab and of a sweep, opened in headless Chromium.

python3 -m unittest bench/tests/test_page.py                                        needs target/debug/flatout and
                                                                                    the smoke's page, as `make test` has
LAB_PAGE=bench/results/latest.html python3 -m unittest bench/tests/test_page.py     pages that exist, too
"""

import contextlib
import copy
import decimal
import html
import html.parser
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TEMPLATE = ROOT / "crates/cli/src/bench/page.html"
FLATOUT = Path(os.environ.get("LAB_FLATOUT", ROOT / "target/debug/flatout")).resolve()
SMOKE = ROOT / "target/lab-smoke/latest.html"
PLACE = "/*DATA*/null/*END*/"
LIMIT_S = 120

# Would leave a trace if any string of the data were parsed as markup.
HOSTILE = """</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"'`${1}&amp;<b>"""


def sample(kind):
    return json.loads((HERE / f"sample_{kind}.json").read_text(encoding="utf-8"))


def filled(data):
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.replace(PLACE, json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))


# ---------------------------------------------------------------- Chromium


def chromium(*arguments, light=True):
    """Standard output of one run, bounded in time; its profile and its processes do not outlive it."""
    program = shutil.which("chromium")
    if program is None:
        raise AssertionError("chromium is missing, with which the pages are opened: sudo make deps")
    with tempfile.TemporaryDirectory(prefix="flatout-chromium-", ignore_cleanup_errors=True) as profile:
        scheme = f"--blink-settings=preferredColorScheme={int(light)}"
        # Without the sandbox because it runs as root here and in containers; what it opens is ours and loads nothing.
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-breakpad",
            "--hide-scrollbars",
            "--window-size=1280,1600",
            f"--user-data-dir={profile}",
            scheme,
            *arguments,
        ]
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": profile,
            "LANG": "C.UTF-8",
            "TMPDIR": profile,
        }
        running = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, errors = running.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"chromium was not done with {arguments[-1]} after {LIMIT_S} s") from None
        finally:
            end(running, profile)
        if running.returncode != 0:
            raise AssertionError(f"chromium failed with {running.returncode}: {errors.decode(errors='replace')[-500:]}")
        return out.decode("utf-8")


def end(running, profile):
    """Ends the process group, and what left it but still works in the profile."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    running.communicate()
    for process in of_profile(profile):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def of_profile(profile):
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if profile.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


class Dom(html.parser.HTMLParser):
    """What a dumped page shows: its text, its elements by class, by id and by tag."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.words, self.classes, self.ids, self.tags, self.unseen, self.data = [], [], {}, [], None, ""
        self.feed(text)
        self.text = squeezed(" ".join(self.words))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.classes.append((attributes.get("class") or "").split())
        if attributes.get("id"):
            self.ids[attributes["id"]] = len(self.words)
        if tag in ("script", "style", "noscript"):
            self.unseen = "data" if attributes.get("id") == "data" else tag

    def handle_endtag(self, tag):
        if tag in ("script", "style", "noscript"):
            self.unseen = None

    def handle_data(self, data):
        if self.unseen == "data":
            self.data += data
        elif self.unseen is None:
            self.words.append(data)

    def count(self, name):
        return sum(name in classes and "key" not in classes for classes in self.classes)


def squeezed(text):
    return re.sub(r"\s+", " ", str(text)).strip()


def opened(path):
    return Dom(chromium("--dump-dom", Path(path).resolve().as_uri()))


# ---------------------------------------------------------------- what every page must hold


def check_page(path, expected_strings=()):
    """Opens a finished page of either kind and compares what it shows with the JSON inside it."""
    if not Path(path).is_file():
        raise AssertionError(f"{path}: there is no such page")
    dom = opened(path)
    if "page-error" in dom.ids:
        raise AssertionError(f"{path}: {squeezed(' '.join(dom.words[dom.ids['page-error']:]))[:600]}")
    data = json.loads(dom.data)
    strings, marks = of_lab(data) if data["kind"] == "lab" else of_sweep(data)
    for wanted in [*strings, *expected_strings]:
        if squeezed(wanted) not in dom.text:
            raise AssertionError(f"{path}: the page does not show {wanted!r}")
    for name, expected in marks.items():
        if dom.count(name) != expected:
            raise AssertionError(f"{path}: {dom.count(name)} marks of class {name}, expected {expected}")
    return dom


def of_lab(data):
    cells = data["cells"]
    ok = [cell for cell in cells if cell["state"] == "ok"]
    swept = [cell for cell in ok if cell["parallel"] is not None]
    strings = [case["title"] for case in data["cases"]] + [case["why"] for case in data["cases"]]
    strings += [peer["name"] for peer in data["peers"]] + [cell["peer"] for cell in cells]
    strings += [cell["reason"] for cell in cells if cell["state"] == "failed"] + [
        data["command"],
        data["machine"]["cpu"],
    ]
    return strings, {"bar": len(ok) - len(swept), "heat": len(swept)}


MEDIANS = ("seconds", "gbit_avg", "gbit_peak", "gib_per_s", "cpu_s_per_gib", "peak_rss_mib")


def figure(value):
    """As the page writes it: three digits that mean something."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    decimals = max(0, min(6, 2 - size))
    # Halves are rounded up, those of the digits as written, as in the browser.
    exact = decimal.Decimal(repr(value)).quantize(decimal.Decimal(1).scaleb(-decimals), decimal.ROUND_HALF_UP)
    return "<0.0001" if size < -4 else f"{exact:,}"


def of_sweep(data):
    cells = data["cells"]
    ok = [cell for cell in cells if cell["state"] == "ok"]
    grid = all(len({cell[key] for cell in cells}) > 1 for key in ("parallel", "part_bytes"))
    strings = [cell["reason"] for cell in cells if cell["state"] == "failed"] + [
        data["source"],
        data["command"],
        data["machine"]["cpu"],
    ]
    for cell in ok:
        # Each figure in a cell of its own: a field by another name would leave a dash.
        strings += [figure(cell["medians"][key]) for key in MEDIANS]
    fastest = data["fastest"]
    strings += [f"Fastest: {fastest['parallel']} × "] if fastest else ["No combination has figures."]
    if data["repeat"] == 1:
        strings.append("One run each: small differences mean nothing.")
    if data["interrupted"]:
        strings.append("Interrupted: the sweep was stopped before its end.")
    return strings, {
        "bar": len(ok),
        "heat": len(ok) if grid else 0,
        "curve": sum(len(cell["samples"]) > 1 for cell in ok),
    }


# ---------------------------------------------------------------- several pages in one run of Chromium


def probed(pages, script, width=1180, light=True):
    """Opens each page in a frame of that width, runs the body of a function in it, returns what it returned by name."""
    def frame(name, page):
        page = page.replace("</body>", PROBE % script + "</body>")
        return f'<iframe name="{html.escape(name)}" width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>'

    frames = "".join(frame(name, page) for name, page in pages.items())
    with tempfile.TemporaryDirectory(prefix="flatout-page-") as folder:
        wrapper = Path(folder, "frames.html")
        head = '<!doctype html><meta charset="utf-8">'
        wrapper.write_text(f"{head}<body>{frames}{COLLECT}", encoding="utf-8")
        out = chromium("--dump-dom", wrapper.as_uri(), light=light)
    found = re.search(r'<pre id="probes">(.*?)</pre>', out, re.DOTALL)
    return json.loads(html.unescape(found.group(1)))


PROBE = """<script>
try { window.probe = (() => { %s })(); } catch (error) { window.probe = "probe failed: " + error.stack; }
</script>"""
COLLECT = """<pre id="probes"></pre><script>
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const error = frame.contentDocument.getElementById("page-error");
    found[frame.name] = { error: error && error.textContent, probe: frame.contentWindow.probe };
  }
  document.getElementById("probes").textContent = JSON.stringify(found);
});
</script>"""


def hostile(value, key=None):
    """The same data with every string that is not a keyword made hostile."""
    if isinstance(value, dict):
        return {name: hostile(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [hostile(entry, key) for entry in value]
    keyword = key in ("kind", "state", "work", "bound") or not isinstance(value, str)
    return value if keyword else value + HOSTILE


def changed(data, change):
    data = copy.deepcopy(data)
    change(data)
    return data


def odd_labs():
    """Results that no run should make, and some that a run may."""

    def each_cell(**fields):
        return lambda data: [cell.update(copy.deepcopy(fields)) for cell in data["cells"]]

    def without(*keys):
        return lambda data: [data.pop(key) for key in keys]

    def many_cases(data):
        first = data["cases"][0]
        data["cases"] = [{**first, "name": f"case-{i}", "title": f"Case {i}"} for i in range(60)]
        data["cells"] = [{**data["cells"][1], "case": f"case-{i}"} for i in range(60)]

    def long_names(data):
        data["cases"][0]["title"] = "long" * 200
        for cell in data["cells"]:
            cell["peer"], cell["settings"] = cell["peer"] + "x" * 300, "y" * 300

    def poor_rounds(data):
        data["method"]["rounds"] = 2
        for cell in data["cells"]:
            cell["rounds"] = cell["rounds"][:2]

    lab = sample("lab")
    return {
        name: changed(lab, change)
        for name, change in {
            "null summaries": each_cell(summary=None),
            "empty summaries": each_cell(summary={}),
            "zero rounds": each_cell(rounds=[]),
            "null rounds": each_cell(rounds=None),
            "one cell": lambda data: data.update(cells=data["cells"][:1]),
            "no cell": lambda data: data.update(cells=[]),
            "no floor": lambda data: [case.update(floor=None) for case in data["cases"]],
            "missing floor": lambda data: data.update(
                cells=[cell for cell in data["cells"] if cell["peer"] != "floor"]
            ),
            "no case described": lambda data: data.update(cases=[]),
            "no flatout": lambda data: data.update(cells=[cell for cell in data["cells"] if cell["peer"] != "flatout"]),
            "all failed": each_cell(state="failed", reason=None, summary=None, rounds=[]),
            "two rounds": poor_rounds,
            "many cases": many_cases,
            "long names": long_names,
            "nothing around": without(
                "machine", "method", "flatout", "peers", "origins", "suite", "started", "command", "seconds"
            ),
            "only its kind": lambda data: [data.pop(key) for key in list(data) if key != "kind"],
            "prototype": lambda data: [cell.update(case="__proto__", peer="constructor") for cell in data["cells"]],
            "wrong types": lambda data: data.update(
                cases="none",
                cells=[{"case": 7, "peer": None, "state": "ok", "summary": "fast", "rounds": {"a": 1}, "command": 3}],
                peers={},
                origins=4,
                machine=[],
            ),
        }.items()
    }


def odd_sweeps():
    sweep = sample("sweep")
    return {
        name: changed(sweep, change)
        for name, change in {
            "no combination": lambda data: data.update(cells=[]),
            "one combination": lambda data: data.update(cells=data["cells"][:1]),
            "all failed sweep": lambda data: [
                cell.update(state="failed", reason="no", runs=[], median_run=None, samples=[], parts=[])
                for cell in data["cells"]
            ],
            "no runs": lambda data: [cell.update(runs=[], median_run=None) for cell in data["cells"]],
            "no samples": lambda data: [cell.update(samples=[]) for cell in data["cells"]],
            "no parts": lambda data: [cell.update(parts=[]) for cell in data["cells"]],
            "only its kind of sweep": lambda data: [data.pop(key) for key in list(data) if key != "kind"],
            "nulls in parts": lambda data: [
                part.update(start_s=None, first_byte_s=None, end_s=None, bytes=None, address=None, connection=None)
                for cell in data["cells"]
                for part in cell["parts"]
            ],
            "instant": lambda data: [cell.update(samples=[[0, 0], [0, 5]]) for cell in data["cells"]],
        }.items()
    }


def from_afar():
    """The first case, but there crt is twice as fast as Flatout's default, and Flatout's 32-in-flight ten times."""
    data = sample("lab")
    case = data["cases"][0]
    cells = [cell for cell in data["cells"] if cell["case"] == case["name"] and cell["peer"] in ("flatout", "crt", "s5cmd")]
    ours, crt = (next(cell for cell in cells if cell["peer"] == peer) for peer in ("flatout", "crt"))
    other = copy.deepcopy(ours)
    other["settings"] = "32-in-flight"
    scaled(crt, 0.25)
    scaled(other, 0.02)
    return {**data, "cases": [case], "cells": [*cells, other]}


def scaled(cell, factor):
    """Takes that much of its time, and of its CPU time."""
    for key in ("seconds", "cpu_seconds"):
        for entry in cell["rounds"]:
            entry[key] *= factor
    for key in ("gib_per_s", "cpu_s_per_gib"):
        power = -1 if key == "gib_per_s" else 1
        cell["summary"][key] = {name: value * factor**power for name, value in cell["summary"][key].items()}


def failed(data, *peers):
    for cell in data["cells"]:
        if cell["peer"] in peers:
            cell.update(state="failed", reason="it broke", summary=None)
    return data


def large_sweep():
    """4,000 parts on 64 connections, as many as a report holds."""
    data = sample("sweep")
    cell = next(cell for cell in data["cells"] if cell["state"] == "ok")
    cell["parts"] = [
        {
            "index": i,
            "connection": i % 64,
            "address": "127.0.0.1:9000",
            "start_s": i // 64 * 0.1,
            "first_byte_s": i // 64 * 0.1 + 0.02,
            "end_s": i // 64 * 0.1 + 0.09,
            "bytes": 1 << 20,
            "attempts": 1 + (i % 500 == 0),
        }
        for i in range(4000)
    ]
    cell["parts_left_out"] = 96
    data["cells"] = [cell]
    return data


def contrast(one, other):
    """WCAG's ratio of two colours as #rrggbb."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


# ---------------------------------------------------------------- the program


def bare(folder):
    """Nothing of whoever runs the tests, no configuration of theirs."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C.UTF-8"}


@contextlib.contextmanager
def served(folder):
    """An origin with an object /bench/k of 8 MiB, gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [FLATOUT, "serve", "--synthetic", "bench/k=8MiB", "--no-auth", "--listen", address]
    with subprocess.Popen(command, env=bare(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as origin:
        try:
            deadline = time.monotonic() + 30
            while not answers(address):
                if origin.poll() is not None or time.monotonic() > deadline:
                    origin.kill()
                    raise AssertionError(f"flatout serve: no answer at {address}: {origin.stdout.read().decode()}")
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            origin.kill()


def answers(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    except OSError:
        return False


# ---------------------------------------------------------------- tests


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="flatout-page-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def page(self, data, name="page.html"):
        path = self.folder / name
        path.write_text(filled(data), encoding="utf-8")
        return path

    def sound(self, found, but=()):
        for name, frame in found.items():
            if name not in but:
                self.assertIsNone(frame["error"], name)
            self.assertFalse(str(frame["probe"]).startswith("probe failed"), f"{name}: {frame['probe']}")

    def test_template_loads_nothing(self):
        template = TEMPLATE.read_text(encoding="utf-8")
        self.assertEqual(template.count(PLACE), 1)
        self.assertEqual(set(re.findall(r"https?://[^\s\"']+", template)), {"http://www.w3.org/2000/svg"})
        for foreign in (
            r"<script[^>]+src",
            r"<link\b",
            r"@import",
            r"url\((?!#)",
            r"\bfetch\(",
            r"XMLHttpRequest",
            r"innerHTML",
            r"insertAdjacentHTML",
            r"document\.write",
        ):
            self.assertIsNone(re.search(foreign, template), foreign)

    def test_lab_shows_every_cell(self):
        said = [
            "Flatout faster",
            "crt faster",
            "origin-bound",
            "With nothing tuned Flatout is faster than every other peer measured here in 1 of 3 cases",
            "With each client's fastest settings, chosen after the fact from these same rounds, Flatout is faster than every other peer measured here in 2 of 4 cases",
            "another peer is faster in 1 (crt in “Many small objects”)",
            "1 too close to call",
            "3 cells failed: rclone default in “One large object to a file, through TLS”",
            "The start of Flatout counts, crt's does not.",
            "Flatout is timed as a command where the bytes go to nowhere and file.",
            "of 7 rounds the lowest to the highest, which holds the median with 98.4 % confidence",
            "Commands and rounds of each cell",
            "floor 1.52",
        ]
        dom = check_page(self.page(sample("lab")), said)
        # A mark for each cell in the scatters, as in the bars and heat tables.
        self.assertEqual(dom.count("point"), dom.count("bar") + dom.count("heat"))

    def test_sweep_shows_every_combination(self):
        dom = check_page(
            self.page(sample("sweep")),
            ["Fastest: 64 × 8 MiB", "★ fastest", "Throughput over time", "Parts by connection"],
        )
        data = sample("sweep")
        best = next(cell for cell in data["cells"] if data["fastest"].items() <= cell.items())
        drawn = {
            attributes["class"]: int(attributes["data-parts"])
            for _, attributes in dom.tags
            if "data-parts" in attributes
        }
        self.assertEqual(drawn["parts-wait"], len(best["parts"]))
        self.assertEqual(drawn["parts-flow"] + drawn.get("parts-retried", 0), len(best["parts"]))

    def test_given_pages(self):
        for path in filter(None, os.environ.get("LAB_PAGE", "").split(os.pathsep)):
            check_page(path)

    def test_page_of_the_smoke(self):
        if not SMOKE.is_file():
            self.fail(f"{SMOKE}: not there, though `make test` makes it first: python3 bench/lab run --suite smoke --flatout target/debug/flatout --out target/lab-smoke")
        check_page(SMOKE)

    def test_page_of_a_sweep_by_the_program(self):
        if not os.access(FLATOUT, os.X_OK):
            self.fail(f"{FLATOUT}: not built: cargo build -p flatout-cli (or name one with LAB_FLATOUT)")
        for repeat in ("1", "2"):
            path = self.folder / f"sweep-{repeat}.html"
            with served(self.folder) as endpoint:
                done = subprocess.run(
                    [FLATOUT, "bench", "sweep", f"{endpoint}/bench/k", "--parallel", "1,2", "--part-size", "1MiB,4MiB"]
                    + ["--repeat", repeat, "--report", path],
                    env=bare(self.folder),
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                )
            self.assertEqual(done.returncode, 0, done.stderr)
            fastest = re.search(r"fastest: --parallel (\d+) --part-size (\d+)", done.stdout)
            self.assertIsNotNone(fastest, done.stdout)
            dom = check_page(path, [f"Fastest: {fastest[1]} × {fastest[2]} MiB"])
            self.assertEqual(dom.count("heat"), 4)

    def test_defaults_are_judged_first_and_every_peer_counts(self):
        from_far = from_afar()
        pages = {
            "afar": from_far,
            "peer failed": failed(from_afar(), "crt"),
            "all peers failed": failed(from_afar(), "crt", "s5cmd"),
            "flatout failed": failed(from_afar(), "flatout"),
        }
        found = probed(
            {name: filled(data) for name, data in pages.items()},
            "return document.getElementById('summary').textContent",
        )
        self.sound(found)
        title = from_far["cases"][0]["title"]
        for name, *sentences in [
            (
                "afar",
                f"With nothing tuned Flatout is faster than every other peer measured here in 0 of 1 case; another peer is faster in 1 (crt in “{title}”).",
                "Flatout is faster than every other peer measured here in 1 of 1 case (in 1 of them the closest peer is timed by another clock).",
                f"Flatout's own fastest settings are not its defaults in 1 case: 32-in-flight in “{title}”.",
                "32-in-flight ",
            ),
            (
                "peer failed",
                "in 1 of 1 case (in 1 of them of those that ran: others failed).",
                f"1 cell failed: crt default in “{title}”.",
            ),
            ("all peers failed", f"in 0 of 1 case; every other peer failed in 1 ({title}).", "3 cells failed"),
            ("flatout failed", f"in 0 of 1 case; Flatout failed in 1 ({title}).", "2 cells failed"),
        ]:
            for sentence in sentences:
                self.assertIn(sentence, found[name]["probe"], name)

    def test_sweep_says_what_it_rests_on(self):
        once = changed(sample("sweep"), lambda data: data.update(repeat=1, interrupted=True))
        as_fast = changed(sample("sweep"), lambda data: data.update(as_fast=[{"parallel": 64, "part_bytes": 2 << 20}]))
        check_page(self.page(once), ["Peak is the best 100 ms of a run."])
        check_page(self.page(as_fast), ["As fast in some of their runs: 64 × 2 MiB."])

    def test_short_run_has_a_curve(self):
        short = changed(sample("sweep"), lambda data: [
            cell.update(samples=[[0, 0], [0.01, 1 << 20], [0.015, 8 << 20]]) for cell in data["cells"]
        ])
        found = probed(
            {"short": filled(short)},
            "return [...document.querySelectorAll('.curve')].map(curve => curve.getTotalLength())",
        )
        self.sound(found)
        self.assertEqual(len(found["short"]["probe"]), 5)
        for length in found["short"]["probe"]:
            self.assertGreater(length, 100)

    def test_huge_numbers_do_not_hang(self):
        rounds = changed(sample("lab"), lambda data: data["method"].update(rounds=1_000_000_000))
        check_page(self.page(rounds))

    def test_without_data_it_says_so(self):
        found = probed(
            {
                "template": TEMPLATE.read_text(encoding="utf-8"),
                "null": filled(None),
                "other": filled({"kind": "x<b>"}),
                "broken": TEMPLATE.read_text(encoding="utf-8").replace(PLACE, "{"),
            },
            "return document.getElementById('page').textContent",
        )
        self.sound(found, but=("other", "broken"))
        self.assertIn("holds no data", found["template"]["probe"])
        self.assertIn("holds no data", found["null"]["probe"])
        self.assertIn("this one is of kind x<b>", found["other"]["error"])
        self.assertIn("not JSON", found["broken"]["error"])

    def test_hostile_strings_are_text(self):
        pages = {kind: filled(hostile(sample(kind))) for kind in ("lab", "sweep")}
        found = probed(
            pages,
            """
            return { hacked: window.hacked === 1, foreign: document.querySelectorAll('img, b b, main script').length,
              shown: document.body.textContent.includes('onerror=') }""",
        )
        self.sound(found)
        for name, frame in found.items():
            self.assertEqual(frame["probe"], {"hacked": False, "foreign": 0, "shown": True}, name)
        for kind in pages:
            check_page(self.page(hostile(sample(kind))))

    def test_odd_data_is_drawn(self):
        odd = {**odd_labs(), **odd_sweeps()}
        found = probed(
            {name: filled(data) for name, data in odd.items()},
            """
            return { text: document.getElementById('page').innerText,
              wrong: [...document.querySelectorAll('svg *')].some(mark =>
                [...mark.attributes].some(attribute => /NaN|Infinity|undefined/.test(attribute.value))) }""",
        )
        self.assertEqual(set(found), set(odd))
        self.sound(found)
        for name, frame in found.items():
            self.assertFalse(frame["probe"]["wrong"], f"{name}: a mark with NaN or Infinity")
            self.assertNotRegex(frame["probe"]["text"], r"NaN|Infinity|undefined|\[object|\bnull\b", name)
        self.assertIn("none of 4 cases has enough rounds", found["two rounds"]["probe"]["text"])
        self.assertIn("Flatout was not run here", found["no flatout"]["probe"]["text"])
        self.assertIn("Flatout failed here", found["all failed"]["probe"]["text"])

    def test_fits_its_width(self):
        pages = {
            "lab": filled(sample("lab")),
            "sweep": filled(sample("sweep")),
            "long": filled(odd_labs()["long names"]),
            "hostile": filled(hostile(sample("lab"))),
        }
        widest = """
            return [document.documentElement.scrollWidth, [...document.querySelectorAll('main *')]
              .filter(node => node.getBoundingClientRect().right > innerWidth + 1 &&
                !node.closest('.scroll, svg')).slice(0, 3).map(node => node.outerHTML.slice(0, 90))]"""
        for width in (390, 800, 1180):
            found = probed(pages, widest, width=width)
            self.sound(found)
            for name, frame in found.items():
                self.assertLessEqual(frame["probe"][0], width, f"{name}: scrolls sideways, for {frame['probe'][1]}")

    def test_sorts_and_filters(self):
        found = probed(
            {"lab": filled(sample("lab"))},
            """
            const rows = () => [...document.querySelectorAll('#all tbody tr')].filter(row => !row.hidden);
            const heads = [...document.querySelectorAll('#all thead th')];
            const head = heads.find(head => head.textContent === 'GiB/s'), at = heads.indexOf(head);
            const whole = () => rows().filter(row => row.cells.length > at + 1);
            const speeds = () => whole().map(row => parseFloat(row.cells[at].textContent));
            head.querySelector('button').click();
            const down = [head.getAttribute('aria-sort'), speeds(), rows().at(-1).textContent];
            head.querySelector('button').click();
            const up = [head.getAttribute('aria-sort'), speeds(), rows().at(-1).textContent];
            const select = document.querySelectorAll('#all select')[1];
            select.value = [...select.options].find(option => option.textContent === 'crt').value;
            select.dispatchEvent(new Event('change'));
            return { down, up, crt: rows().map(row => row.cells[1].textContent),
              said: document.querySelector('#all output').textContent };
            """,
        )
        self.sound(found)
        probe = found["lab"]["probe"]
        for way, direction, reverse in (("down", "descending", True), ("up", "ascending", False)):
            state, speeds, last = probe[way]
            self.assertEqual((state, speeds), (direction, sorted(speeds, reverse=reverse)))
            self.assertIn("failed", last)
        self.assertEqual(set(probe["crt"]), {"crt"})
        self.assertEqual(probe["said"], f"{len(probe['crt'])} of {len(sample('lab')['cells'])} cells")

    def test_parts_by_keyboard_and_by_combination(self):
        found = probed(
            {"small": filled(sample("sweep")), "large": filled(large_sweep())},
            """
            const chart = () => document.querySelector('#parts .chart svg'),
              readout = () => document.querySelector('.readout').textContent, words = [];
            for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown']) {
              chart().dispatchEvent(new KeyboardEvent('keydown', { key }));
              words.push(readout());
            }
            const parts = () => [...document.querySelectorAll('[data-parts]')].reduce((sum, mark) =>
              sum + (mark.classList.contains('parts-wait') ? Number(mark.dataset.parts) : 0), 0);
            const select = document.querySelector('#parts select');
            const each = [...select.options].map(option => {
              select.value = option.value;
              select.dispatchEvent(new Event('change'));
              return parts();
            });
            return { words, each, elements: chart().querySelectorAll('*').length };""",
        )
        self.sound(found)
        self.assertEqual(
            found["small"]["probe"]["each"], [len(cell["parts"]) for cell in sample("sweep")["cells"] if cell["parts"]]
        )
        self.assertEqual(found["large"]["probe"]["each"], [4000])
        self.assertLess(found["large"]["probe"]["elements"], 300, "an element a part is slow")
        for words in found["large"]["probe"]["words"]:
            self.assertRegex(words, r"^Part \d+ on connection \d+ of 64")
        self.assertEqual(len(set(found["large"]["probe"]["words"])), 3)

    def test_intervals(self):
        found = probed(
            {"null": filled(None)},
            """
            const of = (n, confidence) => {
              const found = interval(Array.from({ length: n }, (_, i) => n - i), confidence);
              return [found.low, found.median, found.high, Math.round(found.coverage * 1e4) / 1e4, found.whole];
            };
            const rounds = seconds => ({ rounds: seconds.map((value, i) => ({ round: i + 1, seconds: value })) });
            return { intervals: [1, 2, 5, 7, 9, 20].map(n => of(n, .95)), none: interval([], .95),
              paired: paired(rounds([1, 2, 4]), rounds([2, 3, 4, 9]), round => round.seconds, .95) };
            """,
        )
        self.sound(found)
        probe = found["null"]["probe"]
        # Of 9 values the 2nd and 8th hold the median with 96.1 %, of 20 the 6th and 15th with 95.9 %; of 5 not even
        # the range holds 95 %.
        self.assertEqual(
            probe["intervals"],
            [
                [1, 1, 1, 0, True],
                [1, 1.5, 2, 0.5, True],
                [1, 3, 5, 0.9375, True],
                [1, 4, 7, 0.9844, True],
                [2, 5, 8, 0.9609, False],
                [6, 10.5, 15, 0.9586, False],
            ],
        )
        self.assertIsNone(probe["none"])
        self.assertEqual([probe["paired"][key] for key in ("low", "median", "high", "n")], [1, 1.5, 2, 3])

    def test_light_and_dark_are_readable(self):
        names = [
            "paper",
            "ink",
            "soft",
            "flatout",
            "flatout-ink",
            "flatout-tint",
            "peer",
            "rival",
            "rival-tint",
            "bad",
            "bad-tint",
        ]
        grounds = []
        for light in (True, False):
            found = probed(
                {"lab": filled(sample("lab"))},
                f"""
                const style = getComputedStyle(document.documentElement);
                return Object.fromEntries({json.dumps(names)}.map(name =>
                  [name, style.getPropertyValue('--' + name).trim()]))""",
                light=light,
            )
            self.sound(found)
            colours = found["lab"]["probe"]
            grounds.append(colours["paper"])
            for text, ground, least in [
                ("ink", "paper", 7),
                ("soft", "paper", 4.5),
                ("soft", "flatout-tint", 4.5),
                ("flatout-ink", "flatout-tint", 4.5),
                ("rival", "paper", 4.5),
                ("bad", "paper", 4.5),
                ("bad", "bad-tint", 4.5),
                ("flatout", "paper", 3),
                ("peer", "paper", 3),
                ("flatout", "flatout-tint", 3),
                ("rival", "rival-tint", 3),
            ]:
                self.assertGreaterEqual(
                    contrast(colours[text], colours[ground]),
                    least,
                    f"{text} on {ground}, {'light' if light else 'dark'}: {colours[text]} on {colours[ground]}",
                )
        self.assertGreater(contrast(*grounds), 10, "dark is not dark")

    def test_prints_and_is_pictured(self):
        for kind, pages in (("lab", 4), ("sweep", 2)):
            path = self.page(sample(kind), f"{kind}.html")
            paper, picture = self.folder / f"{kind}.pdf", self.folder / f"{kind}.png"
            chromium("--no-pdf-header-footer", f"--print-to-pdf={paper}", path.as_uri(), light=False)
            self.assertGreaterEqual(len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())), pages, kind)
            chromium(f"--screenshot={picture}", path.as_uri())
            self.assertGreater(picture.stat().st_size, 30_000, kind)

    def test_chromium_leaves_nothing(self):
        before = set(Path(tempfile.gettempdir()).glob("flatout-chromium-*"))
        chromium("--dump-dom", self.page(None).as_uri())
        self.assertEqual(set(Path(tempfile.gettempdir()).glob("flatout-chromium-*")) - before, set())
        self.assertEqual(of_profile(str(Path(tempfile.gettempdir(), "flatout-chromium-"))), [])


if __name__ == "__main__":
    unittest.main()
