"""Whatever stands in an argument, a command ends as documented, in text."""

import json
import shutil
from pathlib import Path
from random import Random

from sfao.lab.methods import METHODS
from sfao.lab.run.config import GuardConfig, RunConfig
from tests.faults.entry import call
from tests.faults.hostile import NUMBERS, TEXTS, WRITTEN
from tests.faults.tally import in_parts, in_soak, list_part
from tests.faults.tiny import NAME

TARGET = "the command line"
#: What settles how much is learnt, and takes no large numbers here.
LENGTHS = ("epochs",)


def draw_name(random: Random, method: str) -> str:
    names = (
        *RunConfig.model_fields,
        *(f"options.{name}" for name in METHODS[method].Options.model_fields),
        *(f"guard.{name}" for name in GuardConfig.model_fields),
        "model.name",
        "model.hidden",
    )
    return random.choice(TEXTS) if random.random() < 0.1 else random.choice(names)


def draw_text(random: Random) -> str:
    match random.randrange(4):
        case 0:
            return json.dumps(random.choice(TEXTS))
        case 1:
            return random.choice(TEXTS)
        case 2:
            return str(random.choice([number for number in NUMBERS if number != 10**400]))
        case _:
            return random.choice(WRITTEN)


def draw_command(random: Random, taken: Path) -> list[str]:
    """Return a command with hostile settings; where they are taken, its folder is refused, so that nothing runs."""
    method = random.choice(list(METHODS))
    name, text = draw_name(random, method), draw_text(random)
    start = [NAME, "--out", str(taken)]
    match random.randrange(10):
        case 0:
            return [
                "compare",
                *start,
                "--methods",
                method,
                "--seeds",
                random.choice((draw_text(random), "1")),
                "--set",
                text,
            ]
        case 1:
            return ["compare", *start, "--methods", f"{method},sgd", "--set", f"{method}:{name}={text}"]
        case 2:
            return ["tune", *start, "--grid", "--method", method, "--search", f"{name}={text},{draw_text(random)}"]
        case 3:
            return [
                "tune",
                *start,
                "--method",
                method,
                "--search",
                f"{name}={text}{random.choice((':', ','))}{draw_text(random)}",
            ]
        case 4:
            options = ("preset", "log", "seed", "threads", "checkpoint-seconds", "data-root", "config", "method")
            return ["run", *start, f"--{random.choice(options)}", text]
        case 5:
            options = ("trials", "validation", "seeds", "seed", "jobs", "launcher", "address", "cpus", "config")
            return ["tune", *start, f"--{random.choice(options)}", text]
        case _:
            return ["run", *start, "--method", method, "--set", f"{name}={text}"]


@in_parts
def test_hostile_settings_are_refused_in_words(part, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taken = tmp_path / "file"
    taken.write_text("")
    tried = attack(TARGET, "numbers, dates, nesting, brackets, escapes and broken text as settings")
    for number in list_part(range(in_soak(200, 100_000)), part):
        command = draw_command(Random(number), taken)
        tried.try_it(f"{number}: {ascii(command)[:200]}", lambda command=command: call(*command).check())


def test_hostile_numbers_that_are_taken_end_in_a_record_or_in_words(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack(TARGET, "numbers at the edge of what settings take, in whole runs")
    for number in range(in_soak(15, 2000)):
        random = Random(number)
        method = random.choice(["sgd", "ewc", "sfao", "gpm", "ogd"])
        name = draw_name(random, method)
        value = random.choice((1e38, 1e30, 1e15, 10**15, 1e-300, 1, 0.5, 0, 1e14, -1, 3, 1e-15))
        if name in LENGTHS:
            continue
        command = ["run", NAME, "--method", method, "--out", f"run{number}", "--set", f"{name}={value!r}"]
        tried.try_it(f"{number}: {command!a}", lambda command=command: call(*command).check())


def test_folders_of_any_name(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack("the terminal", "markup, escapes and any script in names of folders")
    call("run", NAME, "--method", "sgd", "--out", "run")
    names = [
        text.replace("/", "-").replace("\ud800", "\udcff")
        for text in TEXTS
        if text.strip() and "\0" not in text and len(text) < 200
    ]

    def trial(name: str) -> None:
        shutil.copytree("run", name)
        for command in (["run", NAME, "--method", "sgd", "--out", name], ["data", "list", "--data-root", name]):
            ended = call(*command)
            ended.check()
            assert ended.code == 0, ended.error

    for name in names:
        tried.try_it(ascii(name), lambda name=name: trial(name))
    tried.try_it("a report of all of them", lambda: call("report", *names[: in_soak(4, len(names))]).check())


NAMED = [
    ("--set", "lr=2020-13-45"),
    ("--set", "lr=1e308"),
    ("--set", "lr=" + "9" * 5000),
    ("--set", "lr=" + "[" * 5000),
    ("--set", "lr=\x1b[31m"),
    ("--set", "[bold]=[/]"),
    ("--method", "\x1b[31m[/]"),
    ("--seed", "9" * 5000),
    ("--seed", "\x1b[31m"),
    ("--\x1b[31m", "[/]"),
    ("--config", "\x1b]0;x\x07[/]"),
    ("--preset", "\udcff"),
    ("--set", "model.hidden=2147483648"),
    ("--set", "model.hidden=[1000000, 1000000]"),
]


def test_what_was_reported_is_bad_usage(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack(TARGET, "settings that once had a traceback")

    def trial(arguments: tuple[str, str]) -> None:
        ended = call("run", NAME, "--out", "run", *arguments)
        ended.check()
        assert ended.code == 2, ended.error

    for arguments in NAMED:
        tried.try_it(ascii(arguments)[:80], lambda arguments=arguments: trial(arguments))
