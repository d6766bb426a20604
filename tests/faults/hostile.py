"""Hostile values, texts and files, drawn from a seed: the same attack again is the same attack."""

import json
from random import Random
from typing import Any

#: Text that a terminal, rich, a page, a shell, LaTeX or a parser could take for something else.
TEXTS = (
    "",
    " ",
    "[/]",
    "[bold]x[/bold]",
    "[link=file:///etc]x[/link]",
    ":smile:",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\rb",
    "\x00",
    "\x7f\x08\x08",
    "\u202eabc",
    "\u2066\u2028",
    "\ufeffx",
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "![x](http://example.com/x)",
    "a|b&#x3c;",
    "$x^{$",
    "\\input{x}%",
    "../../etc/passwd",
    "/dev/null",
    "%s%n{0}{x}",
    "{task.description}",
    "שלום עולם",
    "日本語のタスク",
    "नमस्ते",
    "e" + "\u0301" * 50,
    "\ud800",
    "x" * 5000,
    "y\n" * 200,
)
#: As they stand in YAML, most of them in JSON too.
WRITTEN = (
    "2020-13-45",
    "0001-01-01",
    "0001-01-01T00:00:00+14:00",
    "2020-01-01 25:61:61",
    "1e308",
    "-1e308",
    "1e999",
    "1.0e+999",
    "1e-320",
    "-0.0",
    ".inf",
    "-.Inf",
    ".nan",
    "NaN",
    "Infinity",
    "9" * 20,
    "9" * 400,
    "9" * 5000,
    "0x" + "f" * 5000,
    "0b_",
    "0o9",
    "1_",
    "190:20:30",
    "9" * 300 + ":59",
    "~",
    "null",
    "yes",
    "=",
    "<<",
    "[",
    "{",
    "[1, 2",
    "{a: 1, a: 2}",
    '{"a": 1, "a": 2}',
    "[" * 60 + "]" * 60,
    "[" * 3000,
    '{"a":' * 400 + "1" + "}" * 400,
    "&a [*a]",
    "*a",
    "!!python/object/apply:os.system [exit]",
    "!!binary x",
    "!!timestamp x",
    "!!set {a, b}",
    "!!int x",
    "!!float x",
    "!!int 9e9",
    "!<!x> 1",
    "%YAML 9.9",
    "--- 1\n--- 2",
    '"\\ud800"',
    '"\\U0011ffff"',
    '"\\e[31m"',
    "? [a]\n: 1",
    "[{x: {y: [1, {z: 2}]}}]",
    "'",
    '"',
    "@",
    "`",
    "- 1",
    "\t- x",
    "[" + "1," * 3000 + "1]",
)
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
#: Stands for a piece of text that no writer of JSON would write.
RAW = "@raw@"
NUMBERS = (0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e308, -1e-320, float("nan"), float("inf"), 0.5, 1e15)


def draw_value(random: Random, depth: int = 0) -> Any:
    """Return a value of any kind, some with others in them."""
    kind = random.randrange(7)
    if kind == 0 and depth < 3:
        return [draw_value(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 1 and depth < 3:
        return {random.choice((*TEXTS, "name", "a")): draw_value(random, depth + 1) for _ in range(random.randrange(4))}
    if kind == 2:
        return random.choice((None, True, False))
    return random.choice(NUMBERS) if kind < 5 else random.choice(TEXTS)


def mutate_value(random: Random, value: Any) -> Any:
    """Return the value with one part replaced, left out, moved or added, at any depth."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        made, name = dict(value), random.choice(list(value))
        match random.randrange(8):
            case 0:
                del made[name]
            case 1:
                made[random.choice(TEXTS)] = made.pop(name)
            case 2:
                made[random.choice(TEXTS)] = draw_value(random)
            case _:
                made[name] = mutate_value(random, made[name])
        return made
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], mutate_value(random, value[place]), *value[place + random.randrange(3) :]]
    return draw_value(random)


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Return the bytes cut, overwritten, doubled, or in another encoding."""
    place, text = random.randrange(len(data) + 1), data.decode()
    junk = bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
    ways = (
        lambda: data[:place],
        lambda: data[place:],
        lambda: data[:place] + junk + data[place:],
        lambda: data[:place] + junk + data[place + len(junk) :],
        lambda: data[:place] + random.choice(TEXTS).encode(errors="surrogatepass") + data[place:],
        lambda: data[:place] + random.choice(WRITTEN).encode() + data[place + random.randrange(9) :],
        lambda: data + data,
        lambda: b"\xef\xbb\xbf" + data,
        lambda: text.encode("utf-16"),
        lambda: (text + "\xe9").encode("latin-1", "replace"),
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: b"\x00" * len(data),
        lambda: BOMB.encode(),
        lambda: b"",
    )
    return random.choice(ways)()


def mutate_json(random: Random, data: bytes) -> bytes:
    """Return a JSON text damaged in its structure or in its bytes."""
    if random.random() < 0.4:
        return mutate_bytes(random, data)
    value = json.loads(data)
    for _ in range(random.randrange(1, 3)):
        value = mutate_value(random, value)
    if random.random() < 0.2:
        value = {**value, random.choice(list(value)): RAW} if isinstance(value, dict) and value else RAW
    text = json.dumps(value, indent=2)
    return text.replace(json.dumps(RAW), random.choice(WRITTEN)).encode(errors="surrogatepass")


def mutate_json_lines(random: Random, data: bytes) -> bytes:
    """Return lines of JSON, one of them damaged, or all of the bytes."""
    lines = data.splitlines(keepends=True)
    if not lines or random.random() < 0.3:
        return mutate_bytes(random, data)
    place = random.randrange(len(lines))
    lines[place] = mutate_json(random, lines[place]).replace(b"\n", b" ") + b"\n"
    return b"".join(lines)


def mutate_yaml(random: Random, data: bytes) -> bytes:
    """Return a YAML text damaged in one of its lines or in its bytes."""
    lines = data.decode().splitlines()
    if not lines or random.random() < 0.4:
        return mutate_bytes(random, data)
    place = random.randrange(len(lines))
    name, colon, _ = lines[place].partition(":")
    match random.randrange(4):
        case 0:
            lines[place] = json.dumps(random.choice(TEXTS)) + ": " + random.choice(WRITTEN)
        case 1:
            lines.insert(place, random.choice(lines))
        case 2:
            lines[place] = f"{name}{colon} {json.dumps(random.choice(TEXTS))}"
        case _:
            lines[place] = f"{name}{colon} {random.choice(WRITTEN)}"
    return "\n".join(lines).encode(errors="surrogatepass")
