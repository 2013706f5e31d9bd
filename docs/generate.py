"""Write what is made from the tables in the code: manual pages, completions, the JSON Schema, tables in the docs.

python docs/generate.py            write what differs
python docs/generate.py --check    write nothing, exit 1 when something differs
python docs/generate.py --picture  also run the commands of the README's picture and draw it again
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))

from generators import manual, reference, shells  # noqa: E402


def generated(top: Path = TOP) -> dict[str, str]:
    """Path below the top folder -> what belongs there."""
    files = {f"man/man{name[-1]}/{name}": text for name, text in manual.pages().items()}
    files |= {f"completions/{name}": text for name, text in shells.completions().items()}
    files["docs/policy.schema.json"] = reference.schema()
    for name, tables in reference.TABLES.items():
        files[name] = reference.filled((top / name).read_text(encoding="utf-8"), tables)
    return files


def differing(top: Path = TOP) -> dict[str, str]:
    found = {}
    for name, text in generated(top).items():
        path = top / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found[name] = text
    return found


def stale(top: Path = TOP) -> list[str]:
    """Pages of commands that are no more."""
    pages = [str(path.relative_to(top)) for path in sorted((top / "man").rglob("*.[15]"))]
    return [name for name in pages if name not in generated(top)]


def main() -> int:
    if "--picture" in sys.argv[1:]:
        from generators import picture

        (TOP / picture.PLACE).write_text(picture.draw(picture.record()), encoding="utf-8")
    differ = differing()
    if "--check" in sys.argv[1:]:
        for name in differ:
            print(f"{name} is not what 'make docs' writes", file=sys.stderr)
        for name in stale():
            print(f"{name} is the page of nothing", file=sys.stderr)
        return 1 if differ or stale() else 0
    for name, text in differ.items():
        (TOP / name).parent.mkdir(parents=True, exist_ok=True)
        (TOP / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
    for name in stale():
        (TOP / name).unlink()
        print(f"removed {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
