"""`gpufleet catalog`: what it shows, and how it renews prices from an offer file."""

from __future__ import annotations

import csv
import io
import json
import threading
import tomllib
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from infra.commands import catalog
from infra.commands.catalog_text import gpu_text, instance_text
from infra.local.errors import LocalError
from infra.prices.fetch import download
from infra.prices.offer import PriceListError, read_offer
from infra.prices.table import format_price, with_prices
from stacks.catalogue import Accelerator, catalogue

PUBLISHED = "2026-11-20T18:03:11Z"
HEADING = [
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange", "EndingRange",
    "Unit", "PricePerUnit", "Currency", "Product Family", "serviceCode", "Location", "Instance Type", "vCPU", "Memory",
    "Tenancy", "Operating System", "License Model", "usageType", "operation", "CapacityStatus", "GPU", "MarketOption",
    "Pre Installed S/W", "Region Code",
]  # fmt: skip
PLAIN = {
    "TermType": "OnDemand",
    "StartingRange": "0",
    "EndingRange": "Inf",
    "Unit": "Hrs",
    "Currency": "USD",
    "Product Family": "Compute Instance",
    "serviceCode": "AmazonEC2",
    "Location": "US East (N. Virginia)",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "License Model": "No License required",
    "operation": "RunInstances",
    "CapacityStatus": "Used",
    "MarketOption": "OnDemand",
    "Pre Installed S/W": "NA",
    "Region Code": "us-east-1",
}
JSON_NAMES = {
    "Location": "location",
    "Instance Type": "instanceType",
    "Tenancy": "tenancy",
    "Operating System": "operatingSystem",
    "License Model": "licenseModel",
    "operation": "operation",
    "CapacityStatus": "capacitystatus",
    "GPU": "gpu",
    "MarketOption": "marketoption",
    "Pre Installed S/W": "preInstalledSw",
    "Region Code": "regionCode",
}

ROWS = [
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "54.1000000000", "GPU": "8"},
    {"Instance Type": "g6.xlarge", "PricePerUnit": "0.8048000000", "GPU": "1"},
    {"Instance Type": "g4dn.metal", "PricePerUnit": "7.824", "GPU": "8", "Product Family": "Compute Instance (bare metal)"},
    {"Instance Type": "g9.xlarge", "PricePerUnit": "1.5", "GPU": "1"},
    {"Instance Type": "m5.large", "PricePerUnit": "0.096"},
    # What must not be taken for the plain price:
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "60.5", "Tenancy": "Dedicated"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "61.5", "Operating System": "Windows"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "62.5", "Pre Installed S/W": "SQL Std"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "63.5", "CapacityStatus": "UnusedCapacityReservation"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "0.0000000000", "MarketOption": "CapacityBlock"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "0.0", "CapacityStatus": "Used"},
    {"Instance Type": "p5.48xlarge", "PricePerUnit": "300000", "Unit": "Quantity"},
]  # fmt: skip


def csv_text(rows: list[dict[str, str]], published: str = PUBLISHED, offer: str = "AmazonEC2") -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([
        ["FormatVersion", "v1.0"],
        ["Disclaimer", "This pricing list is for informational purposes only."],
        ["Publication Date", published],
        ["Version", "20261120180311"],
        ["OfferCode", offer],
        HEADING,
    ])  # fmt: skip
    for number, row in enumerate(rows):
        writer.writerow([({"SKU": f"SKU{number}"} | PLAIN | row).get(name, "") for name in HEADING])
    return stream.getvalue()


def json_text(rows: list[dict[str, str]], published: str = PUBLISHED, offer: str = "AmazonEC2") -> str:
    products: dict[str, Any] = {}
    terms: dict[str, Any] = {}
    for number, changed in enumerate(rows):
        row, sku = PLAIN | changed, f"SKU{number}"
        attributes = {theirs: row[ours] for ours, theirs in JSON_NAMES.items() if ours in row}
        products[sku] = {"sku": sku, "productFamily": row["Product Family"], "attributes": attributes}
        rate = {"unit": row["Unit"], "pricePerUnit": {row["Currency"]: row["PricePerUnit"]}, "beginRange": "0"}
        term = {"offerTermCode": "JRTCKXETXF", "sku": sku, "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": rate}}
        terms[sku] = {f"{sku}.JRTCKXETXF": term}
    products["STORAGE"] = {"sku": "STORAGE", "productFamily": "Storage", "attributes": {"volumeApiName": "gp3"}}
    terms["STORAGE"] = {"STORAGE.X": {"priceDimensions": {"S": {"unit": "GB-Mo", "pricePerUnit": {"USD": "0.08"}}}}}
    return json.dumps({
        "formatVersion": "v1.0",
        "offerCode": offer,
        "version": "20261120180311",
        "publicationDate": published,
        "products": products,
        "terms": {"OnDemand": terms, "Reserved": {}},
    })  # fmt: skip


