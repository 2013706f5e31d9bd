"""What a row gets: where it may write, the installed command, the peers, and how thorough to be."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.record import Check, Section
from harness.timing import DEADLINE_S, Way, WayFailed, interleave, run_once

OUTPUT_DEADLINE_S = 900


def last_words(argv: list[str], cwd: Path, environ: Mapping[str, str]) -> str:
    """What a command that failed says when it is asked again."""
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S
        )
    except subprocess.TimeoutExpired:
        return "no word"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else "no word"


class RowSkipped(Exception):
    """The row cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Bench:
    place: Path  # private to this measurement, writable
    sbx: str  # the installed console command
    python: str  # the interpreter that it was installed for
    quick: bool = False
    peers: dict[str, str] = field(default_factory=dict)  # name -> program, for what is not on PATH
    missing: dict[str, str] = field(default_factory=dict)  # name -> why there is no such peer
    prefix: tuple[str, ...] = ()  # makes a command an ordinary user's; empty when this process is one
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def rounds(self, thorough: int, quick: int = 3) -> int:
        return quick if self.quick else thorough

    def folder(self, name: str) -> Path:
        made = self.place / "work" / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def way(
        self,
        argv: list[str],
        cwd: Path,
        *,
        expect: tuple[int, ...] = (0,),
        environ: Mapping[str, str] | None = None,
        before: Way | None = None,
        scale: float = 1e3,
    ) -> Way:
        """A command as something to time: milliseconds unless `scale` says otherwise. `before` is not timed."""
        variables = self.environ if environ is None else {**self.environ, **environ}

        def measured() -> float:
            if before is not None:
                before()
            try:
                return run_once(argv, cwd=cwd, environ=variables, expect=expect) * scale
            except WayFailed as error:
                raise WayFailed(f"{error}: {last_words(argv, cwd, variables)}") from error

        return measured

    def section(
        self,
        row: str,
        title: str,
        ways: Mapping[str, Way],
        *,
        rounds: int,
        unit: str = "ms",
        warmups: int = 1,
        reference: str = "",
        checks: list[Check] | None = None,
        commands: Mapping[str, list[str]] | None = None,
        notes: list[str] | None = None,
        skipped: list[str] | None = None,
    ) -> Section:
        load, now = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        found = interleave(ways, rounds, warmups=warmups)
        return Section(
            row=row,
            title=title,
            unit=unit,
            samples=found.samples,
            cpu_s=found.cpu_s,
            checks=checks or [],
            reference=reference,
            commands={name: self.shown(argv) for name, argv in (commands or {}).items() if name in found.samples},
            notes=notes or [],
            skipped=[*(skipped or []), *(self.without_places(line) for line in found.failed)],
            load=load,
            measured=now,
        )

    def shown(self, argv: list[str]) -> str:
        """A command as documentation prints it: without the places of this one measurement."""
        return self.without_places(shlex.join(argv))

    def without_places(self, text: str) -> str:
        text = text.replace(self.sbx, "sbx").replace(self.python, "python3")
        for name, program in self.peers.items():
            text = text.replace(program, name)
        return text.replace(str(self.place / "work"), "$WORK").replace(str(self.place), "$PLACE")

    def output(self, argv: list[str], cwd: Path, *, environ: Mapping[str, str] | None = None) -> str:
        """What an untimed command prints; RowSkipped with its words when it fails."""
        variables = self.environ if environ is None else {**self.environ, **environ}
        try:
            done = subprocess.run(
                argv, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=OUTPUT_DEADLINE_S
            )
        except subprocess.TimeoutExpired as error:
            raise RowSkipped(f"{self.shown(argv)} still ran after {OUTPUT_DEADLINE_S} s") from error
        if done.returncode:
            words = done.stderr.strip().splitlines() or ["no message"]
            raise RowSkipped(f"{self.shown(argv)} ended with {done.returncode}: {words[0]}")
        return done.stdout

    def plan(self, cwd: Path, *options: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(
            self.output([self.sbx, "plan", *options, "--format", "json", "--", "true"], cwd)
        )
        return loaded

    def enforced(self, cwd: Path, *options: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What a run with these options applies, from its own record."""
        record = self.folder("records") / "enforced.json"
        self.output([self.sbx, "run", *options, "--json", str(record), "--", "true"], cwd, environ=environ)
        loaded: dict[str, Any] = json.loads(record.read_text())["enforced"]
        return loaded
