"""What the screen shows of many runs."""

from io import StringIO
from pathlib import Path

from sfao.lab.cli.live import Line, _Screen
from sfao.lab.console import PlainConsole
from sfao.lab.run.config import configure
from sfao.lab.run.pool import Lost
from sfao.lab.run.worker import Begun, Failure, Job


def lines(*places, seeds):
    jobs = [
        Job(configure("split-mnist", "sgd", seed=seed), Path("out") / place / f"sgd-{seed}")
        for place in places
        for seed in range(seeds)
    ]
    return {job.folder: Line(job, job.folder.parent.name if len(places) > 1 else "") for job in jobs}


def shown(known, height):
    console = PlainConsole(file=StringIO(), width=80, height=height)
    console.print(_Screen(known, console))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_one_place_needs_no_heading():
    assert [line.split()[0] for line in shown(lines("digits", seeds=2), height=24)] == ["sgd", "sgd", "0/2"]


def test_runs_stand_under_their_places_with_what_has_ended_there():
    known = lines("digits", "letters", seeds=2)
    known[Path("out/letters/sgd-1")].hear(Failure("out of luck"))
    text = shown(known, height=24)
    assert [line.split()[:2] for line in text] == [
        ["digits", "0/2"], ["sgd", "seed"], ["sgd", "seed"],
        ["letters", "1/2"], ["sgd", "seed"], ["sgd", "seed"],
        ["1/4", "runs"],
    ]  # fmt: skip
    assert text[5].split() == ["sgd", "seed", "1", "failed", "out", "of", "luck"]


def test_what_is_running_is_seen_wherever_it_is_and_the_screen_is_not_outgrown():
    known = lines("digits", "letters", "photographs", seeds=50)
    for name in ("letters/sgd-40", "photographs/sgd-7"):
        known[Path("out") / name].hear(Begun())
    text = shown(known, height=12)
    assert len(text) <= 12
    running = [number for number, line in enumerate(text) if "running" in line]
    assert [text[number].split()[:3] for number in running] == [["sgd", "seed", "40"], ["sgd", "seed", "7"]]
    assert [text[number - 1].split() for number in running] == [["letters", "0/50"], ["photographs", "0/50"]]
    assert text[-2].strip().endswith("more")
    assert text[-1].split() == ["0/150", "runs"]


def test_a_run_that_was_lost_waits_for_its_retry_and_says_why():
    known = lines("digits", seeds=1)
    line = known[Path("out/digits/sgd-0")]
    line.hear(Begun())
    line.hear(Lost("its node was lost", 1, 3))
    assert line.plain == "sgd seed 0: waiting: its node was lost; retry 1 of 3"
    assert shown(known, height=24)[-1].split() == ["0/1", "runs"]
    line.hear(Begun())
    assert line.state == "running"
