"""A pickle that asks for more than arrays is refused before anything happens."""

import contextlib
import os
import pickle
import resource
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.errors import DataError
from sfao.lab.data.restricted_pickle import load_pickle
from tests.lab.data.publishers import pictures, python2_batch

LIMIT = 1 << 20


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def written(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "inside", [lambda evil: evil, lambda evil: {b"data": evil}, lambda evil: {b"labels": [1, evil]}]
)
@pytest.mark.parametrize("how", ["system", "open", "eval", "exec"])
def test_a_malicious_pickle_is_refused_and_has_no_effect(tmp_path, protocol, inside, how):
    trace = tmp_path / "trace"
    evil = {
        "system": Evil(os.system, f"touch {trace}"),
        "open": Evil(open, str(trace), "w"),
        "eval": Evil(eval, f"open({str(trace)!r}, 'w').close()"),
        "exec": Evil(exec, f"open({str(trace)!r}, 'w').close()"),
    }[how]
    path = written(tmp_path, pickle.dumps(inside(evil), protocol=protocol))
    with pytest.raises(DataError, match=r"must name nothing but arrays, got .*; it was refused") as caught:
        load_pickle(path, LIMIT)
    assert not trace.exists()
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    ["numpy.testing\nrundocs", "numpy\nload", "numpy.core.multiarray\nscalar", "_codecs\ndecode", "antigravity\nx"],
)
def test_neighbours_of_the_allowed_names_are_not_allowed(tmp_path, name):
    modules = set(sys.modules)
    path = written(tmp_path, b"c" + name.encode() + b"\n.")
    with pytest.raises(DataError, match="got " + name.replace("\n", ".")):
        load_pickle(path, LIMIT)
    assert set(sys.modules) == modules  # not even imported


def test_other_codecs_are_not_run(tmp_path):
    path = written(tmp_path, b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.")
    with pytest.raises(DataError, match="must be written as latin1, got another"):
        load_pickle(path, LIMIT)


@given(st.data())
def test_no_damage_gives_anything_but_a_data_error_or_a_dictionary(tmp_path_factory, data):
    small = pictures(CIFAR10, train=5, test=1)
    content = bytearray(python2_batch(CIFAR10, small.test_images, small.test_labels))
    places = st.one_of(st.integers(0, 240), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.mktemp("pickle"), bytes(content))
    with contextlib.suppress(DataError):
        assert isinstance(load_pickle(path, LIMIT), dict)


def test_a_huge_index_takes_no_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    load_pickle(written(tmp_path, b"}r\x00\x00\x00\x10."), LIMIT)  # memoise at place 2**28
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # kilobytes
