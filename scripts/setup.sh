#!/bin/sh
# Makes .venv ready and then runs a command in it:
#
#     sh scripts/setup.sh [COMMAND [ARGUMENT ...]]
#
# PYTHON=python3.12 chooses the interpreter; otherwise the first of 3.11 or newer on PATH is taken.
# Writes nothing outside .venv, except for a cache of uv or pip; a missing Java (or Debian's
# python3-venv) is installed with the system's package manager if we are root or sudo asks for no
# password. A set-up that is complete and unchanged costs a fraction of a second; an interrupted one
# starts again.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
log=$venv/setup.log
# What .venv was made from. It is written last, so a .venv without it is not complete.
stamp=$venv/made-from

say() { printf '%s\n' "setup: $*" >&2; }
die() {
    say "$*"
    exit 2
}

# --- Packages of the system -----------------------------------------------------------------------

for manager in apt-get dnf brew none; do
    ! command -v $manager >/dev/null 2>&1 || break
done

# Runs a command as root, or fails if that needs a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Installs a package of the system; fails if we may not, or if there is none of that name.
install_package() {
    [ "$manager" = brew ] || as_root true 2>/dev/null || return 1
    say "installing $1 with $manager"
    mkdir -p $venv
    case $manager in
    apt-get)
        # The lists of packages may be old or, in a container image, not there.
        quietly as_root apt-get update || true
        quietly as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$1"
        ;;
    dnf) quietly as_root dnf install -y "$1" ;;
    brew) quietly brew install "$1" ;;
    *) return 1 ;;
    esac
}

# Runs a command with its output in the log and a line every 10 seconds that says it is alive.
quietly() {
    (
        # The last sleep outlives us: it must not hold our output, or the lock, open.
        while sleep 10 >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do
            say "  still working: $(tail -n 1 $log | sed 's/^ *//' | cut -c 1-70)"
        done
    ) &
    heartbeat=$!
    status=0
    "$@" >>$log 2>&1 || status=$?
    kill $heartbeat 2>/dev/null || true
    heartbeat=
    return $status
}

# --- Python ---------------------------------------------------------------------------------------

is_recent_python() {
    "$1" -ISc 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Prints the interpreter to make .venv with. A name on PATH may be a shim that does not run.
find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if is_recent_python "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
        if [ -n "${PYTHON:-}" ]; then
            break
        fi
    done
    found=$("${PYTHON:-python3}" --version 2>/dev/null | head -n 1)
    die "Python 3.11 or newer is needed, ${PYTHON:-python3} is ${found:-missing}: install one," \
        "or name it with PYTHON=/path/to/python3"
}

has_venv() { "$1" -Ic 'import ensurepip, venv' 2>/dev/null; }

version_of() { "$1" -ISc 'import sys; print(sys.version.split()[0])' 2>/dev/null; }

# --- The packages ---------------------------------------------------------------------------------

# A copy says more than a hash and compares as fast. The checkout's path is in it because scripts in
# .venv/bin hold it: a checkout that moved is set up again.
made_from() {
    printf '%s\n' "$1" "$PWD"
    cat requirements.lock pyproject.toml
}

