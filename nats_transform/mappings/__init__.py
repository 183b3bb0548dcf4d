"""Subjects, transforms, and the mappings of an account."""
