"""Too much of everything, on real connections: messages that are too long, strangers that crowd the door."""

import contextlib
import socket
import threading

import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.engines.peers.settings import NodeSettings, split_endpoint
from tests.engines.peers.test_network import Listener, plan_for

TOO_LONG = b"x" * 3_000_000


@pytest.fixture
def files(tmp_path):
    return make_network(plan_for(cs.graphs.ring(3)), tmp_path / "network")


def test_a_message_that_is_too_long_is_not_taken_in(files):
    """The control is a neighbour that expects messages of that length."""
    first, patient, speaker = Listener(files[0]), Listener(files[1], longest=10**7), Listener(files[2], longest=10**7)
    with contextlib.ExitStack() as ended:
        for one in (first, patient, speaker):
            ended.callback(one.transport.close)
        assert speaker.wait_for(lambda: {0, 1} <= speaker.here)
        assert first.wait_for(lambda: 2 in first.here)
        assert patient.wait_for(lambda: 2 in patient.here)
        speaker.transport.publish(TOO_LONG)
        assert patient.wait_for(lambda: (2, TOO_LONG) in patient.heard)
        speaker.transport.publish(b"and this")
        assert first.wait_for(lambda: (2, b"and this") in first.heard)
        assert (2, TOO_LONG) not in first.heard
        # nor as a question
        assert speaker.transport.ask(1, "edge/2", 5.0, TOO_LONG) == b"yes"
        assert speaker.transport.ask(0, "edge/2", 2.0, TOO_LONG) is None


class Strangers:
    """Connections to a node's port from people who have no business there."""

    def __init__(self, path, idle=0, garbage_every=None):
        self.place, self.open, self.stop = split_endpoint(NodeSettings.load(path).listen), [], threading.Event()
        self.garbage_every = garbage_every
        for _ in range(idle):
            self.open.append(socket.create_connection(self.place, 5))
        self.thread = threading.Thread(target=self.throw)
        self.thread.start()

    def throw(self):
        while self.garbage_every is not None and not self.stop.wait(self.garbage_every):
            with contextlib.suppress(OSError), socket.create_connection(self.place, 5) as one:
                one.sendall(b"GET / HTTP/1.0\r\n\r\n" * 4)

    def close(self):
        self.stop.set()
        self.thread.join()
        for one in self.open:
            one.close()


@pytest.mark.slow(reason="strangers need ten seconds to become a crowd")
@pytest.mark.parametrize(("strangers", "seconds"), [({"garbage_every": 0.05}, 6.0), ({"idle": 250}, 11.0)])
def test_strangers_at_the_door_do_not_keep_members_out(files, strangers, seconds):
    """Agents 0 and 1 sample while strangers crowd agent 0's door; agent 2 is started among them, and is let in."""
    first, second = Listener(files[0]), Listener(files[1])
    with contextlib.ExitStack() as ended:
        ended.callback(first.transport.close)
        ended.callback(second.transport.close)
        assert first.wait_for(lambda: 1 in first.here)
        crowd = Strangers(files[0], **strangers)
        ended.callback(crowd.close)
        for number in range(int(seconds)):  # the network keeps sampling
            second.transport.publish(b"%d" % number)
            assert first.wait_for(lambda number=number: (1, b"%d" % number) in first.heard)
            crowd.stop.wait(1.0)
        third = Listener(files[2])
        ended.callback(third.transport.close)
        assert first.wait_for(lambda: 2 in first.here)
        third.transport.publish(b"let in")
        assert first.wait_for(lambda: (2, b"let in") in first.heard)
