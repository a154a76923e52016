"""Files that are downloaded once into the user's cache and checked against their SHA-256."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from graphmatern.errors import DataNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RemoteFile", "fetch"]

_GITHUB = "https://raw.githubusercontent.com/"
_ROADS = _GITHUB + "davidbolin/MetricGraph/99251baaae40b9cf96b110b91d2c114fe920b6cf/examples/data.pems/"
_PAPER = _GITHUB + "spbu-math-cs/Graph-Gaussian-Processes/5a8adcd52c19dd724a4e91d43f03847b5352b26e/examples/data/"
_TIMEOUT = 30.0  # seconds without a byte
_RETRIES = 1


@dataclass(frozen=True)
class RemoteFile:
    """Where a file comes from, its size in bytes, and the checksum that its content must have."""

    url: str
    size: int
    sha256: str


SOURCES = {
    "V.csv": RemoteFile(_ROADS + "V.csv", 19_785, "94ac021645069bb0608b4cde0ac5c4c4c76df73b6d27d9a8d14bd77daecabb93"),
    "E.csv": RemoteFile(_ROADS + "E.csv", 20_143, "84bf1157fff15e19bc5846e400a1dca1fba6e5fde93c1341a4e0b45b80c7027a"),
    "PtE.csv": RemoteFile(
        _ROADS + "PtE.csv", 7_537, "f1fdcecf5c4ec320c3bf30c20e3f781f122e8f13baff4493c9ac5d636fe569e7"
    ),
    "Y.csv": RemoteFile(_ROADS + "Y.csv", 45_011, "003c5deab8f551daff6dd8cbf7246076e97c55ef6468cfb5b53aa1e7cfc9d18d"),
    "lines.shp": RemoteFile(
        _ROADS + "lines.shp", 178_516, "7d8fa52bcb44775a77522bc1aa24312ec5fa37e3decc82e3f54c3b7204388a9c"
    ),
    "cora.zip": RemoteFile(
        _PAPER + "cora.zip", 185_370, "501edb16afa7ef6825401f9de0e892b34a66ce8df4502cb8c5cf60602e3ca1b1"
    ),
}


def fetch(names: Sequence[str], local: str) -> list[Path]:
    """Return the paths of files in the cache; those absent or damaged are downloaded first.

    A file appears under its name only when it is complete and its checksum right, so that an interrupted download
    leaves nothing that could be mistaken for it.

    Parameters
    ----------
    names : sequence of str
        Keys of ``SOURCES``.
    local : str
        How a copy at hand could be used instead; the last sentence of the message where a download fails.

    Returns
    -------
    list of Path

    Raises
    ------
    DataNotFoundError
        Where a file could be had neither from the cache nor from its source; says which file to put where.
    """
    import pooch  # slow to import, and needed only here

    cache = Path(pooch.os_cache("graphmatern"))
    store = pooch.create(
        path=cache,
        base_url="",
        registry={name: f"sha256:{SOURCES[name].sha256}" for name in names},
        urls={name: SOURCES[name].url for name in names},
        retry_if_failed=_RETRIES,
    )
    pooch.get_logger().setLevel(logging.WARNING)  # the progress bar says enough
    faults: dict[str, str] = {}
    for name in names:
        with tqdm(desc=name, total=SOURCES[name].size, unit="B", unit_scale=True, disable=None, leave=False) as bar:
            try:
                store.fetch(name, downloader=pooch.HTTPDownloader(progressbar=bar, timeout=_TIMEOUT))
            except (OSError, ValueError) as error:  # requests' exceptions are OSErrors, a wrong checksum a ValueError
                faults[name] = _reason(error)
                if not _is_about_the_file(error):
                    # Without a connection the other files would fail alike, each after its own wait.
                    faults |= {
                        other: "not tried" for other in names if other not in faults and not (cache / other).is_file()
                    }
                    break
    if faults:
        raise DataNotFoundError(_what_to_do(faults, cache, local))
    return [cache / name for name in names]


def _is_about_the_file(error: Exception) -> bool:
    """Whether the fault lies with one file (absent, damaged) rather than with the connection."""
    return isinstance(error, ValueError) or getattr(error, "response", None) is not None


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code}"
    if isinstance(error, ValueError):
        return "the checksum is wrong: the file was damaged on the way, or changed at its source"
    return f"no connection, or a broken one ({type(error).__name__})"


def _what_to_do(faults: dict[str, str], cache: Path, local: str) -> str:
    lines = [
        f"  {name}: {why}.\n    From {SOURCES[name].url}\n    to {cache / name}, SHA-256 {SOURCES[name].sha256}"
        for name, why in faults.items()
    ]
    return (
        f"{len(faults)} {'file' if len(faults) == 1 else 'files'} could not be downloaded. "
        "Try again, or download by other means:\n" + "\n".join(lines) + f"\n{local}"
    )
