"""Tests of tensors in shared memory, and of their errors."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import shared_memory

from app.errors import RefusedError
from app.http.main import create_app
from app.protocol.v2.shared_memory import MemoryRegions, RegionSlice
from app.settings import Settings, SettingsError
from tests.app.client import Client, serving
from tests.app.http.v2.messages import refused, tensor
from tests.app.pictures import png
from tests.app.sockets import listening
from tests.app.v2_models import write_simple, write_v2_zoo
from tests.held import open_files

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
SIZE = X.nbytes
HUGE = [2**31 - 1, 2**31, 2**63 - 1]


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("sharing")
    write_v2_zoo(store)
    with serving(store, shared_memory=True) as client:
        yield client


@pytest.fixture
def memory(sharing: Client) -> Iterator[SharedMemory]:
    """Create 4 KiB that begin with X, registered as "region"."""
    made = SharedMemory(create=True, size=4096)
    made.buf[:SIZE] = X.tobytes()
    assert register(sharing, f"/{made.name}").status_code == 200
    yield made
    assert sharing.post("/v2/systemsharedmemory/unregister").status_code == 200
    made.close()
    made.unlink()


def register(client: Client, key: object, name: str = "region", **more: Any) -> Any:
    wanted = {"key": key, "offset": 0, "byte_size": 4096, **more}
    return client.post(f"/v2/systemsharedmemory/region/{name}/register", json=wanted)


def region_slice(region: str = "region", size: object = SIZE, **more: object) -> dict[str, Any]:
    return {"shared_memory_region": region, "shared_memory_byte_size": size, **more}


def row(parameters: dict[str, Any], shape: tuple[int, ...] = X.shape, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": "INPUT0", "datatype": datatype, "shape": list(shape), "parameters": parameters}


def ask(client: Client, given: dict[str, Any], wanted: dict[str, Any] | None = None, model: str = "simple") -> Any:
    outputs = {} if wanted is None else {"outputs": [{"name": "OUTPUT0", "parameters": wanted}]}
    return client.post(f"/v2/models/{model}/infer", json={"inputs": [given], **outputs})


def test_a_tensor_is_read_from_memory_and_the_answer_put_there(sharing: Client, memory: SharedMemory) -> None:
    answer = ask(sharing, row(region_slice()), region_slice(size=SIZE, shared_memory_offset=1024))
    assert answer.json()["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [3, 16]}]
    found = np.frombuffer(memory.buf, np.float32, X.size, 1024).reshape(X.shape)
    np.testing.assert_array_equal(found, X + 1)
    del found


def test_memory_is_mixed_with_json_either_way(sharing: Client, memory: SharedMemory) -> None:
    data = ask(sharing, row(region_slice())).json()["outputs"][0]["data"]
    np.testing.assert_array_equal(np.array(data, np.float32).reshape(X.shape), X + 1)
    answer = ask(sharing, tensor("INPUT0", "FP32", 2 * X), region_slice(shared_memory_offset=512))
    assert answer.status_code == 200
    assert bytes(memory.buf[512 : 512 + SIZE]) == (2 * X + 1).tobytes()
    assert bytes(memory.buf[512 + SIZE : 2048]) == bytes(2048 - 512 - SIZE)


def test_a_picture_is_read_from_memory(sharing: Client, memory: SharedMemory) -> None:
    body = png(2, 2, "L")
    tail = len(body).to_bytes(4, "little") + body
    memory.buf[: len(tail)] = tail
    given = {**row(region_slice(size=len(tail)), (1,), "BYTES"), "name": "in0"}
    assert ask(sharing, given, model="shades").status_code == 200


def test_regions_are_shown_by_name_and_forgotten_one_by_one(sharing: Client, memory: SharedMemory) -> None:
    assert register(sharing, f"/{memory.name}", "other", offset=64, byte_size=8).status_code == 200
    base = "/v2/systemsharedmemory"
    mine = {"name": "region", "key": f"/{memory.name}", "offset": 0, "byte_size": 4096}
    other = {**mine, "name": "other", "offset": 64, "byte_size": 8}
    assert sharing.get(f"{base}/status").json() == [mine, other]
    assert sharing.get(f"{base}/region/other/status").json() == [other]
    assert "already" in refused(register(sharing, memory.name, "other"))
    assert sharing.post(f"{base}/region/other/unregister").status_code == 200
    refused(sharing.get(f"{base}/region/other/status"), 404)
    assert sharing.post(f"{base}/region/other/unregister").status_code == 200
    assert "Unable to find" in refused(ask(sharing, row(region_slice("other", size=8))))


def test_the_server_says_that_it_shares_memory(sharing: Client) -> None:
    assert "system_shared_memory" in sharing.get("/v2").json()["extensions"]


@pytest.mark.parametrize(
    "key",
    ["", "/", "//x", "/../etc/passwd", "../../etc/passwd", "/.", "..", "/a/b", "/.hidden", "/a\0b", "/a\n", "/ä",
     "/" + 256 * "x", "/no-such-memory-of-anybody", None, 7, ["/a"]],
)  # fmt: skip
def test_a_key_is_the_name_of_memory_and_nothing_else(sharing: Client, key: object) -> None:
    text = refused(register(sharing, key))
    assert "shared memory" in text and "/dev/shm" not in text


def test_memory_that_is_a_link_a_folder_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    shared = tmp_path / "shm"
    (shared / "folder").mkdir(parents=True)
    (shared / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(shared / "pipe")
    for name in ("folder", "link", "pipe"):
        with pytest.raises(RefusedError):
            MemoryRegions(shared).register("r", {"key": f"/{name}", "byte_size": 1})


def test_memory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").write_bytes(bytes(64))
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(RefusedError, match="found a file of another user"):
        MemoryRegions(tmp_path).register("r", {"key": "/theirs", "byte_size": 64})


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 0), (0, -1), (-1, 1), (0, 4097), (1, 4096), (4096, 1), (0, None), (0, "4096"), (0, 1.0), (True, 1),
     *((value, 1) for value in HUGE), *((0, value) for value in HUGE), *((value, value) for value in HUGE),
     (0, 2**64), (2**64, 1)],
)  # fmt: skip
def test_a_region_lies_within_its_memory(sharing: Client, memory: SharedMemory, offset: object, size: object) -> None:
    refused(register(sharing, memory.name, "bad", offset=offset, byte_size=size))


@pytest.mark.parametrize(
    ("offset", "size"),
    [(4096, SIZE), (4096 - SIZE + 1, SIZE), (0, 4097), (-1, SIZE), (0, -1), (0, SIZE - 1), (0, 0), (0, None),
     (0, "1"), (1.5, SIZE), *((value, SIZE) for value in HUGE), *((value, value) for value in HUGE), (0, 2**64)],
)  # fmt: skip
def test_a_place_lies_within_its_region(sharing: Client, memory: SharedMemory, offset: object, size: object) -> None:
    before = bytes(memory.buf)
    bad = region_slice(size=size, shared_memory_offset=offset)
    refused(ask(sharing, row(bad)))
    refused(ask(sharing, tensor("INPUT0", "FP32", X), bad))
    assert bytes(memory.buf) == before


@pytest.mark.parametrize("size", [SIZE - 4, SIZE + 1, 4096])
def test_a_place_of_another_length_than_its_tensor_is_refused(sharing: Client, memory: SharedMemory, size: int) -> None:
    message = refused(ask(sharing, row(region_slice(size=size))))
    assert f"found shared_memory_byte_size {size}, expected {SIZE}" in message


@pytest.mark.parametrize(
    "parameters",
    [{"shared_memory_region": 7}, {"shared_memory_region": ""}, {"shared_memory_region": "region"},
     {**region_slice(), "binary_data_size": SIZE}, {**region_slice(), "shared_memory_region": None}, region_slice("")],
)  # fmt: skip
def test_parameters_that_name_no_place_are_refused(
    sharing: Client, memory: SharedMemory, parameters: dict[str, Any]
) -> None:
    refused(ask(sharing, row(parameters)))


def test_classes_are_not_put_into_memory(sharing: Client, memory: SharedMemory) -> None:
    assert "found classification" in refused(ask(sharing, row(region_slice()), {**region_slice(), "classification": 3}))


def test_memory_that_is_cut_off_is_an_error_and_no_end_of_the_server(sharing: Client, memory: SharedMemory) -> None:
    os.truncate(f"/dev/shm/{memory.name}", 64)
    assert "was truncated" in refused(ask(sharing, row(region_slice())))
    assert "was truncated" in refused(ask(sharing, tensor("INPUT0", "FP32", X), region_slice()))
    assert os.stat(f"/dev/shm/{memory.name}").st_size == 64
    os.truncate(f"/dev/shm/{memory.name}", 4096)
    assert ask(sharing, row(region_slice())).status_code == 200


def test_memory_whose_name_is_gone_is_there_until_it_is_forgotten(sharing: Client) -> None:
    made = SharedMemory(create=True, size=4096)
    made.buf[:SIZE] = X.tobytes()
    register(sharing, made.name)
    made.close()
    made.unlink()
    assert ask(sharing, row(region_slice())).status_code == 200
    sharing.post("/v2/systemsharedmemory/unregister")
    refused(ask(sharing, row(region_slice())))


def test_requests_and_registrations_at_once_leave_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(X.tobytes())
    regions, wanted = MemoryRegions(tmp_path), {"key": "mine", "byte_size": SIZE}
    regions.register("first", wanted)

    def work(index: int) -> int:
        name, wrong = str(index % 4), 0
        for _ in range(50):
            try:
                regions.register(name, wanted)
                found = regions.read(RegionSlice(region=name, size=SIZE, offset=0), "x")
                wrong += bytes(found) != X.tobytes()
            except RefusedError:
                pass
            regions.unregister(name if index % 3 else None)
        return wrong

    assert open_files(tmp_path / "mine") == 1
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    regions.unregister()
    gc.collect()
    assert not open_files(tmp_path / "mine") and not regions.show()


def test_there_are_not_more_regions_than_there_may_be(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(bytes(8))
    regions = MemoryRegions(tmp_path)
    for index in range(256):
        regions.register(str(index), {"key": "mine", "byte_size": 8})
    with pytest.raises(RefusedError, match="256"):
        regions.register("one more", {"key": "mine", "byte_size": 8})


def test_without_the_setting_nothing_is_registered_read_or_written(tmp_path: Path) -> None:
    write_simple(tmp_path)
    with serving(tmp_path) as client:
        assert "not enabled" in refused(register(client, "x"))
        assert "not enabled" in refused(ask(client, row(region_slice())))
        assert "not enabled" in refused(ask(client, tensor("INPUT0", "FP32", X), region_slice()))


def test_several_workers_share_no_memory_with_clients(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="shared_memory: found 2 workers"):
        create_app(Settings(store=tmp_path, shared_memory=True, workers=2))


def test_tritonclient_shares_memory_with_the_server(tmp_path: Path) -> None:
    write_simple(tmp_path)
    names = [f"/pnnx-{secrets.token_hex(8)}" for _ in range(2)]
    given, wanted = (shared_memory.create_shared_memory_region(name[1:], name, SIZE) for name in names)
    try:
        shared_memory.set_shared_memory_region(given, [X])
        with (
            listening(tmp_path, shared_memory=True) as front,
            triton.InferenceServerClient(f"127.0.0.1:{front.port}") as client,
        ):
            client.unregister_system_shared_memory()
            client.register_system_shared_memory("given", names[0], SIZE)
            client.register_system_shared_memory("wanted", names[1], SIZE)
            assert [each["name"] for each in client.get_system_shared_memory_status()] == ["given", "wanted"]
            tensor_in, tensor_out = (
                triton.InferInput("INPUT0", X.shape, "FP32"),
                triton.InferRequestedOutput("OUTPUT0"),
            )
            tensor_in.set_shared_memory("given", SIZE)
            tensor_out.set_shared_memory("wanted", SIZE)
            answer = client.infer("simple", [tensor_in], outputs=[tensor_out])
            assert answer.get_output("OUTPUT0") == {"name": "OUTPUT0", "datatype": "FP32", "shape": [3, 16]}
            found = shared_memory.get_contents_as_numpy(wanted, np.float32, X.shape)
            np.testing.assert_array_equal(found, X + 1)
            client.unregister_system_shared_memory()
    finally:
        for each in (given, wanted):
            shared_memory.destroy_shared_memory_region(each)
