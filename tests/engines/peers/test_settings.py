"""A node's file, its certificates and its endpoints: what is wrong is said before anything is sent."""

import os
import socket
import stat

import pytest
from cryptography import x509

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import run_node
from consilience.engines.peers import certificates
from consilience.engines.peers.settings import NodeSettings, neighbours_of
from consilience.engines.peers.transport import Handlers
from consilience.engines.peers.zenoh_transport import ZenohTransport, configuration
from consilience.errors import NetworkError

PLAN = cs.Plan(problem="gmm", graph=cs.graphs.ring(4), sampler=cs.dula(step_size=1e-3, consensus=0.2), num_steps=20)


@pytest.fixture
def network(tmp_path):
    return make_network(PLAN, tmp_path / "network")


def changed(path, **changes):
    """The node's file with other entries, written beside it."""
    settings = NodeSettings.load(path).model_copy(update=changes)
    place = path.with_name("changed.toml")
    place.write_text(settings.to_toml())
    return NodeSettings.load(place)


def test_files_name_neighbours_and_secrets(network):
    settings = NodeSettings.load(network[1])
    assert list(settings.neighbours) == [0, 2]
    settings.require_fitting(PLAN)
    assert stat.S_IMODE(os.stat(settings.tls.key).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(settings.tls.certificate.parent / "authority.key").st_mode) == 0o600
    assert settings.plan.is_file()


def test_neighbours_carry_the_weights_of_edges():
    graph = cs.graphs.from_edges(3, [(0, 1), (1, 2)], weights=[0.5, 2.0])
    plan = PLAN.replace(graph=graph)
    assert neighbours_of(plan, 1) == {0: 0.5, 2: 2.0}
    assert neighbours_of(plan, 2) == {1: 2.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": 9}, "the agents 0 to 3"),
        ({"neighbours": {0: "127.0.0.1:7001"}}, "no endpoint is given for 2"),
        ({"neighbours": {0: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}}, "agent 3 is no neighbour"),
        ({"listen": "127.0.0.1"}, "is no endpoint"),
        ({"listen": "127.0.0.1:99999"}, "is no endpoint"),
        ({"tls": None, "listen": "192.0.2.1:7000"}, "not on loopback"),
    ],
)
def test_settings_that_do_not_fit_the_plan(network, changes, message):
    settings = changed(network[1], **changes)
    with pytest.raises(NetworkError, match=message):
        settings.require_fitting(PLAN)


def test_a_missing_or_unreadable_or_damaged_file(network, tmp_path):
    settings = NodeSettings.load(network[0])
    files = (settings.tls.certificate, settings.tls.key, settings.tls.authority)
    settings.tls.key.rename(tmp_path / "elsewhere")
    with pytest.raises(NetworkError, match=r"agent-0\.key is missing: carry it over"):
        run_node(settings)
    settings.tls.key.mkdir()  # whoever runs the tests, nobody can read this
    with pytest.raises(NetworkError, match=r"agent-0\.key cannot be read .*: let the node's user read it"):
        certificates.require_usable(*files, "agent-0")
    settings.tls.key.rmdir()
    (tmp_path / "elsewhere").rename(settings.tls.key)
    settings.tls.certificate.write_text("nonsense")
    with pytest.raises(NetworkError, match="is not a certificate"):
        certificates.require_usable(*files, "agent-0")
    with pytest.raises(NetworkError, match=r"plan.toml is another kind of file: .* nodes \(agent-0.toml"):
        NodeSettings.load(NodeSettings.load(network[0]).plan)
    with pytest.raises(NetworkError, match="there is no file"):
        NodeSettings.load(tmp_path / "none.toml")


def test_certificates_that_do_not_belong_together(tmp_path, caplog):
    files = [tmp_path / name for name in ("agent-0.pem", "agent-0.key", "authority.pem")]
    other, own = certificates.make_authority(tmp_path, "other"), certificates.make_authority(tmp_path, "test")
    certificates.issue(own, tmp_path, "agent-1", [])
    certificates.issue(own, tmp_path, "agent-0", [])
    certificates.require_usable(*files, "agent-0")
    assert not caplog.text
    with pytest.raises(NetworkError, match=r"is the certificate of agent-0, not of agent-1"):
        certificates.require_usable(*files, "agent-1")
    with pytest.raises(NetworkError, match=r"agent-1\.key does not belong to .*agent-0\.pem"):
        certificates.require_usable(files[0], tmp_path / "agent-1.key", files[2], "agent-0")
    with pytest.raises(NetworkError, match="is not a private key"):
        certificates.require_usable(files[0], files[2], files[2], "agent-0")
    files[1].chmod(0o640)
    certificates.require_usable(*files, "agent-0")
    assert "can be read by others" in caplog.text
    certificates.issue(other, tmp_path, "agent-0", [])
    with pytest.raises(NetworkError, match="was not signed by"):
        certificates.require_usable(*files, "agent-0")


def test_renewed_certificates_work_with_the_old_keys(tmp_path):
    """Those of a whole network, after they have expired; hosts and names are those of before."""
    authority = certificates.make_authority(tmp_path, "test")
    certificates.issue(authority, tmp_path, "agent-0", ["192.0.2.7"], valid_days=-1)
    files = [tmp_path / name for name in ("agent-0.pem", "agent-0.key", "authority.pem")]
    key = files[1].read_bytes()
    with pytest.raises(NetworkError, match="network renew"):
        certificates.require_usable(*files, "agent-0")
    files[1].rename(tmp_path / "away")  # a member's key is where the member is
    assert certificates.renew(tmp_path) == ["agent-0"]
    (tmp_path / "away").rename(files[1])
    certificates.require_usable(*files, "agent-0")
    assert files[1].read_bytes() == key
    made = x509.load_pem_x509_certificate(files[0].read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.7" in [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    (tmp_path / "authority.key").unlink()
    with pytest.raises(NetworkError, match="with the authority's key"):
        certificates.renew(tmp_path)


@pytest.mark.parametrize(("days", "message"), [(-1, "expired at"), (3, None)])
def test_expired_certificates_are_told(tmp_path, days, message):
    authority = certificates.make_authority(tmp_path, "test")
    certificates.issue(authority, tmp_path, "agent-0", [], valid_days=days)
    files = [tmp_path / name for name in ("agent-0.pem", "agent-0.key", "authority.pem")]
    if message is None:
        certificates.require_usable(*files, "agent-0")
    else:
        with pytest.raises(NetworkError, match=message):
            certificates.require_usable(*files, "agent-0")


def test_a_port_in_use_is_told(network):
    settings = NodeSettings.load(network[0])
    host, port = settings.listen.split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with pytest.raises(NetworkError, match=r"can listen on .* is another node running there"):
            ZenohTransport(settings, Handlers(*[lambda *_: None] * 4, 10**6))


def test_without_tls_only_on_loopback(tmp_path):
    with pytest.raises(NetworkError, match="not on loopback"):
        make_network(PLAN, tmp_path / "open", ["192.0.2.1:7000"] * 4, insecure=True)


def test_no_scouting_and_nothing_but_tls(network):
    found = configuration(NodeSettings.load(network[2]), 10**6)
    assert all(place.startswith("tls/") for place in found["listen"]["endpoints"] + found["connect"]["endpoints"])
    assert not found["scouting"]["multicast"]["enabled"]
    assert not found["scouting"]["gossip"]["enabled"]
    assert found["access_control"]["default_permission"] == "deny"
