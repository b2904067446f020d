"""The page: the template that flatout carries, with the results in it."""

import json
from pathlib import Path

from errors import LabError

TEMPLATE = Path(__file__).resolve().parents[2] / "crates/cli/src/bench/page.html"
PLACE = "/*DATA*/null/*END*/"


def render(results: dict, template: Path = TEMPLATE) -> str:
    """One file that needs nothing else."""
    try:
        text = template.read_text()
    except OSError as error:
        raise LabError(f"{template}: {error.strerror}: the page's template belongs to the sources") from None
    if text.count(PLACE) != 1:
        raise LabError(f"{template}: must hold {PLACE} once, not {text.count(PLACE)} times")
    # A `</script>` in a peer's words would end the data.
    data = json.dumps(results, ensure_ascii=False).replace("<", "\\u003c")
    return text.replace(PLACE, data)
