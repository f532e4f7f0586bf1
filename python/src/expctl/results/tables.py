"""Small tables for notebooks: markdown and HTML of the same cells."""

import html
from typing import List, Optional, Sequence


class Shown:
    """Something that a notebook shows as a table."""

    def _cells(self) -> List[List[str]]:
        """The header, and a list of cells for each row."""
        raise NotImplementedError

    def _repr_markdown_(self) -> str:
        header, *rows = self._cells()
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def _repr_html_(self) -> str:
        header, *rows = self._cells()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def figure(value: Optional[float], ends: Optional[Sequence[Optional[float]]] = None) -> str:
    """A rate with four digits and the ends of its interval; a dash where there is none."""
    if value is None and ends is not None and None not in ends:
        return f"{ends[0]:.4g} to {ends[1]:.4g}"
    if value is None:
        return "–"
    if ends is None or None in ends:
        return f"{value:.4g}"
    return f"{value:.4g} [{ends[0]:.4g}–{ends[1]:.4g}]"
