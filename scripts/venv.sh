# Sourced by the scripts beside it: makes .venv with what they need, once, and sets VENV and ROOT.
#
# Debian 12 with python3 and pip alone is enough: `python3 -m venv` fails there (ensurepip is a package of its own)
# and so does a plain `pip install`, so an empty environment is made and filled by the system's pip. What pip is told
# by its configuration and environment (index, proxy, find-links) is respected. A second run costs a file comparison.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${COLANE_VENV:-$ROOT/.venv}"
TORCH="torch==2.13.0"  # the version everything here was tried with

say() { printf '%s\n' "$*" >&2; }
fail() { say "$(basename "$0"): $*"; exit 1; }

# Packages of Debian's that are missing and that pip cannot bring: install them as root, else name them.
need_packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "please install $* (Debian: sudo apt-get install $*) and try again"
    fi
    say "installing $* with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -yq --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null && apt-get install -yq --no-install-recommends "$@" >/dev/null; } ||
        fail "apt-get could not install $*"
}

find_python() {
    PYTHON="${PYTHON:-python3}"
    command -v "$PYTHON" >/dev/null || need_packages python3
    PYTHON="$(command -v "$PYTHON")"
    # The environment that is made here has no pip: where it comes first in PATH, the Python it was made from is meant.
    case "$PYTHON" in "$VENV"/*) PYTHON="$("$PYTHON" -c 'import sys; print(sys._base_executable)')" ;; esac
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$PYTHON is $("$PYTHON" --version), and 3.11 or newer is needed; name another: PYTHON=python3.12 $0"
    has_pip || need_of_python pip python3-pip "$PYTHON -m ensurepip gives it one"
    has_pip || fail "$PYTHON still has no pip; name another: PYTHON=/usr/bin/python3 $0"
    "$PYTHON" -c 'import venv' 2>/dev/null || need_of_python "module venv" python3-venv "its makers have left that out"
}

has_pip() { "$PYTHON" -m pip --version >/dev/null 2>&1; }

# need_of_python WHAT PACKAGE FIX: Debian's packages are for Debian's Python; what any other lacks is said at once.
need_of_python() {
    [ "$("$PYTHON" -c 'import sys; print(sys.base_prefix)')" = /usr ] ||
        fail "$PYTHON has no $1: $3, or name another: PYTHON=/usr/bin/python3 $0"
    need_packages "$2"
}

has_headers() { [ -e "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]; }
has_cc() { local cc="${CC:-cc}"; command -v "${cc%% *}" >/dev/null; }
has_compiler() { has_cc && has_headers; }

# What compiling C for this Python takes.
find_compiler() {
    has_cc || need_packages gcc libc6-dev
    has_headers || need_of_python "headers (Python.h)" python3-dev "its makers have left them out"
}

# Requirements of a dependency group, read here because the pip of Debian 12 does not know groups yet.
group() {
    "$PYTHON" - "$ROOT/pyproject.toml" "$1" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    print(*tomllib.load(file)["dependency-groups"][sys.argv[2]], sep="\n")
PYTHON
}

# What pip does, in one line that is written anew on a terminal and now and then elsewhere; what went wrong is shown whole.
PIP_FAILED="pip has failed"
tell_progress() {
    "$PYTHON" -u -c '
import sys, time
failed = sys.argv[1]
start, shown, packages, lines = time.monotonic(), 0.0, 0, []
tty = sys.stderr.isatty()
for line in sys.stdin:
    lines.append(line)
    words = line.split()
    packages += words[:1] == ["Collecting"]
    if words[:1] not in (["Collecting"], ["Downloading"], ["Installing"], ["Building"]):
        continue
    now = time.monotonic()
    if tty or now - shown > 10 or words[0] == "Installing":
        shown = now
        what = f"{words[0].lower()} {words[1][:50]}" if words[0] != "Installing" else "installing them all"
        text = f"  {now - start:4.0f} s  {packages} packages, {what}"
        sys.stderr.write(f"\r\033[K{text[:78]}" if tty else f"{text}\n")
sys.stderr.write("\r\033[K" if tty else "")
if lines and lines[-1].strip() == failed:
    sys.stderr.writelines(lines[-26:-1])
    sys.exit(1)
' "$PIP_FAILED"
}

# ensure_venv [GROUP]: make the environment, with the requirements of a dependency group where one is named.
ensure_venv() {
    find_python
    local stamp_file="$VENV/.colane-stamp${1:+-$1}" stamp wanted=()
    stamp="$(printf '%s ' "$TORCH" "$ROOT" "$("$PYTHON" --version)"; sha256sum <"$ROOT/pyproject.toml")"
    if [ -x "$VENV/bin/colane" ] && [ "$(cat "$stamp_file" 2>/dev/null)" = "$stamp" ]; then return; fi
    say "preparing $VENV (once; PyTorch is some 200 MB, so this takes a few minutes)"
    [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv --without-pip "$VENV" || fail "cannot make $VENV"
    if [ $# -gt 0 ]; then mapfile -t wanted < <(group "$1"); fi
    { "$PYTHON" -m pip --python "$VENV/bin/python" install --disable-pip-version-check --root-user-action=ignore \
        --progress-bar off "$TORCH" -e "$ROOT[workloads]" "${wanted[@]}" 2>&1 || echo "$PIP_FAILED"; } | tell_progress ||
        fail "pip could not install what is needed; see above"
    printf '%s\n' "$stamp" >"$stamp_file"
}
