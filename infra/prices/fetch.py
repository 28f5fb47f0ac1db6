"""Downloads the public price list of an AWS region; no account and no credentials are needed.

It takes the CSV form: hundreds of MB for a large region, which `infra.prices.offer` reads row by row.
"""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from rich.console import Console

from infra.local.errors import disk_full_is_plain, require_free_space
from infra.local.progress import step
from infra.prices.offer import OFFER, PriceListError

AWS_PRICE_LISTS = "https://pricing.us-east-1.amazonaws.com"
"""One address serves the lists of every region, those of China excepted."""

_TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
_CHUNK_BYTES = 1 << 20
_NEEDED_GIB = 1.0  # the list of us-east-1 has about 0.4 GB
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")


def download(region: str, directory: Path, console: Console, base: str = AWS_PRICE_LISTS) -> Path:
    """Put the offer file of a region into `directory` and return its path.

    Raises:
        PriceListError: no such region, or the list cannot be reached.
        DiskSpaceError: not enough space.
    """
    if not _REGION.fullmatch(region):
        raise PriceListError(f"{region[:40]!r} is not an AWS region; write e.g. us-east-1")
    url = f"{base}/offers/v1.0/aws/{OFFER}/current/{region}/index.csv"
    path = directory / f"{OFFER}-{region}.csv"
    require_free_space(directory, _NEEDED_GIB, "a price list")
    try:
        with (
            step(console, f"downloading the price list of {region}") as progress,
            disk_full_is_plain(directory),
            httpx2.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
            client.stream("GET", url) as response,
            path.open("wb") as stream,
        ):
            if response.status_code != httpx2.codes.OK:
                raise PriceListError(f"{url}: HTTP {response.status_code}; is {region} a region of AWS?")
            size = response.headers.get("content-length", "")
            total = int(size) / 1e6 if size.isdigit() else None
            for chunk in response.iter_bytes(_CHUNK_BYTES):
                stream.write(chunk)
                progress.update(stream.tell() / 1e6, total, "MB")
    except httpx2.HTTPError as error:
        raise PriceListError(
            f"{url} cannot be reached ({str(error) or type(error).__name__}); "
            "download it where there is a network, and give it by --from FILE"
        ) from error
    return path
