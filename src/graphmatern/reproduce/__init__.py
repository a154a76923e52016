"""The paper's table and figures, made again by one command, beside the paper's own."""

from graphmatern.reproduce._run import TARGETS, Options, reproduce

__all__ = ["TARGETS", "Options", "reproduce"]
