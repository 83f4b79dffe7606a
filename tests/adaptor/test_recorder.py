from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colane.adaptor import recorder, reporter, torch_forward, torch_graphs, turns, wire, writer
from colane.adaptor.memory import MemorySample
from colane.adaptor.recorder import Recorder
from colane.agent.gate.page import ControlPage

DEADLINE_S = 60.0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "steps"
    wire.create(made)
    monkeypatch.setenv(wire.STEPS_FILE_ENV, str(made))
    return made


@pytest.fixture
def to(path: Path) -> Recorder:
    return Recorder(str(path))


def control(path: Path, word: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(writer.CONTROL_OFFSET + 8 * word)
        file.write(struct.pack("=Q", value))


def seen(path: Path) -> wire.Steps:
    steps = wire.read(path)
    assert steps is not None
    return steps


class Gate:
    """An agent's end of the gate that lets everybody go on, and writes down who asked and in what phase."""

    def __init__(self, socket_path: Path, steps_path: Path) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self._steps_path = steps_path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(socket_path))
        self._listener.listen()
        self._listener.settimeout(DEADLINE_S)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        link, _ = self._listener.accept()
        with link:
            while data := link.recv(1024):
                kind, _, _, step, serial = turns.read_request(data)
                self.asked.append((kind, step, seen(self._steps_path).phase))
                if kind == turns.YIELD:
                    link.send(turns.answer(turns.GO, serial))

    def close(self) -> list[tuple[int, int, int]]:
        self._thread.join(DEADLINE_S)
        self._listener.close()
        return self.asked


@pytest.fixture
def gate(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate", path)
    monkeypatch.setenv(turns.GATE_ENV, str(tmp_path / "gate"))
    yield made
    made.close()


def test_a_boundary_asks_the_gate_only_while_the_flag_is_up(to: Recorder, path: Path, gate: Gate) -> None:
    to.boundary()
    control(path, turns.FLAG, 1)
    to.boundary()
    to.boundary()
    control(path, turns.FLAG, 0)
    to.boundary()
    to.disarm()
    between = writer.BETWEEN_STEPS
    assert gate.close() == [(turns.YIELD, 2, between), (turns.YIELD, 3, between)], "after the step was published"
    assert seen(path).steps == 4
    assert seen(path).phase == writer.IN_STEP


def test_an_idle_server_leaves_its_turn_and_enters_for_a_request(to: Recorder, path: Path, gate: Gate) -> None:
    control(path, turns.FLAG, 1)
    to.step(recorder.FORWARD, leaves=True)
    to.enter()
    assert seen(path).phase == writer.IN_STEP
    to.enter()
    to.disarm()
    assert [(kind, step) for kind, step, _ in gate.close()] == [(turns.LEAVE, 1), (turns.YIELD, 1)]


def test_the_first_use_of_a_device_waits_for_a_turn_where_others_take_some(
    to: Recorder, path: Path, gate: Gate
) -> None:
    control(path, turns.FLAG, 1)
    to.enter()
    assert seen(path).phase == writer.IN_STEP + writer.TENTATIVE
    to.enter()
    to.boundary()
    to.disarm()
    asked = [(turns.YIELD, 0, writer.BETWEEN_STEPS + writer.TENTATIVE), (turns.YIELD, 1, writer.BETWEEN_STEPS)]
    assert gate.close() == asked


def test_a_job_that_is_not_asked_for_turns_uses_its_device_at_once_and_says_so(to: Recorder, path: Path) -> None:
    to.enter()
    assert seen(path).phase == writer.IN_STEP + writer.TENTATIVE
    to.boundary()
    assert seen(path).phase == writer.IN_STEP


def test_a_job_that_has_trained_takes_the_place_of_one_that_only_used_its_device(
    to: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLANE_DEBUG", "1")
    to.enter()
    other = os.getppid()
    monkeypatch.setattr(os, "getpid", lambda: other)
    with pytest.raises(wire.WireError, match="already reports"):
        writer.Writer(str(path), is_tentative=True)
    trains = writer.Writer(str(path))
    trains.step(1.0, 0.1)
    monkeypatch.undo()
    monkeypatch.setenv("COLANE_DEBUG", "1")
    to.boundary()
    assert (seen(path).steps, seen(path).pid) == (1, other)
    assert "another process reports the steps" in capsys.readouterr().err
    trains.close()


def test_a_spawned_process_knows_its_rank_once_the_ranks_have_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in recorder.RANK_NAMES:
        monkeypatch.delenv(name, raising=False)
    assert recorder.knows_rank(), "this process was not spawned by another"
    monkeypatch.setattr("multiprocessing.process.parent_process", object)
    assert not recorder.knows_rank()
    group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))
    assert recorder.knows_rank()
    assert recorder.rank_path(str(tmp_path / "steps")).endswith("steps.1")


