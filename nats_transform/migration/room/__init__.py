"""An account that has room for both the old and the new subjects of a migration."""
