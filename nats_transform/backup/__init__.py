"""Stream backups as nats-server 2.15 writes and restores them: read and written without a server.

Needs pyarrow and the compiled library beside this file.
"""
