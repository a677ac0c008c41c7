"""The messages of normd.v1 and google.rpc: descriptors of proto/, of which _pool.py makes classes."""
