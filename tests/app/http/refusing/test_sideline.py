"""Who was refused and asks again at once is looked at later, gets what others get, and is never left alone for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.http.refusing import refused, sideline
from app.http.refusing.refused import Refused
from app.http.refusing.sideline import HELD_S, Sideline
from app.http.refusing.syscalls import Syscalls
from app.http.refusing.visits import Closed, Target
from tests.app.http.refusing.test_gate import V2, Loop, closed, gate_of, one, post, received
from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import LIVE, Front, listening
from tests.patience import until


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("sideline")
    write_model(folder, "one", elementwise("add(@0,1)", "(?,3)f32"))
    with listening(folder, warmup=False, backend="reference") as made:
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nobody is as quick."""
    monkeypatch.setattr(refused, "_SOON_S", 3600.0)
    monkeypatch.setattr(sideline, "_LEFT_S", 3600.0)


def of(front: Front, connection: socket.socket) -> Refused:
    """What the server keeps of a connection's refusals."""
    here = connection.getsockname()
    (own,) = [each for each in front.server.server_state.connections if each.client == here]
    return own._refused  # type: ignore[union-attr, return-value]


def refused_again(connection: socket.socket, request: bytes) -> None:
    """Until the connection is left alone."""
    for _ in range(2):
        assert one(connection, request)[0] == 429


def test_the_same_request_is_refused_as_ever_and_counted_each_time(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = front.server.plane.store.version("one")
    before, answered = version.statistics.failures["queue_full"], gate_of(front.server)._statuses[429]
    ids, told, answer = set(), [], Closed.answer
    monkeypatch.setattr(Closed, "answer", lambda self: (told.append(self), answer(self))[1])
    with closed(front), front.connect() as connection:
        for _ in range(6):
            status, headers, body = one(connection, post())
            assert (status, headers["retry-after"]) == (429, "2") and body["error"]["code"] == "queue_full"
            ids.add(headers["x-request-id"])
        assert of(front, connection).is_aside
        assert one(connection, LIVE)[0] == 200
        assert not of(front, connection).is_aside
    assert len(ids) == 6 and len(told) == 5
    assert version.statistics.failures["queue_full"] == before + 6
    assert gate_of(front.server)._statuses[429] == answered + 6


def test_who_asks_no_more_is_read_by_the_loop_again(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideline, "_LEFT_S", 0.05)
    with closed(front), front.connect() as connection:
        refused_again(connection, post())
        until(lambda: not of(front, connection).is_aside and not len(gate_of(front.server).sideline))
        assert one(connection, LIVE)[0] == 200


def test_nobody_is_held_back_for_whom_there_is_room(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideline, "HELD_S", (3600.0, 3600.0))
    with front.connect() as connection:
        with closed(front):
            refused_again(connection, post())
            until(lambda: of(front, connection).is_aside)
        assert one(connection, post())[0] == 200


def test_who_was_left_alone_is_answered_when_there_is_room(front: Front) -> None:
    with front.connect() as connection:
        with closed(front):
            refused_again(connection, post())
        until(lambda: one(connection, post())[0] == 200)
        assert not of(front, connection).is_aside


@pytest.mark.parametrize("cut", [10, -3])
def test_a_request_that_came_in_part_is_waited_for(front: Front, cut: int) -> None:
    with closed(front), front.connect() as connection:
        refused_again(connection, post())
        connection.sendall(post()[:cut])
        until(lambda: not of(front, connection).is_aside)
        assert one(connection, post()[cut:])[0] == 429
        assert one(connection, post())[0] == 429


def test_other_requests_and_several_at_once_are_answered_in_their_order(front: Front) -> None:
    hurry = post(V2.replace(b"{", b'{"parameters":{"priority":1},', 1), "/v2/models/one/infer")
    plain = post(V2.replace(b"{", b'{"parameters":{"sequence":1},', 1), "/v2/models/one/infer")
    with closed(front), front.connect() as connection:
        refused_again(connection, post())
        connection.sendall(post() + LIVE + post())
        assert [status for status, _, _ in received(connection, 3)] == [429, 200, 429]
        refused_again(connection, post())
        assert one(connection, LIVE)[0] == 200
        assert one(connection, plain)[0] in (400, 429)
        refused_again(connection, plain.replace(b"sequence", b"priorit_"))
        assert one(connection, hurry)[0] == 200


def test_who_goes_away_meanwhile_is_forgotten(front: Front) -> None:
    gate = gate_of(front.server)
    with closed(front):
        for request in (b"", post(), post()[:50]):
            with front.connect() as connection:
                refused_again(connection, post())
                connection.sendall(request)
    until(lambda: not len(gate.sideline) and front.open == 0)
    assert front.is_live()


def test_what_has_come_when_the_server_stops_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideline, "HELD_S", (3600.0, 3600.0))
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,3)f32"))
    with listening(tmp_path, warmup=False, backend="reference") as front, front.connect() as connection:
        with closed(front):
            refused_again(connection, post())
            until(lambda: of(front, connection).is_aside)
            connection.sendall(post())
            until(lambda: len(gate_of(front.server).sideline._held) == 1)
        front.server.should_exit = True
        status, headers, _ = received(connection, 1)[0]
        assert (status, headers["connection"]) == (200, "close") and connection.recv(1) == b""


TARGET = Target("POST", "/infer", "one", None)
CLOSED: Any = Closed(0.0, Any, 429, (b"", b""))  # type: ignore[arg-type]


