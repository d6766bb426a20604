"""A web server on this machine that can be told to misbehave."""

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    files: dict[str, bytes] = field(default_factory=dict)
    #: How many of the coming answers are cut, and after how many bytes.
    cuts: int = 0
    cut_after: int = 0
    ranges: bool = True
    #: Added to where the server says that its range starts.
    lie: int = 0
    says_length: bool = True
    #: The Range header of every request, None where there was none.
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(**options):
    site = Site(**options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.url = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers["Range"]
            site.requests.append(wanted)
            content = site.files.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and site.ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start + site.lie}-{len(content) - 1}/{len(content)}")
            if site.says_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            body = content[start:]
            if site.cuts:
                site.cuts -= 1
                body = body[: site.cut_after]
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