FORMS = pytest.mark.parametrize("form", [csv_text, json_text])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the table, so that --write cannot touch the checkout's."""
    path = tmp_path / "aws.toml"
    path.write_bytes(catalog._aws_table().read_bytes())
    monkeypatch.setattr(catalog, "_aws_table", lambda: path)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(catalog.app, arguments, env={"COLUMNS": "200"})


def refused(*arguments: str) -> str:
    ended = run(*arguments)
    assert isinstance(ended.exception, LocalError)
    assert ended.stdout == ""
    return str(ended.exception)


def offer_file(folder: Path, text: str) -> str:
    path = folder / "offer"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", ["h100-sxm", "H100-SXM-80GB", "NVIDIA H100 SXM5"])
def test_a_gpu_is_shown_by_any_name_that_only_it_has_with_its_profiles(name: str) -> None:
    shown = run("show", name).stdout

    assert shown == run("show", "h100-sxm-80gb").stdout
    assert "80 GiB" in shown
    assert "NVIDIA data sheets; SM counts as CUDA reports them (2026-08-31)" in shown
    assert ["3g.40gb", "3", "4", "2", "60", "40448", "3", "0", "3", "0,4"] in [
        line.split() for line in shown.splitlines()
    ]


def test_a_gpu_without_mig_says_so() -> None:
    lines = run("show", "l4-24gb").stdout.splitlines()
    assert ["MIG", "no"] in [line.split() for line in lines]


def test_an_instance_type_is_shown_with_its_prices_and_where_they_come_from() -> None:
    shown = run("show", "p5.48xlarge").stdout
    assert "8 x h100-sxm-80gb" in shown
    assert "spot, on-demand, reserved, capacity-block" in shown
    assert "zz_generated.pricing_aws.go (2026-07-06)" in shown
    assert ["us-east-1", "55.0400", "6.8800", "2026-07-06"] in [line.split() for line in shown.splitlines()]


def test_a_price_that_is_not_known_is_said_not_left_out() -> None:
    assert "not known; set usd_per_gpu_hour on the pool" in run("show", "p5e.48xlarge").stdout


def test_everything_can_be_shown() -> None:
    for gpu in catalogue().gpus.values():
        assert gpu.source in "\n".join(gpu_text(gpu))
    for row in catalogue().instance_types.values():
        assert row.source in "\n".join(instance_text(row))


@pytest.mark.parametrize("name", ["l40s", "t4-16gb", "p5.48xlarge"])
def test_json_has_every_field_of_the_row(name: str) -> None:
    shown = json.loads(run("show", name, "--json").stdout)
    assert shown["id"].startswith(name)
    assert date.fromisoformat(shown["as_of"]) <= date.today()


@pytest.mark.parametrize("name", ["amd", "AMD", "amd.com/gpu", "amd.com/cpx_nps4"])
def test_a_family_of_accelerators_is_shown_by_its_name_and_by_what_pods_ask_for(name: str) -> None:
    text = run("show", name).stdout
    assert text.startswith("amd: AMD Instinct\n")
    assert "spx (1 parts), dpx (2 parts)" in text
    assert "nps4 (with cpx only)" in text
    assert "amd.com/gpu.product-name (product)" in text


