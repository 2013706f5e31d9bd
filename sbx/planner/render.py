"""A plan as plain lines: what would be done, in order, and because of which rule."""

from __future__ import annotations

from collections.abc import Iterator

from sbx.model.guarantee import Exactness
from sbx.model.plan import Op, Operation, PathGrant, Plan, RuleGuarantee
from sbx.model.profile import Environment, Limits, Network, NetworkMode
from sbx.planner.exceptions import EXCEPTIONS

_LIMITS = (
    ("wall_s", "wall", "s"),
    ("cpu_s", "cpu", "s"),
    ("memory_bytes", "memory", " bytes"),
    ("pids", "pids", ""),
    ("nofile", "nofile", ""),
    ("stdout_bytes", "stdout", " bytes"),
    ("stderr_bytes", "stderr", " bytes"),
    ("grace_s", "grace", "s"),
)


def shown_path(path: str) -> str:
    """One line, whatever the name holds: control characters and stray bytes as escapes."""
    if path.isprintable() and not path.endswith(" "):
        return path
    escaped = path.replace("\\", "\\\\")
    return "".join(char if char.isprintable() else _escape(char) for char in escaped)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def text_lines(plan: Plan) -> Iterator[str]:
    yield f"platform: {plan.platform}, by {plan.backend}"
    yield f"profile: {plan.profile} (require: {plan.require})"
    yield f"workspace: {shown_path(plan.workspace)}"
    yield f"working directory: {shown_path(plan.cwd)}"
    yield ""
    yield f"operations ({len(plan.operations)}):"
    yield from (f"  {_operation(each)}" for each in plan.operations)
    yield ""
    yield f"landlock rules ({len(plan.grants)}):"
    yield from (f"  {_grant(each)}" for each in plan.grants)
    yield ""
    yield _network(plan.network)
    yield from _environment(plan.env)
    yield _limits(plan.limits)
    yield ""
    yield "rules:"
    yield from _guarantees(plan.guarantees)
    yield from (f"note: {shown_path(each)}" for each in plan.notes)
    yield from (f"refused under require: full: {shown_path(each)}" for each in plan.refusals)
    yield f"depends on {len(plan.looked_at)} listed and {len(plan.missing)} missing paths"


def _operation(operation: Operation) -> str:
    words = [f"{operation.op.value:<9}", shown_path(operation.path)]
    if operation.op is Op.SYMLINK:
        words.append(f"-> {shown_path(operation.source)}")
    flags = [
        name
        for name, is_set in (
            ("file", not operation.is_dir and not operation.is_link and operation.op is not Op.SYMLINK),
            ("link", operation.is_link),
            ("not listable", not operation.listable),
            ("noexec", operation.noexec),
            ("if still there", operation.optional),
        )
        if is_set
    ]
    if flags:
        words.append(f"[{', '.join(flags)}]")
    if operation.why:
        words.append(f"# {shown_path(operation.why)}" + (f"  {operation.place}" if operation.place else ""))
    return " ".join(words)


_READ = {"READ_FILE", "READ_DIR"}


def _grant(grant: PathGrant) -> str:
    found = set(grant.rights)
    words = []
    if found >= _READ:
        words.append("read")
    elif found & _READ:
        words.append("read files" if "READ_FILE" in found else "list")
    if "MAKE_REG" in found:
        words.append("write")
    elif "WRITE_FILE" in found:
        words.append("write in place")
    if "EXECUTE" in found:
        words.append("execute")
    if "IOCTL_DEV" in found:
        words.append("ioctl")
    return f"{shown_path(grant.path)}: {', '.join(words)}"


def _network(network: Network) -> str:
    if network.mode is not NetworkMode.ALLOW:
        return f"network: {network.mode.value}"
    allowed = ", ".join(text for text, _ in network.allow) or "nothing"
    return f"network: {allowed}"


def _environment(env: Environment) -> Iterator[str]:
    """Names only: values belong to whoever set them."""
    if env.pass_all:
        yield "environment: everything"
    elif env.pass_names:
        yield f"environment: {', '.join(env.pass_names)}"
    if env.set_values:
        yield f"environment, set: {', '.join(name for name, _ in env.set_values)}"
    if env.secret:
        yield f"environment, secret: {', '.join(env.secret)}"


def _limits(limits: Limits) -> str:
    values = ((name, getattr(limits, field), unit) for field, name, unit in _LIMITS)
    found = [f"{name} {value:g}{unit}" for name, value, unit in values if value is not None]
    return f"limits: {', '.join(found) or 'none'}"


def _guarantees(guarantees: tuple[RuleGuarantee, ...]) -> Iterator[str]:
    width = max((len(each.exactness.value) for each in guarantees), default=0)
    for each in guarantees:
        reasons = f" ({', '.join(each.exceptions)})" if each.exceptions else ""
        yield f"  {each.exactness.value:<{width}}  {each.access}: {shown_path(each.rule)}  {each.place}{reasons}"
    met = sorted({name for each in guarantees for name in each.exceptions})
    yield from (f"  {name}: {EXCEPTIONS[name].sentence}" for name in met if name in EXCEPTIONS)
    if guarantees and all(each.exactness is Exactness.EXACT for each in guarantees):
        yield "  every rule is enforced exactly"
