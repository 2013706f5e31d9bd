"""Where a thing was written: born with the rule, carried through merge, plan and denial to the report."""

from __future__ import annotations

from sbx.model.records import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A position in a policy file or an option. Lines and columns count from 1; 0 means "the whole file"."""

    file: str
    line: int = 0
    column: int = 0
    layer: str = ""  # baseline | shipped | system | user | workspace | option | sbx

    def __str__(self) -> str:
        if not self.line:
            return self.file
        if not self.column:
            return f"{self.file}:{self.line}"
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def place(self) -> str:
        """`file:line`, the short form for reports."""
        return f"{self.file}:{self.line}" if self.line else self.file
