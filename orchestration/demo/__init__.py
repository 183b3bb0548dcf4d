"""The main job, end to end and embedded: `nats-transform demo`."""
