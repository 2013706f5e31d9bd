"""The one evaluator: how a decision's time grows with the rules, and the whole with the paths."""

from __future__ import annotations

import random
import time

from harness.bench import Bench
from harness.curve import growth_check, point
from harness.record import Section
from harness.timing import Way

from sbx.model.decide import decide_location
from sbx.model.glob import parse
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

SHAPES = (
    "/srv/a{n}/**",
    "/srv/a{n}/b/*.c",
    "/srv/*/x{n}",
    "**/n{n}.env",
    "/srv/a{n}/{{x,y}}/z",
    "/home/u{n}/[a-f]*",
)


def measure(bench: Bench) -> list[Section]:
    def deciding(rules: int, paths: int) -> Way:
        profile = _profile(rules)
        chooser = random.Random(2)
        asked = [f"/srv/a{chooser.randrange(rules)}/b/c{i}/{chooser.choice(('x.c', 'y'))}" for i in range(paths)]

        def measured() -> float:
            started = time.perf_counter()
            for path in asked:
                decide_location(profile, path, Access.MODIFY)
            return (time.perf_counter() - started) * 1e3

        return measured

    rounds = bench.rounds(5, 2)
    by_rules = {point(count, "rules"): deciding(count, 500) for count in (10, 30, 100, 300, 1000)}
    by_paths = {point(count, "paths"): deciding(100, count) for count in (10, 100, 1000, 10_000)}
    sections = []
    for title, ways in (("500 decisions, by the number of rules", by_rules), ("decisions over 100 rules", by_paths)):
        section = bench.section("decide", f"decide(): {title}", ways, rounds=rounds, reference=next(iter(ways)))
        sections.append(growth_check(section, f"decide, {title}"))
    return sections


def _profile(count: int) -> EffectiveProfile:
    chooser = random.Random(1)

    def rules(access: Access) -> tuple[Rule, ...]:
        texts = [chooser.choice(SHAPES).format(n=n) for n in range(count)]
        places = [Source("policy.yaml", n + 1, 1) for n in range(count)]
        return tuple(
            Rule(text, chooser.random() < 0.3, access, Origin.PROFILE, place, (parse(text),))
            for text, place in zip(texts, places, strict=True)
        )

    return EffectiveProfile("bench", "/srv", rules(Access.READ), rules(Access.MODIFY))
