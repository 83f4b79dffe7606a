# What colane node does on a host, by ssh: sh -c THIS colane VERB DIR NAME WORDS...
# DIR/NAME holds releases/ (an environment each, and what runs it), current (the one in use), token, colane.toml, state/.
set -eu
export LC_ALL=C
umask 022
verb=$1 dir=$2 name=$3
shift 3
if [ -z "$dir" ]; then
    if [ "$(id -u)" = 0 ]; then dir=/var/lib/colane-node; else dir=${XDG_DATA_HOME:-$HOME/.local/share}/colane-node; fi
fi
[ -n "$name" ] || name=$(uname -n | sed 's/\..*//; s/[^A-Za-z0-9_-]/-/g; s/^[_-]*//' | cut -c 1-100)
base=$dir/$name
unit=colane-agent-$name.service
units=${XDG_CONFIG_HOME:-${HOME:-}/.config}/systemd/user

say() { printf '%s=%s\n' "$1" "$2"; }
fail() { printf 'colane: %s\n' "$*" >&2; exit 1; }
last() { { grep "$1" "$2" || cat "$2"; } | tail -n 1; }

# probe URL PYTHON: say what there is, and change nothing; an empty URL is not asked.
probe() {
    found='' old=''
    for each in ${2:-python3 python3.14 python3.13 python3.12 python3.11}; do
        path=$(command -v "$each") || continue
        if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$path; break; fi
        [ -n "$old" ] || old=$("$path" --version 2>&1 | head -n 1)
    done
    say dir "$dir"
    say name "$name"
    say user "$(id -un)"
    say python "$found"
    say old_python "$old"
    pip=''
    if [ -n "$found" ]; then
        if "$found" -c 'import venv' 2>/dev/null && "$found" -m pip --python "$found" --version >/dev/null 2>&1; then pip=host
        elif "$found" -c 'import venv, ensurepip' 2>/dev/null; then pip=own
        fi
        [ -z "$1" ] || "$found" -c '
import json, ssl, sys, urllib.request
context = ssl._create_unverified_context() if sys.argv[1].startswith("https:") else None  # who it is is asked later
try:
    said = urllib.request.urlopen(sys.argv[1] + "/health", timeout=10, context=context).read()
    print("cluster=" + json.loads(said)["cluster_id"])
except Exception as error:
    print("unreachable=" + " ".join(str(getattr(error, "reason", error)).split()))
' "$1"
    fi
    say pip "$pip"
    at=$dir
    while [ ! -d "$at" ]; do at=$(dirname "$at"); done
    # shellcheck disable=SC2046 # its words
    set -- $(df -Pk "$at" | tail -n 1)
    say free_kb "${4:-}"
    if [ -w "$at" ]; then say unwritable ''; else say unwritable "$at"; fi
    if [ -e "$base/token" ]; then say installed "$base"; else say installed ''; fi
    if [ -L "$base/current" ]; then say release "$(basename "$(readlink "$base/current")")"; else say release ''; fi
    if [ "$(id -u)" = 0 ] && [ -d /run/systemd/system ]; then say supervisor system
    elif [ "$(id -u)" != 0 ] && systemctl --user show-environment >/dev/null 2>&1; then say supervisor user
    else say supervisor background
    fi
}

