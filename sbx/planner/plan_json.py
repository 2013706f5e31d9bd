"""A plan as JSON and back. Paths may hold any bytes: they are escaped as lone surrogates, which JSON carries."""

from __future__ import annotations

import json
from typing import Any

from sbx.model.guarantee import Exactness
from sbx.model.plan import DirectoryStamp, Op, Operation, PathGrant, Plan, RuleGuarantee
from sbx.model.profile import Environment, Limits, Network, NetworkMode, Require
from sbx.model.records import asdict
from sbx.model.source import Source

PLAN_VERSION = 1


def plan_to_json(plan: Plan, *, indent: int | None = None) -> str:
    return json.dumps({"version": PLAN_VERSION, **asdict(plan)}, indent=indent)


def plan_from_json(text: str) -> Plan:
    """The same plan. Raises ValueError for a text that is not one of this version."""
    try:
        values: dict[str, Any] = json.loads(text)
        if values.pop("version") != PLAN_VERSION:
            raise ValueError("a plan of another version")
        return _plan(values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a plan: {error}") from error


def _plan(values: dict[str, Any]) -> Plan:
    return Plan(
        **{
            **values,
            "operations": tuple(Operation(**{**each, "op": Op(each["op"])}) for each in values["operations"]),
            "grants": tuple(PathGrant(each["path"], tuple(each["rights"])) for each in values["grants"]),
            "network": _network(values["network"]),
            "env": _environment(values["env"]),
            "limits": Limits(**values["limits"]),
            "require": Require(values["require"]),
            "guarantees": tuple(_guarantee(each) for each in values["guarantees"]),
            "looked_at": tuple(DirectoryStamp(**each) for each in values["looked_at"]),
            "missing": tuple(values["missing"]),
            "single_names": tuple(values["single_names"]),
            "notes": tuple(values["notes"]),
            "refusals": tuple(values["refusals"]),
        }
    )


def _network(values: dict[str, Any]) -> Network:
    source = values["source"]
    return Network(
        NetworkMode(values["mode"]),
        tuple((text, Source(**place)) for text, place in values["allow"]),
        None if source is None else Source(**source),
    )


def _environment(values: dict[str, Any]) -> Environment:
    return Environment(
        pass_names=tuple(values["pass_names"]),
        set_values=tuple((name, value) for name, value in values["set_values"]),
        secret=tuple(values["secret"]),
        pass_all=values["pass_all"],
    )


def _guarantee(values: dict[str, Any]) -> RuleGuarantee:
    changed = {
        "exactness": Exactness(values["exactness"]),
        "exceptions": tuple(values["exceptions"]),
        "by_hand": tuple(values["by_hand"]),
    }
    return RuleGuarantee(**{**values, **changed})
