"""The command line."""

from graphmatern.cli._app import main

__all__ = ["main"]
