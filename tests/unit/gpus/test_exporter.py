"""What dcgm-exporter says, from pages as it writes them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.eviction.sources import SourceDown
from runtime.gpus.exporter import Exporter, exported, filled
from runtime.gpus.reader import Gpu, Instance, Usage

COMMON = 'gpu="0",UUID="GPU-a",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB"'
MIG = f'{COMMON},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",hostname="node-1",DCGM_FI_DRIVER_VERSION="595.91.07"'
PAGE = f"""# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{MIG},container="t",namespace="ml",pod="a"}} 0.812500
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{MIG},container="t",namespace="ml",pod="b"}} 0.400000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{MIG},container="t",namespace="ml",pod="a\\"}}quoted"}} 0.250000
DCGM_FI_DEV_FB_USED{{{MIG}}} 4321
DCGM_FI_DEV_GPU_TEMP{{{MIG}}} 41
DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="GPU-b",Hostname="node-1"}} 37 1700000000000
DCGM_FI_DEV_FB_USED{{gpu="1",UUID="GPU-b"}} 100
DCGM_FI_PROF_SM_ACTIVE{{gpu="1",UUID="GPU-b"}} NaN
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="1",UUID="GPU-b"}} not-a-number
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="1",UUID=""}} 1
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="1",UUID="GPU-b",GPU_I_ID="seven"}} 1
DCGM_FI_PROF_DRAM_ACTIVE 1
"""
INSTANCE = Instance("MIG-1", 0, 7, 0, "1g.10gb", 14, 9728)
PARENT = Gpu("GPU-a", 0, "A100", "", 0, 81920, (8, 0), 108, True, True, (INSTANCE,))
UNTOLD = Usage("MIG-1", 4000, None, None, None, None, 2)


def test_series_are_read_by_gpu_and_instance() -> None:
    told = exported(PAGE)
    assert told.keys() == {("GPU-a", 7), ("GPU-b", None)}
    mig, whole = told["GPU-a", 7], told["GPU-b", None]
    assert (mig.active, mig.tensor_active, mig.memory_used_mib) == (0.8125, 0.25, 4321)
    assert (whole.active, whole.sm_active, whole.memory_bandwidth, whole.memory_used_mib) == (0.37, None, None, 100)


def test_only_what_nvml_left_open_is_filled_in() -> None:
    usage = filled(UNTOLD, PARENT, INSTANCE, exported(PAGE))
    assert (usage.memory_used_mib, usage.active, usage.tensor_active, usage.processes) == (4000, 0.8125, 0.25, 2)
    assert filled(UNTOLD, PARENT, PARENT, exported(PAGE)) is UNTOLD


@given(st.text(max_size=200))
def test_no_page_makes_it_fail(text: str) -> None:
    exported(text)
    exported(f"DCGM_FI_DEV_FB_USED{{{text}")
    exported(f'DCGM_FI_DEV_FB_USED{{UUID="{text}"}} {text}')


def test_an_exporter_is_asked_over_http() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = PAGE.encode() if self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            assert len(Exporter(f"{url}/metrics").read()) == 2
            with pytest.raises(SourceDown, match="404"):
                Exporter(f"{url}/else").read()
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(SourceDown):
        Exporter(f"{url}/metrics").read()
    with pytest.raises(ValueError, match="must start with http"):
        Exporter("localhost:9400")
