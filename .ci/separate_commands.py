#!/usr/bin/env python3
"""Compile commands of sources, from a build that compiles them in batches: separate_commands.py BUILD OUT.

Writes OUT/compile_commands.json with an entry for each source, with the flags of the batch that it is in, and prints the
sources. clang-tidy looks at one source at a time, and there a local name that shadows another one is a mistake.
"""

import json
import os
import re
import sys

INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def main():
    build, out = sys.argv[1:]
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    separate = []
    for command in commands:
        sources = [command["file"]]
        if "/Unity/" in command["file"]:
            with open(command["file"], encoding="utf-8") as file:
                sources = INCLUDE.findall(file.read())
        for source in sources:
            separate.append({"directory": command["directory"], "file": source,
                             "command": command["command"].replace(command["file"], source) + " -Wshadow"})
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(separate, file, indent=1)
    for command in separate:
        print(command["file"])


if __name__ == "__main__":
    main()
