"""Reading the configurations people already have."""
