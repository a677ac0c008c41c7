#!/usr/bin/env python3
"""deploy/make-certificates.sh makes certificates that openssl verifies, and keeps what is there.

    tests/make_certificates_test.py
"""

import hashlib
import os
import re
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "deploy", "make-certificates.sh")
PRIVATE, PUBLIC = {"ca.key", "server.key", "client.key", "token", "tokens"}, {"ca.crt", "server.crt", "client.crt"}


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class MakeCertificatesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = os.path.join(temporary.name, "a folder")

    def make(self, *words):
        return run(SCRIPT, self.folder, *words)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read()

    def verify(self, name, *conditions):
        result = run("openssl", "verify", "-x509_strict", "-CAfile", self.path("ca.crt"), *conditions, self.path(name))
        return result.returncode == 0

    def test_openssl_verifies_them_for_their_names_and_purposes(self):
        made = self.make("normd.example", "10.0.0.7", "--client=spiffe://prod/trainer")
        self.assertEqual(made.returncode, 0, made.stderr)
        for name in ("localhost", "normd.example"):
            self.assertTrue(self.verify("server.crt", "-purpose", "sslserver", "-verify_hostname", name), name)
        for address in ("127.0.0.1", "::1", "10.0.0.7"):
            self.assertTrue(self.verify("server.crt", "-purpose", "sslserver", "-verify_ip", address), address)
        self.assertTrue(self.verify("client.crt", "-purpose", "sslclient"))
        self.assertFalse(self.verify("server.crt", "-verify_hostname", "other.example"))
        self.assertFalse(self.verify("server.crt", "-purpose", "sslclient"))
        self.assertFalse(self.verify("client.crt", "-purpose", "sslserver"))
        names = run("openssl", "x509", "-in", self.path("client.crt"), "-noout", "-ext", "subjectAltName").stdout
        self.assertIn("URI:spiffe://prod/trainer", names)

    def test_keys_and_tokens_are_private_and_the_tokens_file_has_the_hash(self):
        self.assertEqual(self.make().returncode, 0)
        self.assertEqual(set(os.listdir(self.folder)), PRIVATE | PUBLIC)
        for name in PRIVATE | PUBLIC:
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o600 if name in PRIVATE else 0o644, name)
        token = self.read("token").rstrip("\n")
        self.assertRegex(token, "^[0-9a-f]{64}$")
        line = re.search(r"^trial sha256:([0-9a-f]{64})$", self.read("tokens"), re.MULTILINE)
        self.assertEqual(line.group(1), hashlib.sha256(token.encode()).hexdigest())

    def test_what_is_there_stays_unless_forced(self):
        self.assertEqual(self.make().returncode, 0)
        before = self.read("server.key")
        again = self.make()
        self.assertEqual(again.returncode, 1)
        self.assertIn("exists; --force replaces it", again.stderr)
        self.assertEqual(self.read("server.key"), before)
        self.assertEqual(self.make("--force").returncode, 0)
        self.assertNotEqual(self.read("server.key"), before)
        self.assertEqual(set(os.listdir(self.folder)), PRIVATE | PUBLIC)

    def test_it_prints_how_to_start_and_to_call(self):
        printed = self.make().stdout
        commands = "\n".join(line.strip() for line in printed.splitlines() if line.startswith("  "))
        for words in (r"normd --listen=127\.0\.0\.1:8001 --tls_certificate=\S+", "--tokens_file=",
                      "normctl health .* --certificate ", "normctl health .* --token-file "):
            self.assertRegex(commands, words)
        # A shell takes the printed paths as they stand, blanks included.
        self.assertEqual(run("bash", "-c", "ls " + re.search(r"--token-file (.+)", printed).group(1)).returncode, 0)
        self.assertNotIn(self.read("token").strip(), printed)

    def test_what_is_no_name_is_refused(self):
        for word in ("two words", "--bogus", "a,DNS:b", "--days=0", "--client=no uri"):
            self.assertEqual(self.make(word).returncode, 2, word)
            self.assertFalse(os.path.exists(self.path("ca.crt")), word)


if __name__ == "__main__":
    unittest.main()