@pytest.mark.parametrize("family", catalogue().accelerators.values(), ids=lambda family: family.id)
def test_every_family_of_accelerators_is_shown_with_its_source(family: Accelerator) -> None:
    assert family.source in run("show", family.id).stdout
    assert json.loads(run("show", family.id, "--json").stdout)["resource"] == family.resource


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    assert refused("show", "p5.48xlrage") == "p5.48xlrage is not in the catalogue; did you mean p5.48xlarge?"
    assert "no instance type, and not a GPU model" in refused("show", "")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("p5", ("p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge")),
        ("H100", ("h100-pcie-80gb", "h100-nvl-94gb", "h100-sxm-80gb", "h100-96gb")),
        ("nvidia a100", ("a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb")),
    ],
)
def test_a_name_that_several_share_is_refused_with_all_of_them(name: str, known: tuple[str, ...]) -> None:
    assert f"can be any of {', '.join(known)}; write which" in refused("show", name)


def test_an_instance_type_may_be_written_in_any_case() -> None:
    assert run("show", "P5.48XLARGE").stdout == run("show", "p5.48xlarge").stdout


def test_completion_belongs_to_the_whole_command_line() -> None:
    assert "completion" not in run("--help").stdout


def test_a_search_lists_the_cheapest_gpu_hour_first_and_unknown_prices_last() -> None:
    found = json.loads(run("search", "--json").stdout)
    prices = [None if row["usd_per_gpu_hour"] is None else Decimal(row["usd_per_gpu_hour"]) for row in found]
    known = [price for price in prices if price is not None]

    assert len(found) == len(catalogue().instance_types)
    assert known == sorted(known)
    assert prices[len(known) :] == [None] * (len(prices) - len(known))
    assert len(run("search").stdout.splitlines()) == len(found) + 1


def test_a_search_can_be_narrowed() -> None:
    arguments = ("search", "a3-", "--gpu", "H100-SXM", "--provider", "gcp", "--region", "us-east4", "--min-gpus", "4")
    found = json.loads(run(*arguments, "--json").stdout)

    assert {row["id"] for row in found} == {"a3-highgpu-4g", "a3-highgpu-8g", "a3-megagpu-8g"}
    assert {row["region"] for row in found} == {"us-east4"}


def test_a_search_finds_by_architecture_in_any_case() -> None:
    gpus = {row["gpu"] for row in json.loads(run("search", "TURING", "--json").stdout)}
    assert gpus == {"t4-16gb"}


def test_a_search_that_finds_nothing_is_no_failure() -> None:
    ended = run("search", "quantum")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "no instance type matches\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "--gpu", "h100-smx"), "did you mean h100-sxm-80gb?"),
        (
            ("search", "--gpu", "h100"),
            "can be any of h100-96gb, h100-nvl-94gb, h100-pcie-80gb, h100-sxm-80gb; write which",
        ),
        (("search", "--provider", "azure"), "'azure' is not one of 'aws', 'gcp'"),
        (("search", "--region", "us-centrall"), "us-centrall has no price in the catalogue; did you mean us-central1?"),
        (("search", "--region", "us-central1", "--provider", "aws"), "did you mean us-east-1?"),
        (
            ("search", "--region", "eu-central-1"),
            "known: us-east-1; add its prices with `gpufleet catalog refresh --region eu-central-1 --write`",
        ),
        (("search", "--region", "us-east-9"), "us-east-9 has no price in the catalogue; did you mean us-east"),
        (("search", "--min-gpus", "0"), "greater than or equal to 1"),
        (("refresh", "--provider", "gcp"), "the Cloud Billing catalog needs an API key"),
    ],
)
def test_a_wrong_option_is_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert said in " ".join(ended.stderr.replace("│", " ").split())


@FORMS
def test_an_offer_file_of_either_form_gives_the_plain_linux_prices(form: Any, tmp_path: Path) -> None:
    prices = read_offer(Path(offer_file(tmp_path, form(ROWS))), "us-east-1")

    assert prices.published.isoformat() == "2026-11-20"
    assert prices.usd_per_hour == {
        "p5.48xlarge": Decimal("54.1"),
        "g6.xlarge": Decimal("0.8048"),
        "g4dn.metal": Decimal("7.824"),
        "g9.xlarge": Decimal("1.5"),
        "m5.large": Decimal("0.096"),
    }
    assert prices.with_gpus == {"p5.48xlarge", "g6.xlarge", "g4dn.metal", "g9.xlarge"}


