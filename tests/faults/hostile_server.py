"""A server on a bare socket, which answers as it is told and knows no manners."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread


@dataclass
class Talk:
    """One connection: what was asked for, and ways to answer it."""

    connection: socket.socket
    url: str
    #: Where the range that was asked for begins; 0 without one.
    start: int
    over: Event
    sent: int = 0

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.connection.sendall(part)
            self.sent += len(part)

    def send_headers(self, status: str, *lines: str) -> None:
        self.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "Connection: close", "", ""]).encode("latin-1"))

    def drip(self, content: bytes, seconds: float) -> None:
        """Send one byte at a time, until the other side or the test has had enough."""
        for byte in content:
            if self.over.wait(seconds):
                return
            self.send(bytes([byte]))

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Behaviour = Callable[[Talk], None]


@dataclass
class HostileServer:
    url: str = ""
    #: Bytes that were sent in all.
    sent: int = 0


@contextmanager
def being_hostile(behave: Behaviour) -> Iterator[HostileServer]:
    """Serve every connection in this way until the end of the block."""
    over, threads, server = Event(), [], HostileServer()
    listener = socket.create_server(("127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            request = b""
            while b"\r\n\r\n" not in request and (piece := connection.recv(4096)):
                request += piece
            wanted = re.search(rb"Range: bytes=(\d+)-", request)
            talk = Talk(connection, server.url, int(wanted[1]) if wanted else 0, over)
            try:
                behave(talk)
            finally:
                server.sent += talk.sent

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = Thread(target=serve, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    listening = Thread(target=listen, daemon=True)
    listening.start()
    try:
        yield server
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        listening.join(20)
        for thread in threads:
            thread.join(20)


def list_behaviours(content: bytes) -> dict[str, Behaviour]:
    """Every way to misbehave, by name, for a server that should give this content."""
    size = len(content)
    wrong = bytes([content[0] ^ 1]) + content[1:]
    right = f"Content-Length: {size}"

    def answer(*lines: str, status: str = "200 OK", body: bytes = content) -> Behaviour:
        def behave(talk: Talk) -> None:
            talk.send_headers(status, *lines)
            talk.send(body)

        return behave

    def redirect(place: str, code: int = 302) -> Behaviour:
        return lambda talk: talk.send_headers(f"{code} Found", "Location: " + place.format(url=talk.url))

    def send_for_ever(*lines: str, chunk: bytes = bytes(1 << 16)) -> Behaviour:
        def behave(talk: Talk) -> None:
            talk.send_headers("200 OK", *lines)
            while not talk.over.is_set():
                talk.send(chunk)

        return behave

    def part(content_range: str) -> Behaviour:
        def behave(talk: Talk) -> None:
            at = {"start": talk.start, "last": size - 1, "size": size}
            talk.send_headers("206 Partial Content", "Content-Range: " + content_range.format(**at))
            talk.send(content[talk.start :])

        return behave

    def part_of_other_bytes(talk: Talk) -> None:
        talk.send_headers("206 Partial Content", f"Content-Range: bytes {talk.start}-{size - 1}/{size}")
        talk.send(bytes(size - talk.start))

    def say(raw: bytes) -> Behaviour:
        return lambda talk: talk.send(raw)

    def drip_headers(talk: Talk) -> None:
        talk.send(b"HTTP/1.1 200 OK\r\nX: ")
        talk.drip(b"x" * 10_000, 0.02)

    def drip_body(talk: Talk) -> None:
        talk.send_headers("200 OK", right)
        talk.drip(content, 0.02)

    def say_nothing(talk: Talk) -> None:
        talk.over.wait(20)

    def stop_in_the_middle(talk: Talk) -> None:
        talk.send_headers("200 OK", right)
        talk.send(content[: size // 2])
        talk.over.wait(20)

    def cut_by_reset(talk: Talk) -> None:
        talk.send_headers("200 OK", right)
        talk.send(content[: size // 2])
        time.sleep(0.01)
        talk.reset()

    return {
        "an endless body": send_for_ever(),
        "an endless body of a right length": send_for_ever(right),
        "an endless body in chunks": send_for_ever(
            "Transfer-Encoding: chunked", chunk=b"1000\r\n" + bytes(4096) + b"\r\n"
        ),
        "endless headers": lambda talk: talk.send(b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 5000),
        "a header without end": lambda talk: talk.send(b"HTTP/1.1 200 OK\r\nX: ", bytes(1 << 20)),
        "headers a letter at a time": drip_headers,
        "a body a byte at a time": drip_body,
        "silence": say_nothing,
        "silence in the middle": stop_in_the_middle,
        "a connection reset": cut_by_reset,
        "a connection closed": lambda talk: None,
        "no status": say(b"hello\r\n\r\n"),
        "bytes of no meaning": say(bytes(range(256)) * 16),
        "a status that is no number": say(b"HTTP/1.1 abc OK\r\n\r\n"),
        "a version of the future": say(b"HTTP/9.9 200 OK\r\n\r\n" + wrong),
        "a negative length": answer("Content-Length: -1"),
        "a huge length": answer(f"Content-Length: {10**30}"),
        "a length that is no number": answer("Content-Length: many"),
        "a length too small": answer(f"Content-Length: {size - 1}"),
        "a length too large": answer(f"Content-Length: {size + 1}"),
        "two lengths": answer(right, "Content-Length: 7"),
        "fewer bytes than promised": answer(right, body=content[: size // 3]),
        "fewer bytes, no promise": answer(body=content[: size // 3]),
        "one changed byte": answer(right, body=wrong),
        "another file": answer(body=b"<html>not found</html>"),
        "nothing": answer(right, body=b""),
        "no content": answer(status="204 No Content", body=b""),
        "not modified": answer(status="304 Not Modified", body=b""),
        "continue for ever": say(b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
        "an error": answer(status="500 Oops", body=b""),
        "an error with escape codes": answer(status="500 \x1b[2J\x1b]0;owned\x07", body=b""),
        "a range that was not asked for": part("bytes 7-{last}/{size}"),
        "a range that is none": part("bytes x-y/z"),
        "a negative range": part("bytes -{start}-{last}/{size}"),
        "a range of another size": part("bytes {start}-{last}/99"),
        "a range beyond the end": part("bytes {start}-" + "9" * 30 + "/{size}"),
        "no range in a part": answer(status="206 Partial Content", body=content[1:]),
        "a range of other bytes": part_of_other_bytes,
        "no such range": answer(status="416 Range Not Satisfiable", body=b""),
        "chunks of no length": answer("Transfer-Encoding: chunked", body=b"zz\r\nhello\r\n0\r\n\r\n"),
        "chunks of a huge length": answer("Transfer-Encoding: chunked", body=b"f" * 30 + b"\r\nhello"),
        "packed although not asked": answer("Content-Encoding: gzip", body=b"\x1f\x8b" + wrong[2:]),
        "a redirect to itself": redirect("{url}file"),
        "a redirect to ever new places": lambda talk: redirect(f"{{url}}{time.perf_counter_ns()}")(talk),
        "a redirect to a file": redirect("file:///etc/hostname"),
        "a redirect to ftp": redirect("ftp://127.0.0.1/file"),
        "a redirect to data": redirect("data:text/plain,hello"),
        "a redirect to a broken address": redirect("http://[::1/file"),
        "a redirect to no port": redirect("http://127.0.0.1:99999/file"),
        "a redirect to a name of odd letters": redirect("http://\xff\xfe.invalid./\x01"),
        "a redirect to nowhere": answer(status="302 Found", body=b""),
        "a permanent redirect to a file": redirect("file:///etc/hostname", 308),
    }
