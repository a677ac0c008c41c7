"""Reads systemd's unit files."""


def settings(path, section, name):
    """The values of a setting in their order, without those before an empty one that resets them."""
    values, current = [], None
    with open(path, encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            if line.startswith("["):
                current = line.strip("[]")
            elif current == section and line.split("=", 1)[0] == name:
                value = line.split("=", 1)[1]
                values = values + [value] if value else []
    return values
