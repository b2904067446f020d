"""The results in a terminal."""

# Of all cores, in the median of the rounds.
FOREIGN_BUSY = 0.1


def summary(done: dict) -> str:
    """A table for each case."""
    blocks = [table(case, [cell for cell in done["cells"] if cell["case"] == case["name"]]) for case in done["cases"]]
    failed = [cell for cell in done["cells"] if cell["state"] == "failed"]
    foot = [f"failed: {cell['case']}, {label(cell)}: {cell['reason']}" for cell in failed]
    return "\n\n".join([*blocks, *(["\n".join(foot)] if foot else []), how_sure(done["method"])])


def table(case: dict, cells: list[dict]) -> str:
    many = any(cell["summary"] and cell["summary"]["objects_per_s"] for cell in cells)
    # Not in results of before.
    counted = any(cell["summary"] and cell["summary"].get("requests") is not None for cell in cells)
    head = ["", "objects/s" if many else "GiB/s", "interval", "of the floor", "CPU ms/object" if many else "CPU s/GiB", "of the floor", "peak MiB", "fetched"]
    head += [*(["requests"] if counted else []), "bound by"]
    rows = [head, *(row(cell, many, counted) for cell in sorted(cells, key=speed, reverse=True))]
    return "\n".join([f"{case['name']}: {case['title']}", *aligned(rows)])


def speed(cell: dict) -> float:
    return cell["summary"]["gib_per_s"]["median"] if cell["summary"] else -1.0


def row(cell: dict, many: bool, counted: bool) -> list[str]:
    found = cell["summary"]
    if not found:
        return [label(cell), "failed"]
    rate, digits = (found["objects_per_s"], 0) if many else (found["gib_per_s"], 2)
    floor = found["of_floor"]
    return [
        label(cell),
        f"{rate['median']:.{digits}f}",
        f"{rate['low']:.{digits}f}..{rate['high']:.{digits}f}",
        f"{floor['throughput']['median']:.2f}" if floor else "",
        cost(cell, many),
        f"{floor['cpu']['median']:.2f}" if floor else "",
        f"{found['peak_rss_mib']:.0f}",
        f"{found['fetched_over_delivered']:.2f}",
        *([str(found.get("requests", ""))] if counted else []),
        ", ".join(filter(None, [found["bound"], disturbed(found)])),
    ]


def cost(cell: dict, many: bool) -> str:
    found = cell["summary"]
    if not many:
        return f"{found['cpu_s_per_gib']['median']:.3f}"
    seconds = sorted(turn["cpu_seconds"] / turn["seconds"] for turn in cell["rounds"])
    return f"{1000 * seconds[len(seconds) // 2] / found['objects_per_s']['median']:.3f}"


def disturbed(found: dict) -> str:
    """Others that took so much of the machine that the figures are not the client's alone."""
    busy = found["foreign_busy"]
    return f"others took {busy:.0%}" if busy > FOREIGN_BUSY else ""


def label(cell: dict) -> str:
    return f"{cell['peer']} {cell['settings']}"


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(rows[0]))]
    return [
        "  " + "  ".join(text.ljust(width) if at == 0 else text.rjust(width) for at, (text, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]


def how_sure(method: dict) -> str:
    if method["rounds"] == 1:
        return "One round: nothing says how sure these figures are."
    low, high = method["interval_ranks"]
    kind = "their range" if low == 1 else f"from the {low}. to the {high}."
    return f"Medians of {method['rounds']} rounds; intervals are {kind}, {method['confidence_reached']:.1%} sure."