# Prints the version of .venv's Python; fails if it does not run, or if PYTHON names another one.
version_of_venv() {
    version=$(version_of $venv/bin/python) || return 1
    [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$version" ] || return 1
    printf '%s\n' "$version"
}

is_complete() {
    version=$(version_of_venv) || return 1
    made_from "$version" | cmp -s - $stamp
}

# What the kernel and its like were compiled from: apart, because a mistake in it must not cost a new .venv.
kernel_made_from() { cat setup.py nats_transform/kernel/build.py nats_transform/*/*.[ch]; }

has_kernel() {
    [ -f nats_transform/kernel/kernel.so ] && [ -f nats_transform/backup/backup.so ] &&
        kernel_made_from | cmp -s - $venv/kernel-made-from
}

# True if .venv was complete once, for this interpreter and place: packages can be changed in it.
is_usable() {
    version=$(version_of_venv) && [ -f $stamp ] || return 1
    [ "$(head -n 2 $stamp)" = "$(printf '%s\n' "$version" "$PWD")" ]
}

# Installs what is named, with uv where it is there: it needs 25 s where pip needs 90 s. uv does not
# read the settings that pip has for a network with its own index or certificates: it is given them,
# and where it fails nevertheless, pip does it.
# --no-deps: the lock is complete, and pip refuses its `name==1` as an answer to `name[extra]`.
install() {
    if command -v uv >/dev/null 2>&1; then
        (
            settings=$($venv/bin/python -I -m pip config list 2>/dev/null) || settings=
            with() {
                value=$(printf '%s\n' "$settings" | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | head -n 1)
                [ -z "$value" ] || export "$2=$(printf '%s' "$value" | tr ' ' ',')"
            }
            with index-url UV_DEFAULT_INDEX
            with find-links UV_FIND_LINKS
            with no-index UV_NO_INDEX
            with cert SSL_CERT_FILE
            quietly uv pip install --python $venv/bin/python --no-deps "$@"
        ) && return
        say "uv could not do it (see $log); trying pip"
    fi
    # --no-compile: Python compiles the modules that are used, which is a small part of them.
    quietly $venv/bin/python -I -m pip --no-input --disable-pip-version-check install \
        --progress-bar off --no-compile --no-deps "$@" || {
        tail -n 15 $log >&2
        die "the packages could not be installed, see above and $PWD/$log; then run this again"
    }
}

install_project() {
    say "installing nats-transform itself, and compiling its kernel"
    install --no-build-isolation -e .
    kernel_made_from >$venv/kernel-made-from
}

install_packages() {
    if is_usable; then
        say "requirements.lock or pyproject.toml changed; updating .venv"
        rm -f $stamp
    else
        python=$(find_python)
        has_venv "$python" || {
            # Debian and Ubuntu pack it apart.
            [ "$manager" != apt-get ] || install_package python3-venv || true
            has_venv "$python" || die "$python has no module venv: install the package python3-venv"
        }
        rm -f $stamp 2>/dev/null || true
        say "making .venv with Python $(version_of "$python") (the first time takes minutes)"
        "$python" -I -m venv --clear $venv || die "$PWD/$venv could not be made"
    fi
    : >$log
    # First the locked pip, as old ones build source packages in other ways, and the locked
    # setuptools to build them with, so that all that runs here was checked against a hash.
    sed -n '/^pip==/,/# via/p; /^setuptools==/,/# via/p' requirements.lock >$venv/first.lock
    say "installing $(grep -c '^[a-z0-9].*==' requirements.lock) locked packages"
    install --require-hashes -r $venv/first.lock
    install --no-build-isolation --require-hashes -r requirements.lock
    install_project
    made_from "$(version_of_venv)" >$stamp.new
    mv $stamp.new $stamp
}

# --- Java -----------------------------------------------------------------------------------------

# Prints the home of the Java that $1 starts, if Spark runs on it: 17 to 23 (24 took away what its
# Hadoop calls, `Subject.getSubject`) with the module jdk.incubator.vector, which Spark 4 asks for.
java_home_of() {
    settings=$("$1" -XshowSettings:properties --add-modules jdk.incubator.vector -version 2>&1) ||
        return 1
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    [ "$version" -ge 17 ] 2>/dev/null && [ "$version" -le 23 ] || return 1
    printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

# Prints the first good Java's home: of JAVA_HOME, PATH, then where packages put one.
find_java() {
    for candidate in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java \
        /usr/lib/jvm/*/bin/java /usr/lib64/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk@*/bin/java /usr/local/opt/openjdk@*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if command -v "$candidate" >/dev/null 2>&1 && java_home_of "$candidate"; then
            return
        fi
    done
    return 1
}

provide_java() {
    if JAVA_HOME=$(find_java); then
        return
    fi
    install_package "$(java_package 21)" || install_package "$(java_package 17)" || true
    JAVA_HOME=$(find_java) ||
        die "Spark needs Java 17 or 21 and none was found: install $(java_package 21) or" \
            "$(java_package 17), or set JAVA_HOME"
}

java_package() {
    case $manager in
    apt-get) echo "openjdk-$1-jre-headless" ;;
    dnf) echo "java-$1-openjdk-headless" ;;
    brew) echo "openjdk@$1" ;;
    *) echo "Java $1" ;;
    esac
}

# --------------------------------------------------------------------------------------------------

# Settings meant for another Python or Spark would be found before what is installed here.
unset PYTHONHOME PYTHONPATH SPARK_HOME SPARK_CONF_DIR
# With this, as container images like to have it, every process compiles all that it imports anew.
unset PYTHONDONTWRITEBYTECODE

heartbeat=
trap 'if [ -n "$heartbeat" ]; then kill "$heartbeat" 2>/dev/null || true; fi' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

provide_java
if ! is_complete || ! has_kernel; then
    [ -w . ] || die "$PWD is not writable: the set-up makes .venv in it"
    python=$(find_python)
    # Two set-ups at once wait for each other. The lock is on the open file, so it ends with us.
    exec 9<requirements.lock
    "$python" -ISc 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null || {
        say "another set-up is at work here; waiting for it"
        "$python" -ISc 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    }
    # pip asks rustc for its version, and rustup's rustc makes ~/.rustup to answer.
    [ -d "${HOME:-}/.rustup" ] || export RUSTUP_HOME="$PWD/$venv/rustup"
    is_complete || install_packages
    has_kernel || install_project
    exec 9<&-
fi
[ $# -gt 0 ] || exit 0

export JAVA_HOME
export VIRTUAL_ENV="$PWD/$venv"
export PATH="$VIRTUAL_ENV/bin:$PATH"
export PYSPARK_PYTHON="$VIRTUAL_ENV/bin/python"
# Nothing that is run from here reports to its makers.
export DAGSTER_DISABLE_TELEMETRY=1 GX_ANALYTICS_ENABLED=false
trap - EXIT INT TERM
exec "$@"