# install PYTHON PIP RELEASE: take a tar of standard input. What runs is left as it is.
install() {
    python=$1 pip=$2 new=$base/releases/$3
    incoming=$base/incoming
    undo() {
        rm -rf "$incoming"
        [ -e "$new/whole" ] || rm -rf "$new"
        if [ ! -e "$base/token" ]; then rm -rf "$base"; rmdir "$dir" 2>/dev/null || :; fi
    }
    trap undo EXIT
    mkdir -p "$base/releases" "$base/state"
    rm -rf "$incoming"
    (umask 077 && mkdir "$incoming" && tar -xf - -C "$incoming") || fail 'the files could not be written'
    log=$incoming/log
    if [ ! -e "$new/whole" ]; then
        rm -rf "$new"
        if [ "$pip" = own ]; then
            "$python" -m venv "$new" >"$log" 2>&1 || fail "$(tail -n 1 "$log")"
            set -- "$new/bin/python" -m pip
        else
            "$python" -m venv --without-pip "$new" >"$log" 2>&1 || fail "$(tail -n 1 "$log")"
            set -- "$python" -m pip --python "$new/bin/python"
        fi
        "$@" install -q --disable-pip-version-check --no-input "$incoming"/*.whl >"$log" 2>&1 ||
            fail "pip: $(last '^ERROR' "$log")"
        "$new/bin/colane" --version >/dev/null 2>"$log" || fail "$(tail -n 1 "$log")"
        mv -f "$incoming/agent" "$incoming/keep" "$incoming/unit" "$new/"
        chmod 755 "$new/agent" "$new/keep" "$new/unit"
        : >"$new/whole"
    fi
    for each in ca.pem colane.toml token; do
        [ ! -e "$incoming/$each" ] || mv -f "$incoming/$each" "$base/$each"
    done
    rm -rf "$incoming"
    trap - EXIT
}

# switch RELEASE SUPERVISOR: stop the agent, if one runs, and start that of this release. Its jobs go on meanwhile.
switch() {
    stop
    ln -sfn "releases/$1" "$base/current.new"
    mv -fT "$base/current.new" "$base/current"
    [ -z "$2" ] || printf '%s\n' "$2" >"$base/supervisor"
    start
}

# tidy: drop every release but the one in use.
tidy() {
    kept=$(basename "$(readlink "$base/current")")
    for each in "$base"/releases/*; do
        [ "$(basename "$each")" = "$kept" ] || rm -rf "$each"
    done
}

supervisor() { cat "$base/supervisor" 2>/dev/null || :; }

is_kept() { # whether the process that is noted keeps the agent of this folder
    pid=$(cat "$base/keep.pid" 2>/dev/null) && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$base/current/keep "
}

start() {
    case $(supervisor) in
    system)
        cp "$base/current/unit" "/etc/systemd/system/$unit"
        systemctl daemon-reload
        systemctl enable -q "$unit"
        systemctl restart "$unit"
        ;;
    user)
        mkdir -p "$units"
        cp "$base/current/unit" "$units/$unit"
        systemctl --user daemon-reload
        systemctl --user enable -q "$unit"
        systemctl --user restart "$unit"
        loginctl enable-linger >/dev/null 2>&1 || say lingers no
        ;;
    *)
        : >"$base/ended"
        setsid sh "$base/current/keep" "$base/current" </dev/null >>"$base/agent.log" 2>&1 &
        printf '%s\n' "$!" >"$base/keep.pid"
        ;;
    esac
}

# stop: stop the agent; its jobs go on, and the next one takes them over.
stop() {
    case $(supervisor) in
    system) systemctl stop "$unit" 2>/dev/null || : ;;
    user) systemctl --user stop "$unit" 2>/dev/null || : ;;
    *)
        if is_kept; then
            kill -TERM "$pid"
            tries=0
            while is_kept && [ "$tries" -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
            ! is_kept || fail "its agent (kept by process $pid) does not stop"
        fi
        ;;
    esac
}

# remove: stop it and leave nothing.
remove() {
    stop
    case $(supervisor) in
    system)
        systemctl disable -q "$unit" 2>/dev/null || :
        rm -f "/etc/systemd/system/$unit"
        systemctl daemon-reload
        ;;
    user)
        systemctl --user disable -q "$unit" 2>/dev/null || :
        rm -f "$units/$unit"
        systemctl --user daemon-reload
        ;;
    esac
    rm -rf "$base"
    rmdir "$dir" 2>/dev/null || :
}

# said: the agent's last words, and how often it has ended by itself since it was started.
said() {
    case $(supervisor) in
    system) say ended "$(systemctl show -p NRestarts --value "$unit" 2>/dev/null || :)" ;;
    user) say ended "$(systemctl --user show -p NRestarts --value "$unit" 2>/dev/null || :)" ;;
    *) say ended "$(grep -c . "$base/ended" 2>/dev/null || :)" ;;
    esac
    case $(supervisor) in
    system) say said "$(journalctl -q -n 1 -o cat -u "$unit" 2>/dev/null || :)" ;;
    user) say said "$(journalctl --user -q -n 1 -o cat -u "$unit" 2>/dev/null || :)" ;;
    *) say said "$(tail -n 1 "$base/agent.log" 2>/dev/null || :)" ;;
    esac
}

"$verb" "$@"
