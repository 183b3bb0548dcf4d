#!/bin/sh
# Reads secrets from files, puts them into the environment, and runs a command. A variable may set the
# path of each file; the default is where compose mounts it.
set -eu

file=${POSTGRES_PASSWORD_FILE:-/run/secrets/postgres-password}
[ -r "$file" ] || {
    echo "with_secrets: $file cannot be read; set POSTGRES_PASSWORD_FILE" >&2
    exit 2
}
DAGSTER_POSTGRES_PASSWORD=$(cat "$file")
export DAGSTER_POSTGRES_PASSWORD
# Escaped as a part of a URI. Python knows how, and it is there anyway.
escaped=$(python -c 'import sys, urllib.parse as u; print(u.quote(sys.stdin.read(), safe=""), end="")' \
    <<END
$DAGSTER_POSTGRES_PASSWORD
END
)
user=${NATS_TRANSFORM_CATALOG_USER:-archive}
host=${NATS_TRANSFORM_CATALOG_HOST:-$DAGSTER_POSTGRES_HOST}
database=${NATS_TRANSFORM_CATALOG_DB:-catalog}
PYICEBERG_CATALOG__ARCHIVE__URI="postgresql+psycopg2://$user:${escaped%\%0A}@$host/$database"
export PYICEBERG_CATALOG__ARCHIVE__URI
exec "$@"
