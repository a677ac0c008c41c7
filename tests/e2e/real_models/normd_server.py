"""A normd that a test starts, kills and starts again on the same socket and data."""

import pathlib
import re
import signal
import subprocess
import time
import urllib.request


class Server:
    """One normd at a time, in `folder`; `address` is the same after each start. Use it in a `with` statement."""

    def __init__(self, program: str, folder: str) -> None:
        self._program = program
        self._folder = pathlib.Path(folder)
        self.address = f"unix:{self._folder}/normd.sock"
        self._process = None

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def start(self) -> None:
        """Returns when it serves."""
        ports = self._folder / "ports"
        ports.unlink(missing_ok=True)
        with open(self._folder / "normd.log", "a") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--listen={self.address}",
                    "--admin_listen=127.0.0.1:0",
                    f"--data_dir={self._folder}/data",
                    f"--port_file={ports}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while not (ports.exists() and "grpc=" in ports.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"normd did not start:\n{(self._folder / 'normd.log').read_text()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: the server gets no chance to finish or to write anything."""
        self._process.kill()
        self._process.wait()

    def calls(self, norm: str) -> int:
        """The successful calls of a method, as the server counts them."""
        admin = re.search(r"^admin=(.*)$", (self._folder / "ports").read_text(), re.MULTILINE).group(1)
        with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        found = re.findall(r"^normd_requests_total\{([^}]*)\} ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(int(float(value)) for labels, value in found if f'norm="{norm}"' in labels and 'code="OK"' in labels)
