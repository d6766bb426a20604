"""A client of the page: single requests, and the states that a browser would get."""

import json
from http.client import HTTPConnection, HTTPResponse

from tests.lab.live.held_run import PATIENCE


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def ask(address: str, path: str = "/", method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port_of(address), timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    return response, response.read()


class Events:
    """The states that a page gets."""

    def __init__(self, address: str) -> None:
        self.connection = HTTPConnection("127.0.0.1", port_of(address), timeout=PATIENCE)
        self.connection.request("GET", "/events")
        self.response = self.connection.getresponse()

    def __iter__(self):
        for line in self.response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    def wait_for(self, condition) -> dict:
        return next(state for state in self if condition(state))
