#!/usr/bin/env python3
"""Checks with promtool what normd serves on /metrics, after calls of every kind: check_exposition.py BUILD

promtool is in Debian's package prometheus, which deploy/packages/ci.txt names.
"""
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE = 30  # seconds


def wait_for_ports(server, path):
    """The bound addresses by name, once the server serves."""
    end = time.monotonic() + PATIENCE
    while not os.path.exists(path):
        if server.poll() is not None or time.monotonic() > end:
            sys.exit("normd does not start")
        time.sleep(0.02)
    with open(path, encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split("=", 1) for line in lines)


def main():
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        ports = os.path.join(folder, "ports")
        server = subprocess.Popen([
            os.path.join(build, "normd"), "--listen=127.0.0.1:0", "--admin_listen=127.0.0.1:0", "--shared_memory=off",
            f"--data_dir={folder}/data", f"--port_file={ports}", "--log_level=error"])
        try:
            addresses = wait_for_ports(server, ports)
            at = f"--server={addresses['grpc']}"
            load = ["normload", at, "--duration=200ms", "--warmup=0s", "--shape=16x64"]
            create = ["normctl", "session", "create", "batch-norm", "--id=trained", "--channels=64",
                      "--layout=channels-last", at]
            for program, *arguments in (load + ["--method=rms-norm"], load + ["--transport=batch"],
                                        load + ["--transport=stream"], create,
                                        load + ["--session=trained", "--training", "--steps"]):
                subprocess.run([os.path.join(build, program), *arguments], check=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
            with urllib.request.urlopen(f"http://{addresses['admin']}/metrics", timeout=PATIENCE) as page:
                text = page.read()
        finally:
            server.terminate()
            server.wait()
    if b"normd_session_drift{" not in text:
        sys.exit("the training steps left no drift: something of what is checked is not there")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, check=False)
    print(f"promtool: {len(text.splitlines())} lines, exit status {checked.returncode}")
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