class One:
    """Asks again as soon as it was told, so many times; then it leaves."""

    target = TARGET

    def __init__(self, loop: Loop, poll: Poll, times: int, fault: str = "") -> None:
        self.loop, self.poll, self.times, self.fault = loop, poll, times, fault
        self.descriptor = len(poll.asking) + 1000
        self.seen: list[float] = []
        self.is_aside = True
        self.is_cut_off = False
        poll.asking.append(self.descriptor)

    def asks(self) -> Closed | None:
        if self.fault == "asks":
            raise ZeroDivisionError
        return CLOSED

    def look(self, _: Syscalls, now: float, closed: Closed | None = None) -> None:
        assert closed is CLOSED
        if self.fault == "look":
            raise ZeroDivisionError
        self.seen.append(self.loop.now)
        self.is_aside = len(self.seen) < self.times
        if self.is_aside:
            self.poll.asking.append(self.descriptor)

    def come_back(self) -> None:
        if self.fault == "comes back":
            raise ZeroDivisionError
        self.is_aside = False

    def cut_off(self) -> None:
        self.is_cut_off = True


class Poll:
    """Tells once of each that asks."""

    def __init__(self) -> None:
        self.asking: list[int] = []

    def register(self, descriptor: int, _: int) -> None:
        pass

    def poll(self, _: int) -> list[tuple[int, int]]:
        asking, self.asking = self.asking, []
        return [(each, 1) for each in asking]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(sideline.asyncio, "get_running_loop", lambda: made)
    monkeypatch.setattr(sideline.time, "thread_time", lambda: 0.0)  # however busy the machine is
    return made


@pytest.fixture
def poll(monkeypatch: pytest.MonkeyPatch) -> Poll:
    made = Poll()
    monkeypatch.setattr(sideline.select, "epoll", lambda: made)
    return made


def taken(everybody: list[One]) -> tuple[Sideline, list[Closed]]:
    counted: list[Closed] = []
    made = Sideline(counted.append)
    for each in everybody:
        made.take(each)
    return made, counted


def test_all_are_told_after_a_while_and_evenly(loop: Loop, poll: Poll) -> None:
    everybody = [One(loop, poll, 50) for _ in range(200)]
    made, counted = taken(everybody)
    loop.run_until(5.0)
    assert all(len(each.seen) == 50 for each in everybody) and not made and not loop.timers
    for each in everybody:
        gaps = [after - before for before, after in zip([0.0, *each.seen], each.seen, strict=False)]
        assert min(gaps) >= HELD_S[0] - 0.0041 and max(gaps) <= HELD_S[1] + 1e-9
    when = [at for each in everybody for at in each.seen[30:-5]]
    assert max(when.count(at) for at in set(when)) <= 40  # of two hundred
    assert len(counted) == len({at for each in everybody for at in each.seen})  # once a step


def test_where_there_are_more_than_can_be_told_each_waits_longer(
    loop: Loop, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = 0.0

    def clock() -> float:
        nonlocal spent
        spent += 1.0  # it takes long
        return spent

    monkeypatch.setattr(sideline.time, "thread_time", clock)
    everybody = [One(loop, poll, 4) for _ in range(100)]
    made, _ = taken(everybody)
    loop.run_until(0.06)
    assert 0 < sum(len(each.seen) for each in everybody) <= 40
    loop.run_until(10.0)
    assert all(len(each.seen) == 4 for each in everybody) and not made


def test_a_loop_that_comes_round_late_tells_sooner(loop: Loop, poll: Poll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideline, "_STEP_S", 0.012)
    (one,) = everybody = [One(loop, poll, 9)]
    taken(everybody)
    loop.run_until(5.0)
    gaps = [after - before for before, after in zip(one.seen, one.seen[1:], strict=False)]
    assert len(one.seen) == 9 and max(gaps) <= HELD_S[1] + 1e-9


@pytest.mark.parametrize("where", ["asks", "look"])
def test_a_fault_with_one_is_no_other_ones(loop: Loop, poll: Poll, where: str) -> None:
    broken, good = One(loop, poll, 9, where), One(loop, poll, 2)
    made, _ = taken([broken, good])
    loop.run_until(1.0)
    assert broken.is_cut_off and len(good.seen) == 2 and not made and not loop.timers


def test_who_asks_nothing_for_long_comes_back(loop: Loop, poll: Poll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sideline, "_LEFT_S", 0.1)
    everybody = [One(loop, poll, 9) for _ in range(3)]
    poll.asking.clear()
    made, _ = taken(everybody)
    loop.run_until(0.09)
    assert len(made) == 3 and all(each.is_aside for each in everybody)
    loop.run_until(0.2)
    assert not made and not any(each.is_aside or each.seen for each in everybody) and not loop.timers


def test_a_fault_with_one_that_comes_back_is_no_other_ones(
    loop: Loop, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sideline, "_LEFT_S", 0.1)
    broken, good = One(loop, poll, 9, "comes back"), One(loop, poll, 9)
    poll.asking.clear()
    made, _ = taken([broken, good])
    loop.run_until(1.0)
    assert broken.is_cut_off and not broken.is_aside and not good.is_aside and not made and not loop.timers


def test_calls_of_the_system_tell_what_came_and_what_went() -> None:
    ours, theirs = socket.socketpair()
    calls: Any = Syscalls()
    with ours:
        with theirs:
            assert calls.read(ours.fileno()) <= 0
            theirs.sendall(b"some")
            assert calls.read(ours.fileno()) == 4 and calls.room[:4] == b"some"
            assert calls.write(ours.fileno(), b"more") == 4 and theirs.recv(9) == b"more"
            theirs.setblocking(False)
            assert 0 < calls.write(theirs.fileno(), bytes(1 << 26)) < 1 << 26  # as much as there is room for
        assert calls.write(ours.fileno(), b"more") <= 0
