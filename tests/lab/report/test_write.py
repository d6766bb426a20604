"""The report as files: complete, the same every time, and nowhere but in its folder."""

import json
import os
import re
from base64 import b64encode
from hashlib import sha256
from html import unescape

import pytest

from sfao.lab.report.runs import group_runs
from sfao.lab.report.write import write_report
from sfao.lab.run.errors import ReportError
from tests.lab.report.real_runs import HOSTILE, edited, report, share_hostile_report, share_report


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return share_report(tmp_path_factory).read_text()


def data_of(html):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(text)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- Files -----------------------------------------------------------------------------------------------------------


def test_the_same_runs_make_the_same_bytes_and_other_files_stay(compared, tmp_path):
    first, second = tmp_path / "one", tmp_path / "deep" / "er"
    files, notices = write_report([compared / "sfao-0", compared / "sgd-0"], first)
    write_report([compared / "sfao-0", compared / "sgd-0"], second)
    names = ("cost-accuracy", "accuracy-matrices", "forgetting", "update-geometry", "decisions", "cosines")
    written = ["report.html", "table.md", "table.tex", *(f"figures/{name}.pdf" for name in names)]
    assert [path.relative_to(first).as_posix() for path in files] == written
    assert contents(first) == contents(second)
    assert set(contents(first)) == set(written)
    assert notices == []
    (first / "figures" / "mine.pdf").write_bytes(b"mine")
    write_report([compared / "sgd-0"], first, form="svg")
    assert contents(first)["figures/mine.pdf"] == b"mine"
    assert contents(first)["figures/forgetting.svg"].startswith(b"<svg")


def received(compared, tmp_path):
    """A folder of runs as someone sent it, and a file of ours beside it."""
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "precious.pdf").write_bytes(b"ours")
    folder = edited(compared / "sgd-0", tmp_path / "received" / "sgd-0").parent
    (folder / "report").mkdir()
    (folder / "report" / ".figures.json").write_text('["precious.pdf", "../../ours/precious.pdf"]')
    return folder, ours


def test_a_link_in_the_place_of_the_figures_is_refused_and_nothing_behind_it_changes(compared, tmp_path):
    folder, ours = received(compared, tmp_path)
    (folder / "report" / "figures").symlink_to(ours)
    before = contents(tmp_path)
    with pytest.raises(ReportError, match=r"`out` must be a folder without links, got the link .*figures$"):
        write_report([folder], folder / "report")
    assert contents(tmp_path) == before


def test_a_link_in_the_place_of_the_report_is_refused_and_nothing_behind_it_changes(compared, tmp_path):
    folder, ours = received(compared, tmp_path)
    link = folder / "linked"
    link.symlink_to(ours)
    before = contents(tmp_path)
    with pytest.raises(ReportError, match="must be a folder without links"):
        write_report([folder], link)
    assert contents(tmp_path) == before


def test_a_file_that_names_figures_deletes_nothing(compared, tmp_path):
    folder, ours = received(compared, tmp_path)
    (folder / "report" / "figures").mkdir()
    (folder / "report" / "figures" / "precious.pdf").write_bytes(b"theirs")
    write_report([folder], folder / "report")
    assert (ours / "precious.pdf").read_bytes() == b"ours"
    assert (folder / "report" / "figures" / "precious.pdf").read_bytes() == b"theirs"


def test_links_in_the_place_of_files_are_replaced_and_not_followed(compared, tmp_path):
    folder, ours = received(compared, tmp_path)
    (folder / "report" / "figures").mkdir()
    for name in ("report.html", "table.md", "figures/forgetting.pdf"):
        (folder / "report" / name).symlink_to(ours / "precious.pdf")
    write_report([folder], folder / "report")
    assert (ours / "precious.pdf").read_bytes() == b"ours"
    assert not any(path.is_symlink() for path in (folder / "report").rglob("*"))


# -- The page --------------------------------------------------------------------------------------------------------


