"""Files: written whole or not at all, model files without code in them, graphs and tables of many formats."""

from graphmatern.io._atomic import replacing
from graphmatern.io._container import read_container, write_container
from graphmatern.io._values import Codec, pack, unpack

__all__ = ["Codec", "pack", "read_container", "replacing", "unpack", "write_container"]
