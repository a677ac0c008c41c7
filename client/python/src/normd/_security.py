"""How a server is called, and by whom: TLS, a client certificate, a bearer token.

The rules of the C++ client (client/cpp/security.h): a token never travels in plain text over TCP and is in no error; a
token file is read again when it changes, and certificates when a new connection is made after one failed.
"""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
import threading
import time
from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple, TypedDict, Union

import grpc

from normd._diagnosis import diagnose
from normd._target import host_of, is_unix
from normd.errors import InvalidArgument

ChannelOption = Tuple[str, Any]
Path = Union[str, "os.PathLike[str]"]

# RFC 6750. Servers and proxies bound their headers to 8 KiB in all.
TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
MAX_TOKEN = 4096
# A file that was written this short a time before it was read may be written again without a sign: clocks of file
# systems tick every few milliseconds, and those of other machines differ.
SETTLED = 2.0

Signature = Tuple[int, int, int, int, int]


class SecurityOptions(TypedDict, total=False):
    """Keywords of `connect` about TLS and the caller's identity; each has an environment variable, which holds where
    the keyword is absent. Files are PEM.

    tls: True calls by TLS, False in plain text. Without it, TLS is used if ca, certificate or server_name is given.
        $NORMD_TLS.
    ca: the file of the root certificates that the server's certificate comes from; without it, gRPC's own list of
        public ones (of $GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, if that is set). $NORMD_CA.
    certificate, key: the files of the client's certificate, with the intermediate ones behind it, and of its key, which
        has no passphrase. $NORMD_CERTIFICATE and $NORMD_KEY.
    server_name: the name that the server's certificate has, where that is not the host of the target.
        $NORMD_SERVER_NAME.
    token: sent with every call as `authorization: Bearer TOKEN`. $NORMD_TOKEN.
    token_file: a file with the token, which is read again when it changes. $NORMD_TOKEN_FILE.
    credentials: gRPC's own (grpc.ssl_channel_credentials() and others) instead of the files above.
    """

    tls: Optional[bool]
    ca: Optional[Path]
    certificate: Optional[Path]
    key: Optional[Path]
    server_name: Optional[str]
    token: Optional[str]
    token_file: Optional[Path]
    credentials: Optional[grpc.ChannelCredentials]


@dataclasses.dataclass
class _Settings:
    """SecurityOptions with the environment's."""

    tls: Optional[bool] = None
    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    token: str = ""
    token_file: str = ""
    credentials: Optional[grpc.ChannelCredentials] = None

    def names_tls(self) -> bool:
        return bool(self.ca or self.certificate or self.key or self.server_name)

    def uses_tls(self) -> bool:
        return self.credentials is not None or (self.names_tls() if self.tls is None else self.tls)


# The caller is nobody, whatever the environment says.
PLAIN: SecurityOptions = {"tls": False, "token": ""}


def asks_for_tls(options: SecurityOptions) -> bool:
    """True if a server that nobody named is to be looked for by TCP."""
    return _settle("", options).uses_tls()


def _refuse(field: str, message: str, value: str = "", limit: str = "") -> NoReturn:
    raise InvalidArgument(message, field=field, value=value, limit=limit)


