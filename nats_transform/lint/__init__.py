"""What nats-server accepts but people probably do not want."""
