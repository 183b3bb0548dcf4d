"""What accounts share with each other, and leaf nodes."""
