"""Bytes and connections through the proxy, against direct loopback (bench/proxy.py does the measuring)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from harness.bench import Bench
from harness.record import Check, Section

SCRIPT = Path(__file__).resolve().parent.parent / "proxy.py"


def measure(bench: Bench) -> list[Section]:
    load, now = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    sizes = ["--rounds", "2", "--megabytes", "256", "--connections", "400"] if bench.quick else []
    found = json.loads(bench.output([bench.python, str(SCRIPT), *sizes], bench.folder("proxy")))
    sections = []
    for row, title, unit, scale, at_least in (
        ("bytes_per_second", "One CONNECT stream", "MB/s", 1e-6, 0.45),
        ("connections_per_second", "Connections per second, one client", "/s", 1.0, 0.3),
        ("connections_per_second_4_clients", "Connections per second, four clients", "/s", 1.0, None),
    ):
        ways = found[row]
        checks = [] if at_least is None else [Check(title, "sbx", "direct", at_least=at_least)]
        # Only the summary is known: its median and best stand for the samples.
        samples = {way: [v["median"] * scale, v["median"] * scale, v["best"] * scale] for way, v in ways.items()}
        sections.append(Section("proxy", title, unit, samples, checks, "direct", load=load, measured=now))
    if "tinyproxy" not in found["bytes_per_second"]:
        sections[0].skipped.append("tinyproxy: not installed")
    return sections
