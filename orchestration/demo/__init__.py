"""The demo: the main job from end to end in one process, `nats-transform demo`."""
