"""``python -m graphmatern``: the command line, where the console script is not on the path."""

from graphmatern.cli import main

main()
