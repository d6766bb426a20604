"""Reads the embedded digits when it is imported, so that processes forked from there need not parse them."""

from sfao.lab.data.sets import mnist_5k

mnist_5k.read(mnist_5k.find_file())
