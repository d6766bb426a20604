"""Archives stay inside their folder."""

import io
import stat
import tarfile
import zipfile

import pytest

from sfao.lab.data.errors import DataError
from sfao.lab.data.fetching import extract as module
from sfao.lab.data.fetching.extract import extract

CLIMBING = ["../out", "a/../../out", "/out", "..", "a\\..\\..\\out", "C:/out", "C:\\out"]


def tar_of(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            info, content = member if isinstance(member, tuple) else (member, b"")
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zip_of(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def special(name, kind, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("make", "name"), [(tar_of, "a.tar.gz"), (tar_of, "a.tgz"), (zip_of, "a.zip")])
def test_files_come_out_as_they_went_in(tmp_path, make, name):
    files = {"folder/one": b"1", "folder/deep/er/two": b"22" * 100_000, "three": b""}
    told = []
    extract(make(tmp_path / name, *files.items()), tmp_path / "out", progress=lambda *progress: told.append(progress))
    assert contents(tmp_path / "out") == files
    assert told[-1] == (f"unpacking {name}", 200_001, 200_001)


@pytest.mark.parametrize("climbing", CLIMBING)
@pytest.mark.parametrize(("make", "name"), [(tar_of, "a.tar.gz"), (zip_of, "a.zip")])
def test_a_member_that_climbs_out_is_refused_before_anything_is_written(tmp_path, make, name, climbing):
    archive = make(tmp_path / name, ("good", b"1"), (climbing, b"evil"))
    with pytest.raises(DataError, match="must stay inside the folder") as caught:
        extract(archive, tmp_path / "out" / "folder")
    assert repr(climbing) in str(caught.value)
    assert str(archive) in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("member", "kind"),
    [
        (special("evil", tarfile.SYMTYPE, "/etc"), "link"),
        (special("evil", tarfile.LNKTYPE, "good"), "link"),
        (special("evil", tarfile.FIFOTYPE), "special file"),
        (special("evil", tarfile.CHRTYPE), "special file"),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, member, kind):
    archive = tar_of(tmp_path / "a.tar.gz", ("good", b"1"), member, ("evil/passwd", b"2"))
    with pytest.raises(DataError, match=f"must be files or folders, got the {kind} 'evil'"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_in_a_zip_are_refused(tmp_path):
    link = zipfile.ZipInfo("evil")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = zip_of(tmp_path / "a.zip", ("good", b"1"), (link, "/etc"))
    with pytest.raises(DataError, match="must be files or folders, got the link 'evil'"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 1000)
    with pytest.raises(DataError, match="at most 1000 bytes, got 1001"):
        extract(tar_of(tmp_path / "a.tar.gz", ("bomb", bytes(1001))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("make", "name"), [(tar_of, "a.tar.gz"), (zip_of, "a.zip")])
@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_a_truncated_archive_is_refused(tmp_path, make, name, keep):
    archive = make(tmp_path / name, ("one", bytes(range(256)) * 100), ("two", b"2" * 10_000))
    content = archive.read_bytes()
    archive.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(DataError, match="must be a whole archive"):
        extract(archive, tmp_path / "out")