@FORMS
def test_a_refresh_prints_the_change_and_writes_nothing(form: Any, tmp_path: Path, table: Path) -> None:
    before = table.read_bytes()
    ended = run("refresh", "--from", offer_file(tmp_path, form(ROWS)))
    changed = [line.split() for line in ended.stdout.splitlines() if line.startswith(("+", "-"))]

    assert ended.exit_code == 0
    assert ['-"p5.48xlarge"', "=", '"55.040000"'] in changed
    assert ['+"p5.48xlarge"', "=", '"54.100000"'] in changed
    assert ["+as_of", "=", "2026-11-20"] in changed
    assert not any("g6.xlarge" in words[0] for words in changed), "its price is the same"
    assert "have a GPU: g9.xlarge" in ended.stderr
    assert table.read_bytes() == before


@FORMS
def test_a_program_gets_what_a_refresh_changes(form: Any, tmp_path: Path, table: Path) -> None:
    source = offer_file(tmp_path, form(ROWS))
    row = json.loads(run("refresh", "--from", source, "--json").stdout)

    assert {"p5.48xlarge", "g5.xlarge"} <= set(row["changed"]), "one has another price, and one none any more"
    assert "g6.xlarge" not in row["changed"]
    assert row["unknown"] == ["g9.xlarge"]
    assert row["diff"] + "\n" == run("refresh", "--from", source, "--write").stdout
    again = json.loads(run("refresh", "--from", source, "--json").stdout)
    assert again == {"changed": [], "unknown": ["g9.xlarge"], "diff": ""}


