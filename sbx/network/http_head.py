"""Request heads: strict about what a head may look like, h11 for what it says, and our own answers.

h11 is lenient where HTTP allows it to be (folded lines, lone newlines, repeated equal lengths). A proxy must not be:
the next server could read the same bytes differently. So the shapes that two parsers could disagree on are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus

import h11

from sbx.network.hosts import NetDecision, decide_net, join_authority, split_authority
from sbx.network.settings import ProxySettings

END_OF_HEAD = b"\r\n\r\n"

# Meant for one connection only (RFC 9110, 7.6.1), or for the proxy itself. Framing is h11's business, on both sides.
_HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive te trailer upgrade proxy-authenticate proxy-authorization "
    b"transfer-encoding host".split()
)
_LONE_CONTROL = re.compile(rb"\r(?!\n|\Z)|(?<!\r)\n|\0")
_FOLDED = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:([^\r]*)", re.IGNORECASE)
_CODING = re.compile(rb"\r\ntransfer-encoding[ \t]*:([^\r]*)", re.IGNORECASE)


class BadRequest(Exception):
    """A request that gets an answer and no connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def find_head(buffer: bytes, max_bytes: int) -> int:
    """The length of the first head in the buffer, or 0 while it is incomplete."""
    end = buffer.find(END_OF_HEAD)
    if (end if end >= 0 else len(buffer)) > max_bytes:
        raise BadRequest(431, f"the request header is larger than {max_bytes} bytes")
    # A return as the very last byte is the first half of a line end that is still under way.
    if _LONE_CONTROL.search(buffer, 0, end + len(END_OF_HEAD) if end >= 0 else len(buffer)):
        raise BadRequest(400, "the request header has a carriage return, newline or NUL on its own")
    return end + len(END_OF_HEAD) if end >= 0 else 0


def check_head(head: bytes) -> None:
    """Refuse the shapes that request smuggling is made of."""
    if _FOLDED.search(head):
        raise BadRequest(400, "the request header has a folded line")
    lengths, codings = _LENGTH.findall(head), _CODING.findall(head)
    if lengths and codings:
        raise BadRequest(400, "the request has both Content-Length and Transfer-Encoding")
    if len(lengths) > 1 or not all(length.strip(b" \t").isdigit() for length in lengths):
        raise BadRequest(400, "the request's Content-Length is not one number")
    if len(codings) > 1 or not all(coding.strip(b" \t").lower() == b"chunked" for coding in codings):
        raise BadRequest(400, "the request's Transfer-Encoding is not exactly chunked")


def read_request(data: bytes, head_length: int, max_bytes: int) -> tuple[h11.Connection, h11.Request]:
    """The request at the start of ``data``, and the h11 connection that goes on with its body."""
    check_head(data[:head_length])
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes + 1024)
    try:
        connection.receive_data(data)
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(error.error_status_hint or 400, f"not a valid HTTP request: {error}") from None
    if not isinstance(request, h11.Request):
        raise BadRequest(400, "not a valid HTTP request")
    if request.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(400, "only HTTP/1.0 and HTTP/1.1 are served")
    return connection, request


def judge_connect(request: h11.Request, settings: ProxySettings) -> NetDecision:
    for name, value in request.headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            raise BadRequest(400, "a CONNECT request has no body")
    try:
        host, port = split_authority(request.target.decode("ascii"))
    except ValueError as error:
        raise BadRequest(400, f"CONNECT needs HOST:PORT: {error}") from None
    return decide_net(settings.rules, host, port)


def judge_absolute(request: h11.Request, settings: ProxySettings) -> tuple[NetDecision, bytes]:
    """The verdict on an ``http://host[:port]/path`` target, and the path to ask the server for."""
    target = request.target.decode("ascii")
    scheme, separator, rest = target.partition("://")
    if not separator:
        raise BadRequest(400, "this is a proxy: ask for http://HOST/PATH, or CONNECT HOST:PORT")
    if scheme.lower() != "http":
        raise BadRequest(400, f"{scheme[:20]}:// is not forwarded in the clear: use CONNECT")
    cut = re.search("[/?#]", rest)
    authority, path = (rest, "") if cut is None else (rest[: cut.start()], rest[cut.start() :])
    if "#" in path:
        raise BadRequest(400, "a request target has no fragment")
    if not path:
        path = "*" if request.method == b"OPTIONS" else "/"
    elif path.startswith("?"):
        path = "/" + path
    try:
        host, port = split_authority(authority, 80)
    except ValueError as error:
        raise BadRequest(400, f"the address is not HOST:PORT: {error}") from None
    return decide_net(settings.rules, host, port), path.encode("ascii")


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that go on to the other side. Content-Length stays even where Connection names it: it frames."""
    headers = list(headers)
    listed = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    } - {b"content-length"}
    return [(name, value) for name, value in headers if name not in _HOP_BY_HOP and name not in listed]


def forwarded_request(request: h11.Request, decision: NetDecision, path: bytes) -> h11.Request:
    """The request as the server gets it. Host is the host that was matched, not what the client wrote."""
    host = join_authority(decision.host, decision.port)
    if decision.port == 80:
        host = host.removesuffix(":80")
    headers = [(b"Host", host.encode("ascii")), *end_to_end(request.headers), (b"Via", b"1.1 sbx")]
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"Transfer-Encoding", b"chunked"))
    return h11.Request(method=request.method, target=path, headers=headers)


def forwarded_response(response: h11.Response) -> h11.Response:
    headers = end_to_end(response.headers)
    if any(name == b"transfer-encoding" for name, _ in response.headers):
        headers = [(name, value) for name, value in headers if name != b"content-length"]
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def answer(status: int, reason: str, remedy: str = "") -> bytes:
    """A complete answer of the proxy itself, after which the connection is closed."""
    lines = [f"sbx: {reason}"]
    if remedy:
        lines.append(f"sbx: to allow it: {remedy}")
    body = ("\n".join(lines) + "\n").encode()
    # Text of the client's comes back in the reason: a header takes printable ASCII only.
    shown = "".join(c if " " <= c <= "~" else "?" for c in reason)
    phrase = HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nX-Sbx-Reason: {shown}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def refusal(decision: NetDecision, reason: str) -> bytes:
    return answer(403, f"network: denied {decision.authority}, {reason}", decision.remedy)