def test_the_policy_names_the_style_and_the_script_of_the_page_and_nothing_else(html):
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', html)
    rules = dict(rule.split(" ", 1) for rule in unescape(policy).split("; "))
    for name in ("style", "script"):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>", html, re.DOTALL)
        assert rules[f"{name}-src"] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"


def test_nothing_comes_from_elsewhere(html):
    links = re.findall(r'(?:src|href)="(.*?)"', html)
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert set(re.findall(r"https?://[^\s\"<]+", html)) == {"http://www.w3.org/2000/svg"}


def test_the_data_are_those_of_the_records(runs, html):
    groups = data_of(html)
    assert [group["title"] for group in groups] == [group.group.title for group in group_runs(runs)]
    by_name = {run.name: run.record for run in runs}
    shown = {run["name"]: run for group in groups for run in group["runs"]}
    assert shown.keys() == by_name.keys()
    for name, own in shown.items():
        record = by_name[name]
        assert (own["seed"], own["status"], own["memory"]) == (record.seed, record.status, record.memory_bytes)
        if record.status == "done":
            assert own["accuracy"] == record.metrics["average_accuracy"]
            for line, expected in zip(own["matrix"], record.accuracy_matrix, strict=True):
                assert line == pytest.approx(expected, abs=1e-5)
            assert own["forgettingSoFar"][-1] == pytest.approx(record.metrics["average_forgetting"], abs=1e-5)
    first = groups[0]
    assert "epochs" in first["shared"]
    assert {run["own"]["lr"] for run in first["runs"]} == {"0.01", "1e+30"}
    assert first["warnings"][0]["text"] == "methods differ in lr: 0.01 (sgd, ewc, si, sfao), 1e+30 (si)"
    counts = [layer["seeds"]["0"]["decisions"] for layer in first["gates"]]
    (last,) = (run.steps[-1]["decisions"] for run in runs if run.name == "sfao-0")
    assert [sum(map(sum, own)) for own in counts] == [sum(layer.values()) for layer in last.values()]


def test_notices_are_on_the_page(compared, tmp_path):
    run = edited(compared / "sgd-0", tmp_path / "runs" / "sgd-0")
    (run / "steps.jsonl").write_text("{damaged\n")
    (tmp_path / "runs" / "ewc-<0>").mkdir()
    (tmp_path / "runs" / "ewc-<0>" / "config.yaml").write_text("method: ewc\n")
    html = report(tmp_path / "runs", tmp_path).read_text()
    (notices,) = re.findall(r'aria-labelledby="notices".*?</section>', html, re.DOTALL)
    assert "steps.jsonl is damaged" in notices
    assert "ewc-&lt;0&gt;" in notices


def test_text_of_runs_is_never_markup_or_control_characters(compared, tmp_path, tmp_path_factory):
    html = share_hostile_report(tmp_path_factory).read_text()
    assert HOSTILE not in html
    assert html.count("<script>") == 1
    assert "49" not in re.findall(r"<h1>.*?</h1>", html, re.DOTALL)[0]
    edited(compared / "sgd-0", tmp_path / "runs" / os.fsdecode(b"caf\xe9"), method="sgd\x01\x1b\u202e")
    page = report(tmp_path / "runs", tmp_path).read_text()
    assert not {"\x01", "\x1b", "\u202e"} & set(page)
    assert data_of(page)[0]["runs"][0]["method"] == "sgd\\x01\\x1b\\u202e"


def test_rollbacks_are_on_the_page(compared, tmp_path):
    rollback = {"task": 1, "step": 10, "from": 9, "to": 5, "reason": "forgetting rose", "values": {}, "tightened": "lr"}
    config = {"guard": {"kind": "measured"}, "benchmark": "split-mnist-5k", "method": "sgd"}
    edited(compared / "sgd-0", tmp_path / "runs" / "sgd-0", rollbacks=[rollback], config=config)
    (run,) = data_of(report(tmp_path / "runs", tmp_path).read_text())[0]["runs"]
    assert run["rollbacks"] == 1
    assert ["Rollback", "in task 2, from step 9 to 5: forgetting rose; lr"] in run["facts"]
