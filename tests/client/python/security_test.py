"""TLS, client certificates and tokens, against a server of grpcio in this process."""

import asyncio
import os
import shutil
import subprocess
from concurrent import futures

import grpc
import pytest
from conftest import ROOT

import normd

DESCRIBE = "/normd.v1.Normalizer/Describe"
VARIABLES = ("TLS", "CA", "CERTIFICATE", "KEY", "SERVER_NAME", "TOKEN", "TOKEN_FILE", "SERVER")


class Served(grpc.GenericRpcHandler):
    """Answers every method with an empty message, and notes the tokens."""

    def __init__(self, credentials=None, address="127.0.0.1:0", failures=0):
        self.tokens = []
        self.failures = failures
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.target = f"127.0.0.1:{port}" if ":" in address and not address.startswith("unix:") else address
        self._server.start()

    def service(self, details):
        token = dict(details.invocation_metadata).get("authorization")
        self.tokens.append(token)

        def answer(request, context):
            if len(self.tokens) <= self.failures:
                context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._server.stop(None).wait()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(f"NORMD_{name}", raising=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    for one in (folder, folder / "other"):
        subprocess.run([ROOT / "deploy" / "make-certificates.sh", one], check=True, capture_output=True)
    return folder


def tls(files, client_ca=False):
    pair = ((files / "server.key").read_bytes(), (files / "server.crt").read_bytes())
    return grpc.ssl_server_credentials([pair], (files / "ca.crt").read_bytes() if client_ca else None, client_ca)


@pytest.fixture
def server(files):
    with Served(tls(files)) as made:
        yield made


def call(target, **security):
    with normd.connect(target, retry=normd.RetryOptions(initial_backoff=0.001, max_backoff=0.001), **security) as client:
        return client.describe()


def test_a_server_is_called_whose_certificate_comes_from_the_ca(files, server):
    call(server.target, ca=files / "ca.crt")
    with pytest.raises(normd.Unavailable, match="does not come from the root certificates"):
        call(server.target, ca=str(files / "other" / "ca.crt"))
    with pytest.raises(normd.Unavailable, match="does not come from the root certificates"):
        call(server.target, tls=True)


def test_a_server_is_called_whose_certificate_has_its_name(files, server):
    call(server.target, ca=files / "ca.crt", server_name="localhost")
    with pytest.raises(normd.Unavailable, match="has a certificate for other names"):
        call(server.target, ca=files / "ca.crt", server_name="normd.example")


def test_a_server_that_asks_for_a_certificate_gets_it(files):
    with Served(tls(files, client_ca=True)) as server:
        call(server.target, ca=files / "ca.crt", certificate=files / "client.crt", key=files / "client.key")
        with pytest.raises(normd.Unavailable, match="client certificate"):
            call(server.target, ca=files / "ca.crt")


def test_a_certificate_that_was_renewed_is_used_for_the_next_connection(files, tmp_path):
    for name in ("client.crt", "client.key"):
        shutil.copy(files / "other" / name, tmp_path / name)
    with Served(tls(files, client_ca=True)) as server:
        with normd.connect(server.target, ca=files / "ca.crt", certificate=tmp_path / "client.crt",
                           key=tmp_path / "client.key", retry=normd.RetryOptions(max_attempts=1)) as client:
            with pytest.raises(normd.Unavailable):
                client.describe()
            for name in ("client.crt", "client.key"):
                shutil.copy(files / name, tmp_path / name)
            with pytest.raises(normd.Unavailable):
                client.describe()  # finds that the files changed
            client.describe()


def test_plain_text_and_tls_do_not_mix(files, server):
    with pytest.raises(normd.Unavailable, match="speaks TLS and was called in plain text"):
        call(server.target)
    with Served() as plain, pytest.raises(normd.Unavailable, match="speaks no TLS"):
        call(plain.target, tls=True)


def test_every_try_carries_the_token_as_it_is_then(files, server, tmp_path):
    call(server.target, ca=files / "ca.crt")
    assert server.tokens == [None]
    server.failures = 3  # two more
    path = tmp_path / "token"
    path.write_text("first\n")
    call(server.target, ca=files / "ca.crt", token_file=path)
    assert server.tokens[1:] == ["Bearer first"] * 3
    with normd.connect(server.target, ca=files / "ca.crt", token_file=path) as client:
        for content, expected in (("first", "first"), ("other\n", "other"), ("", "other"), (None, "other")):
            path.unlink() if content is None else path.write_text(content)
            client.describe()
            assert server.tokens[-1] == f"Bearer {expected}"


def test_the_asyncio_client_does_the_same(files, server):
    async def use():
        async with normd.aio.connect(server.target, ca=files / "ca.crt", token="s3cret") as client:
            await client.describe()
        async with normd.aio.connect(server.target, ca=files / "ca.crt", server_name="normd.example") as client:
            with pytest.raises(normd.Unavailable, match="has a certificate for other names"):
                await client.describe()

    asyncio.run(use())
    assert server.tokens[0] == "Bearer s3cret"


def test_a_token_travels_over_a_unix_socket_and_never_in_plain_text_over_tcp(files):
    with pytest.raises(normd.InvalidArgument, match="would be called in plain text") as refusal:
        normd.connect("127.0.0.1:8001", token="s3cret")
    assert refusal.value.field == "token" and "s3cret" not in str(refusal.value)
    with Served(address=f"unix:{files}/socket") as server:
        call(server.target, token="s3cret")
        assert server.tokens == ["Bearer s3cret"]


def test_the_environment_is_for_what_nobody_gave(files, server, monkeypatch):
    monkeypatch.setenv("NORMD_CA", str(files / "ca.crt"))
    monkeypatch.setenv("NORMD_TOKEN_FILE", str(files / "token"))
    call(server.target)
    call(server.target, token="mine")
    assert server.tokens == ["Bearer " + (files / "token").read_text().strip(), "Bearer mine"]
    assert normd.connect().target == "127.0.0.1:8001"  # not a Unix socket, which takes no TLS
    with Served(address=f"unix:{files}/other-socket") as local:
        call(local.target)  # TLS of the environment is for TCP
    monkeypatch.setenv("NORMD_TLS", "false")
    with pytest.raises(normd.InvalidArgument, match="plain text"):
        normd.connect(server.target)
    monkeypatch.setenv("NORMD_TLS", "perhaps")
    with pytest.raises(normd.InvalidArgument, match="NORMD_TLS"):
        normd.connect(server.target)


@pytest.mark.parametrize("security, message", [
    ({"ca": "none"}, "cannot read the CA file .*/none: No such file"),
    ({"ca": "ca.key"}, "the CA file .*/ca.key holds no certificate"),
    ({"certificate": "client.crt"}, "certificate is given without key"),
    ({"certificate": "client.crt", "key": "server.key"}, "client.crt and the key file .*server.key cannot be used"),
    ({"certificate": "client.crt", "key": "locked.key"}, "locked.key has a passphrase"),
    ({"ca": "ca.crt", "token_file": "none"}, "cannot read the token file"),
    ({"ca": "ca.crt", "token_file": "ca.crt"}, "ca.crt has a character that no bearer token has"),
    ({"ca": "ca.crt", "token_file": "empty"}, "the token file .*/empty is empty"),
])
def test_a_file_that_cannot_be_used_is_named_with_the_reason(files, security, message):
    (files / "empty").write_text("\n")
    if not (files / "locked.key").exists():
        subprocess.run(["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", files / "client.key", "-out",
                        files / "locked.key"], check=True, capture_output=True)
    with pytest.raises(normd.InvalidArgument, match=message):
        normd.connect("127.0.0.1:1", **{name: files / value for name, value in security.items()})


@pytest.mark.parametrize("target, security, field", [
    ("unix:/tmp/normd.sock", {"tls": True}, "tls"), ("127.0.0.1:1", {"tls": False, "ca": "x"}, "tls"),
    ("127.0.0.1:1", {"tls": "yes"}, "tls"), ("127.0.0.1:1", {"tls": True, "token": "a b"}, "token"),
    ("127.0.0.1:1", {"tls": True, "token": "a", "token_file": "b"}, "token"),
    ("127.0.0.1:1", {"ca": "x", "credentials": grpc.ssl_channel_credentials()}, "credentials")])
def test_what_cannot_be_meant_is_refused(target, security, field):
    with pytest.raises(normd.InvalidArgument) as refusal:
        normd.connect(target, **security)
    assert refusal.value.field == field


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="cafile"):
        normd.connect("127.0.0.1:1", cafile="x")


def test_credentials_of_grpc_are_taken_as_they_are(files, server):
    call(server.target, credentials=grpc.ssl_channel_credentials((files / "ca.crt").read_bytes()), token="t")
    assert server.tokens == ["Bearer t"]
    assert os.environ.get("NORMD_CA") is None
