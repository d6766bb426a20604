"""What the screen shows of many runs."""

from io import StringIO
from pathlib import Path

from sfao.lab.cli.live import Line, Screen, live_lines
from sfao.lab.console import PlainConsole
from sfao.lab.run.config import configure
from sfao.lab.run.jobs import Begun, Failure, Job, Lost


def shown(lines, height, footer=""):
    console = PlainConsole(file=StringIO(), width=80, height=height)
    console.print(Screen(dict(enumerate(lines)), console, lambda: footer))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_run_has_a_line_and_the_last_one_counts_those_that_ended():
    lines = [Line(f"sgd seed {seed}") for seed in range(3)]
    lines[0].hear(Failure("out of luck"))
    lines[1].hear(Begun())
    text = shown(lines, height=24, footer="trial 1/2")
    assert [line.split()[:4] for line in text] == [
        ["sgd", "seed", "0", "failed"],
        ["sgd", "seed", "1", "running"],
        ["sgd", "seed", "2", "waiting"],
        ["1/3", "runs", "ended", "trial"],
    ]
    assert text[0].endswith("out of luck")


def test_running_and_failed_runs_are_shown_where_there_are_more_runs_than_lines():
    lines = [Line(f"sgd seed {seed}") for seed in range(100)]
    for seed in (40, 70):
        lines[seed].hear(Begun())
    lines[60].hear(Failure("out of luck"))
    text = shown(lines, height=12)
    assert len(text) <= 12
    assert [line.split()[2] for line in text if "waiting" not in line][:-1] == ["40", "60", "70"]
    assert text[-1].startswith("1/100 runs ended")


def test_a_lost_run_waits_for_its_retry_and_says_why():
    line = Line("sgd seed 0")
    line.hear(Begun())
    line.hear(Lost("its node was lost", 1, 3))
    assert line.text == "sgd seed 0: waiting: its node was lost; retry 1 of 3"
    line.hear(Begun())
    assert line.state == "running"


def test_without_a_terminal_each_end_is_a_line_with_the_folder_where_there_are_several(capsys):
    jobs = [Job(configure("split-mnist", "sgd", seed=0), Path("out") / place / "sgd-x-0") for place in "ab"]
    with live_lines(jobs, shown=True) as watch:
        for job in jobs:
            watch(job, Begun())
        watch(jobs[1], Failure("out \x1b[2J of luck"))
    assert capsys.readouterr().err == "b/sgd-x seed 0: failed: out \\x1b[2J of luck\n"