def test_a_table_that_cannot_be_written_stays_whole(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, mode = table.read_bytes(), table.stat().st_mode
    source = offer_file(tmp_path, csv_text(ROWS))

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", fails)
        ended = run("refresh", "--from", source, "--write")
    assert "cannot be written (No space left on device); apply the diff with git apply" in str(ended.exception)
    assert (table.read_bytes(), sorted(tmp_path.iterdir())) == (before, sorted([table, Path(source)]))
    assert run("refresh", "--from", source, "--write").exit_code == 0
    assert table.stat().st_mode == mode


def test_write_changes_the_table_as_the_diff_says_and_a_second_run_changes_nothing(tmp_path: Path, table: Path) -> None:
    old = tomllib.loads(table.read_text())
    source = offer_file(tmp_path, csv_text(ROWS))
    assert "wrote stacks/catalog/aws.toml" in run("refresh", "--from", source, "--write").stderr
    new = tomllib.loads(table.read_text())

    assert new["types"] == old["types"]
    assert new["prices"]["us-east-1"] == {
        "as_of": date(2026, 11, 20),
        "source": "AWS price list AmazonEC2 us-east-1, version 20261120180311",
        "g4dn.metal": "7.824000",
        "g6.xlarge": "0.804800",
        "p5.48xlarge": "54.100000",
    }
    again = run("refresh", "--from", source, "--write")
    assert again.stdout == ""
    assert "no price of us-east-1 has changed" in again.stderr


def test_a_new_region_gets_a_section_in_its_place_and_the_rest_stays(tmp_path: Path, table: Path) -> None:
    before = table.read_text()
    rows = [row | {"Region Code": "eu-west-1"} for row in ROWS]
    assert (
        run("refresh", "--region", "eu-west-1", "--from", offer_file(tmp_path, csv_text(rows)), "--write").exit_code
        == 0
    )
    after = table.read_text()

    assert list(tomllib.loads(after)["prices"]) == ["eu-west-1", "us-east-1"]
    removed = [line for line in before.splitlines() if line not in after.splitlines()]
    assert removed == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no heading that begins with SKU"),
        ("\x00\x01junk", "no heading that begins with SKU"),
        ('"SKU","TermType"\n', "no column "),
        ('"FormatVersion","v1.0"\n' * 100_000, "no heading that begins with SKU"),
        (csv_text([]), "it has no Linux on-demand prices at all"),
        (csv_text([row | {"Region Code": "eu-west-1"} for row in ROWS]), "no price of us-east-1; it has eu-west-1"),
        (csv_text(ROWS)[:-40], "is the file cut short?"),
        (csv_text(ROWS, published="yesterday"), "Invalid isoformat string"),
        (csv_text(ROWS, offer="AmazonS3"), "an offer file of 'AmazonS3'"),
        (csv_text([*ROWS, ROWS[0] | {"PricePerUnit": "1.0"}]), "two prices of p5.48xlarge in us-east-1: 54.1000000000 and 1.0"),
        (csv_text([ROWS[0] | {"PricePerUnit": "free"}]), "a price is not a number"),
        (csv_text([ROWS[0] | {"PricePerUnit": "-3"}]), "costs -3 USD an hour"),
        (csv_text([ROWS[0] | {"PricePerUnit": "1e99"}]), "costs 1E+99 USD an hour"),
        (csv_text([ROWS[0] | {"PricePerUnit": "NaN"}]), "a price is not a number"),
        (csv_text([ROWS[4]]), "no price of any type of the catalogue"),
        (csv_text(ROWS, published="2026-01-01T00:00:00Z"), "the table has prices of 2026-07-06; take a newer list"),
        ("{}", "no offerCode"),
        ("{", "Expecting property name"),
        ('{"offerCode": [], "publicationDate": 1, "version": 2}', "an offer file of []"),
        ('{"a":' * 100_000, "nested too deeply"),
        (json_text(ROWS).replace('"OnDemand": {', '"Spot": {'), "no OnDemand"),
        (json_text(ROWS, offer="AmazonS3"), "an offer file of 'AmazonS3'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    text: str, reason: str, tmp_path: Path, table: Path
) -> None:
    before = table.read_bytes()
    assert reason in refused("refresh", "--from", offer_file(tmp_path, text), "--write")
    assert table.read_bytes() == before


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\xff\xfe\x00" * 100)
    assert "it is not text" in refused("refresh", "--from", str(tmp_path / "junk"))
    assert "No such file" in refused("refresh", "--from", str(tmp_path / "nothing"))
    assert "Is a directory" in refused("refresh", "--from", str(tmp_path))


def test_a_table_that_cannot_be_told_apart_is_left_alone() -> None:
    text = '[types]\na = {}\n[prices.b]\nas_of = 2026-01-01\nsource = """\n[prices.c]\n"""\n'
    with pytest.raises(PriceListError, match="cannot be told apart"):
        with_prices(text, "c", {"a": Decimal(1)}, "source", date(2026, 1, 2))


@pytest.mark.parametrize(
    ("usd", "text"),
    [("55.0400000000", "55.040000"), ("7", "7.000000"), ("0.1234567", "0.1234567"), ("1E+1", "10.000000")],
)
def test_equal_prices_read_alike(usd: str, text: str) -> None:
    assert format_price(Decimal(usd)) == text


class Server(HTTPServer):
    status = 200
    content = b""
    asked = ""


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            serving.asked = self.path
            self.send_response(serving.status)
            self.send_header("content-length", str(len(serving.content)))
            self.end_headers()
            self.wfile.write(serving.content)

        def log_message(self, *_: object) -> None:
            pass

    serving = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_the_list_of_a_region_is_downloaded_and_read(server: Server, tmp_path: Path) -> None:
    server.content = csv_text(ROWS).encode()
    path = download("us-east-1", tmp_path, Console(quiet=True), f"http://127.0.0.1:{server.server_port}")

    assert server.asked == "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"
    assert read_offer(path, "us-east-1").usd_per_hour["p5.48xlarge"] == Decimal("54.1")


def test_a_list_that_is_not_there_or_a_host_that_cannot_be_reached_is_plain(server: Server, tmp_path: Path) -> None:
    server.status = 403
    quiet = Console(quiet=True)
    with pytest.raises(PriceListError, match="HTTP 403; is xx-moon-1 a region of AWS"):
        download("xx-moon-1", tmp_path, quiet, f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(PriceListError, match=r"cannot be reached .* give it by --from FILE"):
        download("us-east-1", tmp_path, quiet, "http://127.0.0.1:1")


@pytest.mark.parametrize("region", ["", "us-east-1/../../x", "US-EAST-1", "us-east-1a", "a" * 1000])
def test_what_is_no_region_is_refused_before_anything_is_asked(region: str) -> None:
    message = refused("refresh", "--region", region)
    assert "is not an AWS region; write e.g. us-east-1" in message
    assert len(message) < 120
