"""The messages of normd.v1, generated from proto/normd/v1 when the package is built."""
