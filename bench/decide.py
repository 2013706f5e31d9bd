"""How long one decision over 500 rules takes: `python bench/decide.py`."""

from __future__ import annotations

import random
import time

from sbx.model.decide import decide_location
from sbx.model.glob import parse
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

RULES = 500
QUESTIONS = 2000


def main() -> None:
    chooser = random.Random(1)
    shapes = (
        "/srv/a{n}/**",
        "/srv/a{n}/b/*.c",
        "/srv/*/x{n}",
        "**/n{n}.env",
        "/srv/a{n}/{{x,y}}/z",
        "/home/u{n}/[a-f]*",
    )
    rules = tuple(
        Rule(text, chooser.random() < 0.3, access, Origin.PROFILE, Source("policy.yaml", n + 1, 1), (parse(text),))
        for access in (Access.READ, Access.MODIFY)
        for n in range(RULES)
        for text in (chooser.choice(shapes).format(n=n),)
    )
    profile = EffectiveProfile("bench", "/srv", rules[:RULES], rules[RULES:])
    paths = [f"/srv/a{chooser.randrange(RULES)}/b/c/{chooser.choice(('x.c', 'y', 'n7.env'))}" for _ in range(QUESTIONS)]
    times = []
    for path in paths:
        started = time.perf_counter()
        decide_location(profile, path, Access.MODIFY)
        times.append(time.perf_counter() - started)
    times.sort()
    median, worst = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"decide, {RULES} rules in each list: median {median * 1e6:.0f} µs, 99 % below {worst * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
