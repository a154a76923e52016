"""Reads folders of bad input on several processes, and writes down what each of them said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from graphmatern.distributed import DistributedGraph, ending_together, world
from graphmatern.distributed._values import read_values
from graphmatern.errors import GraphMaternError


def main() -> None:
    processes = world()
    with ending_together(processes):
        said = {}
        for folder in sorted(Path(sys.argv[1]).iterdir()):
            own = ""
            try:
                graph = DistributedGraph.from_files(folder / "edges")
                read_values(graph, folder / "values.csv")
            except GraphMaternError as error:
                own = str(error)
            every = processes.gathered(own)
            assert len(set(every)) == 1, every
            said[folder.name] = own
        if processes.is_first:
            Path(sys.argv[2]).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