def test_waiting_for_a_turn_belongs_to_no_step_and_for_the_device_to_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(
        "colane.adaptor.recorder.time", SimpleNamespace(time=lambda: 1.0, perf_counter=lambda: clock.now_s)
    )
    to = Recorder(str(path))
    gate = SimpleNamespace(waited_s=0.0, disarm=lambda: None)

    def boundary(_: int) -> None:
        clock.now_s += 7.0 + 100.0
        gate.waited_s += 100.0

    gate.boundary = boundary
    to._turns = gate  # type: ignore[assignment]
    for step in range(4):
        clock.now_s += 1.0
        if step:
            control(path, turns.FLAG, int(step == 1))
        to.boundary()
    assert seen(path).durations_s[1:] == (1.0, 1.0 + 7.0, 1.0)


def test_a_fault_of_the_gate_costs_turns_not_the_job(
    to: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLANE_DEBUG", "1")
    to.boundary()
    control(path, turns.FLAG, 1)
    to._turns = SimpleNamespace(waited_s=0.0, disarm=lambda: None)  # type: ignore[assignment]
    to.boundary()
    to.boundary()
    assert capsys.readouterr().err.count("takes no more turns") == 1


def test_what_a_signal_handler_of_the_script_raises_while_it_waits_is_the_scripts(to: Recorder, path: Path) -> None:
    def interrupted(_: int) -> None:
        raise TimeoutError("the script's own alarm")

    to.boundary()
    control(path, turns.FLAG, 1)
    to._turns = SimpleNamespace(boundary=interrupted, waited_s=0.0, disarm=lambda: None)  # type: ignore[assignment]
    with pytest.raises(TimeoutError, match="own alarm"):
        to.boundary()
    control(path, turns.FLAG, 0)
    to.boundary()
    assert seen(path).steps == 3


def test_several_steps_found_at_once_share_the_time(to: Recorder, path: Path) -> None:
    to.boundary(3)
    steps = seen(path)
    assert (steps.steps, len(set(steps.durations_s))) == (3, 1)


def test_the_peak_that_a_script_resets_is_kept(to: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter([MemorySample(5, 90), MemorySample(7, 30)])
    monkeypatch.setattr("colane.adaptor.memory.sample", lambda: next(samples))
    to.boundary()
    to.boundary()
    assert (seen(path).persistent_bytes, seen(path).peak_bytes) == (7, 90)


@pytest.mark.parametrize("name", recorder.RANK_NAMES)
def test_a_rank_has_a_file_of_its_own(path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for rank, expected in (("0", path), ("2", wire.rank_path(path, 2)), ("none", path)):
        monkeypatch.setenv(name, rank)
        assert recorder.rank_path(str(path)) == str(expected)
        assert expected.exists()


def test_a_total_that_a_framework_announces_counts_from_here(to: Recorder, path: Path) -> None:
    to.expect(6)
    to.boundary()
    assert seen(path).steps_total == 6
    to.boundary(5)
    to.expect(4)
    assert seen(path).steps_total == 10


def others(to: Recorder) -> torch_forward.Others:
    torch: Any = SimpleNamespace(utils=SimpleNamespace(data=SimpleNamespace(get_worker_info=lambda: None)))
    return torch_forward.Others(torch, to)


def test_a_graph_replayed_again_and_again_is_a_step(to: Recorder, path: Path) -> None:
    found, one, other = others(to), SimpleNamespace(), SimpleNamespace()
    for _ in range(5):
        found.replayed(one)
        found.replayed(other)
    found.flush()
    assert seen(path).steps == 5


def test_graphs_between_an_optimizers_steps_are_parts_of_them(to: Recorder, path: Path) -> None:
    found, one, other = others(to), SimpleNamespace(), SimpleNamespace()
    for _ in range(5):
        found.replayed(one)
        found.replayed(other)
        found.stepped()
    found.flush()
    assert wire.read(path) is None


def test_an_optimizers_steps_in_a_capture_that_was_not_heard_of_belong_to_the_first_graph_replayed() -> None:
    graphs, heard, other = torch_graphs.Graphs(), SimpleNamespace(), SimpleNamespace()
    graphs.captured(recorder.OPTIMIZER, 1)
    assert [graphs.held(graph).steps for graph in (heard, other, heard)] == [1, 0, 1]
    graphs.begins(other)
    graphs.captured(recorder.OPTIMIZER, 1)
    graphs.ends()
    assert [graphs.held(graph).steps for graph in (heard, other)] == [1, 1]


def test_a_graph_holds_the_best_kind_of_steps_that_was_captured() -> None:
    graphs, graph = torch_graphs.Graphs(), SimpleNamespace()
    graphs.begins(graph)
    for rank, key in ((recorder.BACKWARD, 0), (recorder.FORWARD, 1), (recorder.BACKWARD, 0), (recorder.FORWARD, 1)):
        graphs.captured(rank, key)
    assert (graphs.held(graph).rank, graphs.held(graph).steps) == (recorder.FORWARD, 2)


def test_batches_alone_are_steps_once_they_go_on_for_long(
    to: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("colane.adaptor.torch_forward.time.monotonic", lambda: now[0])
    found = others(to)
    for _ in range(5):
        found.batch()
    assert wire.read(path) is None
    now[0] = torch_forward.LOADER_FIRST_S
    found.batch()
    assert seen(path).steps == 6


# -- jobs that answer requests


@pytest.fixture
def server(path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv(wire.SERVES_ENV, "1")
    made = Recorder(str(path))
    made.rank = recorder.EXPLICIT
    made.register()
    return made


class Clock:
    """Time that passes as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, to: Recorder) -> None:
        self.now_s = to._last_s
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


def test_what_passes_between_requests_is_neither_a_steps_nor_an_answers(
    server: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, steps = Clock(monkeypatch, server), reporter.Reporter(server)
    for answer_s in (0.25, 0.5):
        clock.passes(100.0)
        with steps.request():
            clock.passes(answer_s)
    found = seen(path)
    assert (found.steps, steps.steps_done, found.answers) == (2, 2, 2)
    assert found.latencies_s == pytest.approx((0.25, 0.5))
    assert found.durations_s == pytest.approx((0.25, 0.5))
    assert found.idle_s == pytest.approx(200.0)
    assert found.phase == writer.BETWEEN_STEPS


def test_a_server_that_says_its_steps_is_busy_from_the_first_call_of_its_model(
    server: Recorder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, server)
    for _ in range(2):
        clock.passes(100.0)
        for _ in range(3):  # as for each token
            server.sees_request()
            clock.passes(0.25)
            server.call_ended()
        server.boundary()
    found = seen(path)
    assert found.latencies_s == pytest.approx((0.75, 0.75))
    assert found.durations_s == pytest.approx((0.75, 0.75))
    assert found.idle_s == pytest.approx(200.0)


def test_a_server_gives_its_turn_up_while_it_waits_for_a_request(server: Recorder, path: Path, gate: Gate) -> None:
    control(path, turns.FLAG, 1)
    steps = reporter.Reporter(server)
    for _ in range(2):
        with steps.request():
            assert seen(path).phase == writer.IN_STEP
        assert seen(path).phase == writer.BETWEEN_STEPS
    server.sees_request()
    server.call_ended()
    steps.step()
    server.disarm()
    asked = [(kind, step) for kind, step, _ in gate.close()]
    assert asked == [
        *((turns.YIELD, 0), (turns.LEAVE, 1), (turns.YIELD, 1), (turns.LEAVE, 2), (turns.YIELD, 2), (turns.LEAVE, 3))
    ]


def test_a_server_that_was_idle_when_others_came_asks_before_it_answers(
    server: Recorder, path: Path, gate: Gate
) -> None:
    steps = reporter.Reporter(server)
    with steps.request():
        pass
    assert seen(path).phase == writer.BETWEEN_STEPS, "it would hold up those that come"
    control(path, turns.FLAG, 1)
    with steps.request():
        pass
    server.disarm()
    assert [(kind, step) for kind, step, _ in gate.close()] == [(turns.YIELD, 1), (turns.LEAVE, 2)]


def test_a_server_whose_requests_are_not_seen_keeps_its_turn(server: Recorder, path: Path, gate: Gate) -> None:
    """Else it would compute beside others: nothing tells when it begins."""
    control(path, turns.FLAG, 1)
    server.boundary()
    server.disarm()
    assert [kind for kind, _, _ in gate.close()] == [turns.YIELD]


def test_a_turn_lasts_until_the_last_of_several_open_requests_is_answered(
    server: Recorder, path: Path, gate: Gate
) -> None:
    control(path, turns.FLAG, 1)
    steps = reporter.Reporter(server)
    one, other = steps.request(), steps.request()
    one.__enter__()
    other.__enter__()
    one.__exit__()
    assert seen(path).phase == writer.IN_STEP
    other.__exit__()
    server.disarm()
    assert [(kind, step) for kind, step, _ in gate.close()] == [(turns.YIELD, 0), (turns.LEAVE, 2)]


def test_a_turn_lasts_until_the_last_of_several_calls_is_over_that_were_seen(
    server: Recorder, path: Path, gate: Gate
) -> None:
    control(path, turns.FLAG, 1)
    server.sees_request()
    server.sees_request()
    server.call_ended()
    server.boundary()
    assert seen(path).phase == writer.IN_STEP, "another thread is within a call"
    server.call_ended()
    server.boundary()
    server.disarm()
    assert [(kind, step) for kind, step, _ in gate.close()] == [(turns.YIELD, 0), (turns.LEAVE, 2)]


def test_a_server_says_that_it_needs_no_turn_until_it_is_asked_for_something(server: Recorder, path: Path) -> None:
    page = ControlPage(path)
    server.awaits_requests()
    assert page.asks_first()
    assert seen(path).phase == writer.BETWEEN_STEPS
    for _ in range(2):
        with reporter.Reporter(server).request():
            assert not page.asks_first()
        assert page.asks_first()
    page.close()


def test_an_answer_that_fails_gives_the_turn_up_all_the_same(server: Recorder, path: Path, gate: Gate) -> None:
    control(path, turns.FLAG, 1)
    with pytest.raises(KeyError), reporter.Reporter(server).request():
        raise KeyError("no such user")
    server.disarm()
    assert [kind for kind, _, _ in gate.close()] == [turns.YIELD, turns.LEAVE]


def test_outside_colane_requests_are_counted_and_nothing_else() -> None:
    steps = reporter.Reporter(None)
    with steps.request():
        pass
    assert steps.steps_done == 1


def test_the_last_answers_are_kept(path: Path) -> None:
    made = writer.Writer(str(path))
    for number in range(1000):
        made.answered(float(number))
    found = seen(path)
    assert found.answers == 1000
    assert found.latencies_s == tuple(float(number) for number in range(1000 - writer.ANSWERS_KEPT, 1000))