def _settle(target: str, options: SecurityOptions) -> _Settings:
    unknown = set(options) - set(SecurityOptions.__annotations__)
    if unknown:
        raise TypeError(f"connect() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name == "tls":
            if not isinstance(value, bool):
                _refuse(name, f"tls is {value!r}; it must be True, False or None", str(value), "True, False or None")
        elif name != "credentials":
            if not isinstance(value, (str, os.PathLike)):
                # Not its value: it may be a token.
                _refuse(name, f"{name} is of type {type(value).__name__}; it must be a string")
            given[name] = os.fspath(value)
    settings = _Settings(**given)
    _add_environment(target, settings, set(given))
    return settings


def _add_environment(target: str, settings: _Settings, given: Set[str]) -> None:
    """What nobody gave as a keyword.

    The environment is for every client of a process: its TLS is for TCP alone, so that it does not keep a client from a
    Unix socket.
    """
    if "credentials" not in given and settings.tls is not False and not is_unix(target):
        if settings.tls is None and not settings.names_tls():
            settings.tls = _tls_of_environment()
        if settings.tls is not False:
            settings.ca = settings.ca or os.environ.get("NORMD_CA", "")
            settings.server_name = settings.server_name or os.environ.get("NORMD_SERVER_NAME", "")
            if not settings.certificate and not settings.key:
                settings.certificate = os.environ.get("NORMD_CERTIFICATE", "")
                settings.key = os.environ.get("NORMD_KEY", "")
    if not given & {"token", "token_file"}:
        settings.token = os.environ.get("NORMD_TOKEN", "")
        settings.token_file = os.environ.get("NORMD_TOKEN_FILE", "")


def _tls_of_environment() -> Optional[bool]:
    text = os.environ.get("NORMD_TLS", "").lower()
    if text in ("", "1", "true", "t", "yes", "y"):
        return True if text else None
    if text not in ("0", "false", "f", "no", "n"):
        _refuse("tls", f"NORMD_TLS is {text!r}; it must be true or false", text, "true or false")
    return False


def _check(target: str, settings: _Settings) -> None:
    if settings.credentials is not None:
        if settings.tls is not None or settings.names_tls():
            _refuse("credentials", "credentials and files or tls are given; leave one of the two out")
    elif settings.tls is False and settings.names_tls():
        _refuse("tls", "tls is False, but certificates or a server name are given; leave one of the two out", "False")
    elif settings.uses_tls() and is_unix(target):
        _refuse(
            "tls",
            f"{target} is a Unix socket, which takes no TLS; leave TLS and certificates out, or call host:port",
            limit="a target of host:port",
        )
    if bool(settings.certificate) != bool(settings.key):
        given, other = ("certificate", "key") if settings.certificate else ("key", "certificate")
        _refuse(other, f"{given} is given without {other}; give both")
    if settings.token and settings.token_file:
        _refuse("token", "token and token_file are both given; leave one of the two out")
    if (settings.token or settings.token_file) and not settings.uses_tls() and not is_unix(target):
        _refuse(
            "token" if settings.token else "token_file",
            f"a token is given, and {target} would be called in plain text, where others could read it; turn TLS on "
            "(tls=True), or leave the token out",
            limit="TLS or a Unix socket",
        )


def _read(field: str, what: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read the {what} file {path}: {error.strerror}", field=field, value=path, limit="a readable file"
        ) from None


def _signature(path: str) -> Optional[Signature]:
    """What changes when a file does; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_token(text: str, field: str, where: str) -> str:
    token = text.strip()
    if not token:
        _refuse(field, f"{where} is empty; it must hold a bearer token")
    if len(token) > MAX_TOKEN:
        _refuse(field, f"{where} has {len(token)} characters; a bearer token has at most {MAX_TOKEN}")
    if not TOKEN.fullmatch(token):
        _refuse(
            field,
            f"{where} has a character that no bearer token has; it must hold letters, digits and -._~+/= alone",
        )
    return token


def _load_credentials(settings: _Settings) -> grpc.ChannelCredentials:
    """Reads the files. InvalidArgument names the one that is wrong: gRPC would say only that a handshake failed."""
    _load_context(settings)
    roots = _read("ca", "CA", settings.ca) if settings.ca else None
    certificate = _read("certificate", "certificate", settings.certificate) if settings.certificate else None
    key = _read("key", "key", settings.key) if settings.certificate else None
    return grpc.ssl_channel_credentials(roots, key, certificate)


def _load_context(settings: _Settings) -> ssl.SSLContext:
    """The settings as Python's own TLS takes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca:
        _read("ca", "CA", settings.ca)
        try:
            context.load_verify_locations(settings.ca)
        except ssl.SSLError:
            _refuse("ca", f"the CA file {settings.ca} holds no certificate in PEM form", settings.ca)
    else:
        context.load_default_certs()
    if settings.certificate:
        _read("certificate", "certificate", settings.certificate)
        _read("key", "key", settings.key)
        try:
            context.load_cert_chain(settings.certificate, settings.key, password=_no_passphrase)
        except ssl.SSLError as error:
            _refuse(
                "certificate",
                f"the certificate file {settings.certificate} and the key file {settings.key} cannot be used: "
                f"{error.reason or error}; they must be a certificate and its key, in PEM form",
                settings.certificate,
            )
        except _PassphraseAsked:
            _refuse("key", f"the key file {settings.key} has a passphrase; it must have none", settings.key)
    return context


class _PassphraseAsked(Exception):
    """Raised by what OpenSSL calls for a passphrase; without it the terminal would be asked."""


def _no_passphrase() -> str:
    raise _PassphraseAsked


class Access:
    """What the connections and calls of one client carry to be let in. Safe from any thread."""

    def __init__(self, target: str, options: SecurityOptions) -> None:
        settings = _settle(target, options)
        _check(target, settings)
        self._target = target
        #: True if calls are encrypted, or go by credentials that the caller made.
        self.is_secure = settings.uses_tls()
        self._settings = settings
        self._lock = threading.Lock()
        self._files = [path for path in (settings.ca, settings.certificate, settings.key) if path]
        self._signatures = self._sign()
        self._credentials = settings.credentials
        if self.is_secure and self._credentials is None:
            self._credentials = _load_credentials(settings)
        self._token = _check_token(settings.token, "token", "the token") if settings.token else ""
        self._token_read: Optional[Signature] = None
        if settings.token_file:
            self._token = self._read_token()

    @property
    def credentials(self) -> Optional[grpc.ChannelCredentials]:
        """None: plain text."""
        return self._credentials

    def channel_options(self) -> List[ChannelOption]:
        name = self._settings.server_name
        return [("grpc.ssl_target_name_override", name)] if name else []

    def renew(self) -> bool:
        """Reads the certificates again if their files changed: True if new connections are to be made.

        For after a failure to connect. Files that cannot be used leave what was read before.
        """
        with self._lock:
            signatures = self._sign()
            if signatures == self._signatures or None in signatures:
                return False
            self._signatures = signatures
            try:
                self._credentials = _load_credentials(self._settings)
            except InvalidArgument:
                return False  # half of a change; the other half changes the files again
            return True

    def token(self) -> str:
        """The token as it is now, or ""; what is in a file that is gone or holds none is the last one."""
        path = self._settings.token_file
        if not path:
            return self._token
        with self._lock:
            now = _signature(path)
            if now is not None and now != self._token_read:
                try:
                    self._token = self._read_token()
                except InvalidArgument:
                    pass
                self._token_read = now if time.time() - now[3] * 1e-9 > SETTLED else None
            return self._token

    def explain(self, text: str) -> Optional[str]:
        """What gRPC's words for a TLS handshake that failed mean; None if they mean no mistake of the caller's."""
        for sign, advice in _SIGNS if self.is_secure else ():
            if sign in text:
                return f"{advice} ({self._target})"
        return None

    def diagnose(self, timeout: float) -> Optional[str]:
        """Asks the server what keeps the two apart: see _diagnosis.py. May block for `timeout`."""

        def context() -> Optional[ssl.SSLContext]:
            return _load_context(self._settings) if self._settings.credentials is None else None

        try:
            name = self._settings.server_name or host_of(self._target)
            return diagnose(self._target, self.is_secure, context, name, timeout)
        except InvalidArgument:  # files that are gone by now
            return None

    def separate(self) -> None:
        """In a forked child, where a thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def _sign(self) -> List[Optional[Signature]]:
        return [_signature(path) for path in self._files]

    def _read_token(self) -> str:
        path = self._settings.token_file
        text = _read("token_file", "token", path).decode("latin-1")
        return _check_token(text, "token_file", f"the token file {path}")



# Parts of what gRPC says of a handshake that failed, and what that means.
_SIGNS = (
    ("WRONG_VERSION_NUMBER", "the server speaks no TLS and was called by it: leave tls, ca and the like out"),
    (
        "TSI_DATA_CORRUPTED",
        "the server ended the connection after the handshake: it may ask for a client certificate (certificate= and "
        "key=), or refuse the one that is given",
    ),
    ("certificate has expired", "the certificate of the server has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "the certificate of the server does not come from the root certificates of ca"),
    (
        "Hostname Verification Check failed",
        "the certificate of the server is for other names: call it by one of them, or give server_name",
    ),
)
