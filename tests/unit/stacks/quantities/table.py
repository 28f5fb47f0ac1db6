"""What every quantity accepts and refuses: (input, canonical form) and (input, words of the error)."""

from __future__ import annotations

from typing import Any, Final

from stacks import quantities

Good = list[tuple[object, object]]
Bad = list[tuple[object, str]]

TABLE: Final[dict[str, tuple[Any, Good, Bad]]] = {
    "Duration": (
        quantities.Duration,
        [("90s", "1m30s"), ("1h 30m", "1h30m"), ("1.5h", "1h30m"), ("0s", "0s"), ("2H", "2h"), ("1.4ms", "1ms")],
        [(90, "unit"), ("5 minutes", "units d, h, m or s"), ("20y", "2h"), ("9999d", "ten years"), (True, "unit")],
    ),
    "PositiveDuration": (quantities.PositiveDuration, [("2d", "2d")], [("0s", "at least 1ms"), ("0.1ms", "1ms")]),
    "Usd": (
        quantities.Usd,
        [
            ("20000 USD", "20000 USD"), ("$1,250.50", "1250.5 USD"), ("USD 20,000", "20000 USD"), ("20_000 USD", "20000 USD"),
            ("60k USD", "60000 USD"), ("$1.5M", "1500000 USD"), ("60 k USD", "60000 USD"), (1.1, "1.1 USD"), (7, "7 USD"),
            (1e-05, "0.00001 USD"), ("0", "0 USD"),
        ],
        [
            ("100 EUR", "convert to US dollars"), ("€5", "convert"), ("20.000,50", "20000.50 USD"), ("20,50", "two ways"),
            ("1,2,3", "groups thousands"), ("1.5m USD", "M is million"), ("-1", "negative"), ("1e9", "20000 USD"),
            (10**15, "quadrillion"), (float("nan"), "amount"), (float("inf"), "amount"), ("1.0000000000001", "12 decimals"),
            (None, "20000 USD"), (True, "20000 USD"), ("20'000", "20000 USD"),
        ],
    ),
    "Price": (quantities.Price, [("3.50", "3.5 USD")], [(0, "more than 0"), ("0.00 USD", "more than 0")]),
    "Memory": (
        quantities.Memory,
        [("1Ti", "1Ti"), ("512 GiB", "512Gi"), ("1024Mi", "1Gi"), (1001, "1001B"), ("1G", "1000000000B")],
        [("lots", "512Gi"), ("2048", "with a unit"), ("1" * 300 + "Pi", "8 EiB"), (0, "greater than 0"), (1.5, "1Ti"), (True, "1Ti")],
    ),
    "Percentage": (
        quantities.Percentage,
        [("20%", "20%"), (" 20 % ", "20%"), ("12.50%", "12.5%"), ("0%", "0%"), ("100%", "100%"), ("0.1%", "0.1%")],
        [(20, "20%"), (0.2, "fraction or a percentage"), ("20", "a %"), ("101%", "100%"), ("-1%", "0 to 100"), (None, "20%")],
    ),
    "Rate": (
        quantities.Rate,
        [("1.25 Gbps", "1.25 Gbps"), ("10Gbit/s", "10 Gbps"), ("500 Mbps", "500 Mbps"), ("1.25 Gb/s", "1.25 Gbps"),
         ("1500 mbps", "1.5 Gbps"), ("1 GB/s", "8 Gbps"), ("1MB/s", "8 Mbps"), ("999 bps", "999 bps"), ("1 kbps", "1 kbps")],
        [(10, "1.25 Gbps"), ("10", "Gbps"), ("10 GBps", "bits or bytes"), ("10 gb/s", "MB/s or GB/s"), ("0 bps", "at least 1"),
         ("0.5 bps", "whole number"), ("99999999 Tbps", "10,000 Tbps"), ("10 Gbps fast", "not a bandwidth")],
    ),
    "Cidr": (
        quantities.Cidr,
        [("10.0.0.0/16", "10.0.0.0/16"), (" 10.0.0.0 / 16 ", "10.0.0.0/16"), ("FD00:0:0::/8", "fd00::/8"), ("0.0.0.0/0", "0.0.0.0/0")],
        [("10.0.0.5/16", "the network is 10.0.0.0/16"), ("10.0.0.1", "10.0.0.1/32"), ("::1", "::1/128"), ("10.0.0.0/33", "0 to 32"),
         ("10.0.0.0/255.0.0.0", "prefix length"), ("10.0/16", "not a network"), (10, "10.0.0.0/16"), ("fe80::1%eth0/64", "not a network")],
    ),
    "Ipv4Cidr": (quantities.Ipv4Cidr, [("10.0.0.0/8", "10.0.0.0/8")], [("fd00::/8", "IPv4"), ("10.0.0.1", "/32")]),
    "InsideCidr": (
        quantities.InsideCidr,
        [("169.254.6.0/30", "169.254.6.0/30")],
        [("169.254.5.0/30", "reserved by AWS"), ("169.254.169.252/30", "reserved"), ("169.254.6.0/29", "not a /30"),
         ("10.0.0.0/30", "169.254.0.0/16"), ("169.254.6.1/30", "the network is 169.254.6.0/30"), ("fd00::/126", "IPv4")],
    ),
    "PublicIpAddress": (
        quantities.PublicIpAddress,
        [("203.0.113.7", "203.0.113.7"), ("8.8.8.8", "8.8.8.8"), ("2001:db8::7", "2001:db8::7")],
        [("10.0.0.1", "public"), ("100.64.0.1", "public"), ("224.0.0.1", "public"), ("169.254.0.1", "public"), ("::1", "public")],
    ),
    "Asn": (
        quantities.Asn,
        [(65010, 65010), ("AS65010", 65010), ("as 65010", 65010), ("1.10", 65546), ("4294967295", 4294967295)],
        [(1.1, "quotes"), (0, "1 to 4294967295"), (2**32, "1 to"), ("65536.1", "0 to 65535"), ("AS", "AS65010"), (True, "is true or false")],
    ),
    "KubeName": (quantities.KubeName, [("vision", "vision")], [("Vision_1", "try vision-1"), (7, "quote it"), ("a" * 64, "try a")]),
    "KubeDnsName": (
        quantities.KubeDnsName,
        [("crd.example.com", "crd.example.com"), ("a" * 253, "a" * 253)],
        [("A_b.C", "try a-b.c"), ("a..b", "try a.b"), ("a" * 254, "253"), (True, "is true or false"), ("", "llm-inference")],
    ),
    "ObjectReference": (
        quantities.ObjectReference,
        [("deployment/llm", "deployment/llm"), ("StatefulSet/db.x", "statefulset/db.x"), ("deploy / llm", "deployment/llm")],
        [("llm", "kind/name"), ("a/b/c", "kind/name"), ("deploymnt/a", "did you mean deployment"), ("deployment/A_b", "try a-b")],
    ),
    "KubeQuantity": (
        quantities.KubeQuantity,
        [
            ("500m", "500m"), ("0.5", "500m"), (0.25, "250m"), ("1000m", "1"), ("1000", "1k"), (2, "2"), ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"), ("0.5Ki", "512"), ("16 Gi", "16Gi"), ("1e3", "1e3"), ("1E", "1E"), ("1E3", "1e3"), ("100e1", "1e3"),
            ("1.1Gi", "1181116006400m"), (".5", "500m"), ("1.", "1"), ("0Gi", "0"), ("1e-20", "1e-9"), ("0.1n", "1n"),
            ("9223372036854775807", "9223372036854775807"), ("12e6", "12e6"), ("1e-3", "1e-3"), ("1E2", "100"),
        ],
        [
            ("16GiB", "no B"), ("-1", "negative"), ("9223372036854775808", "2^63-1"), ("8Ei", "2^63-1"), (1e30, "2^63-1"),
            (float("nan"), "2^63-1"), (10**4000, "2^63-1"), ("1e999", "2^63-1"), ("1e99999", "500m"), ("", "500m"), (".", "500m"), (True, "is true or false"),
        ],
    ),
    "TimeOfDay": (
        quantities.TimeOfDay,
        [("08:00", "08:00"), ("8:05", "08:05"), (1320, "22:00"), (0, "00:00"), (1439, "23:59")],
        [("24:00", "23:59"), ("8:60", "23:59"), (8, "hours or minutes"), (1440, "quotes"), (-1, "quotes"), ("8am", "08:00"), (8.5, "08:00"), (True, "is true or false")],
    ),
    "Days": (
        quantities.Days,
        [("Mon-Fri", "Mon-Fri"), ("sat, SUN", "Sat-Sun"), ("Mon,Wed-Fri", "Mon,Wed-Fri"), ("daily", "daily"), ("Mon–Sun", "daily"),
         ("Fri-Mon", "Mon,Fri-Sun"), (["Monday", "tues"], "Mon-Tue"), ("weekdays", "Mon-Fri"), ("weekends,Wed", "Wed,Sat-Sun"), ("Mon,Mon", "Mon")],
        [("Mun", "did you mean"), ("", "no day"), ([], "names no day"), ([1, 2], "Mon-Fri"), ("Mo", "did you mean Mon"), (1, "Mon-Fri"),
         (frozenset({8}), "1 to 7"), (frozenset(), "1 to 7"), (False, "is true or false"), ("Mon-", "no day"), ("Mon-Tue-Wed", "no day")],
    ),
    "TimeZone": (
        quantities.TimeZone,
        [("Europe/Berlin", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("utc", "UTC"), ("America/Argentina/Buenos_Aires",) * 2],
        [("CET", "summer time"), ("est", "Europe/Berlin"), ("+02:00", "summer time"), ("UTC+2", "summer time"), ("Europe/Berlim", "did you mean Europe/Berlin"),
         ("Europe", "no such"), ("../../etc/passwd", "no such"), ("localtime", "no such"), ("right/Europe/Berlin", "no such"), ("a\0b", "no such"), ("", "no such"), (False, "is true or false")],
    ),
    "Window": (
        quantities.Window,
        [
            ("22:00-06:00 Europe/Berlin",) * 2,
            ("Sat-Sun 00:00-24:00 UTC",) * 2,
            ("Mon-Fri 20:00-08:00 Europe/Berlin",) * 2,
            ("daily 8:00 – 0:00 utc", "08:00-24:00 UTC"),
            ("Mon, Wed-Fri 8:00-9:00  UTC", "Mon,Wed-Fri 08:00-09:00 UTC"),
            ("0 22 * * Mon-Fri for 8h Europe/Berlin", "Mon-Fri 22:00-06:00 Europe/Berlin"),
            ("30 8 * * 0,3-5 for 90m UTC", "Wed-Fri,Sun 08:30-10:00 UTC"),
            ("0 0 * * 0-7 for 24h UTC", "00:00-24:00 UTC"),
            ("0 0 * * 5-7 for 1d UTC", "Fri-Sun 00:00-24:00 UTC"),
            ("0 1 * * 0-1 for 1h UTC", "Mon,Sun 01:00-02:00 UTC"),
        ],
        [
            ("22:00-06:00", "time zone is missing"), ("22:00-22:00 UTC", "00:00-24:00"), ("24:00-06:00 UTC", "23:59"), ("22-06 UTC", "for example Mon-Fri"),
            ("Mun 22:00-06:00 UTC", "did you mean"), ("22:00-06:00 Europe/Berlim", "Europe/Berlin"), ("22:00-06:00 CET", "summer time"),
            ("0 22 * * *", "does not end it"), ("@daily", "does not end it"), ("*/5 22 * * 1 for 8h UTC", "one number each"), ("0 22,23 * * 1 for 1h UTC", "one number"),
            ("0 22 1 * * for 8h UTC", "must be *"), ("0 22 * 6 * for 8h UTC", "must be *"), ("0 22 * * 1#2 for 8h UTC", "list or a range"),
            ("0 22 * * */2 for 8h UTC", "list or a range"), ("0 22 * * 9 for 8h UTC", "no day"), ("0 22 * * 1 for 25h UTC", "1m to 24h"),
            ("0 22 * * 1 for 30s UTC", "whole minutes"), ("0 24 * * 1 for 1h UTC", "23:59"), ("0 8 * * 6 for 24h UTC", "00:00-24:00"), (1320, "Europe/Berlin"), (False, "is true or false"),
        ],
    ),
    "GpuName": (
        quantities.GpuName,
        [("h100-sxm-80gb",) * 2, ("H100_SXM 80GB", "h100-sxm-80gb"), ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"), ("l4", "l4-24gb")],
        [("A100", "a100-sxm-40gb, a100-sxm-80gb"), ("h100-sxm-90gb", "did you mean h100-sxm-80gb"), ("", "not a GPU"), ("NVIDIA", "not a GPU"), (100, "h100-sxm-80gb")],
    ),
    "MigItem": (
        quantities.MigItem,
        [("7x1g.5gb",) * 2, ("7 X 1g.5gb", "7x1g.5gb"), ("2×mig-3g.20gb", "2x3g.20gb"), ("1x3g.20gb", "3g.20gb"), ("1g.5gb+me",) * 2],
        [("0x1g.5gb", "at least 1"), ("7x", "MIG profile"), ("7x1c.3g.20gb", "compute instance"), ("", "7x1g.5gb"), ("7x7x1g.5gb", "MIG profile"), (7, "7x1g.5gb")],
    ),
    "GpuCount": (quantities.GpuCount, [(8, 8)], [("8", "integer"), (-1, "0"), (True, "integer")]),
}  # fmt: skip
