# Keep the agent of a folder running where no systemd does: sh keep FOLDER. Told to end, it tells the agent so, and waits.
folder=$1
child='' ended='' pause=1
pass_on() {
    ended=yes
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap pass_on TERM INT HUP USR1
# stay COMMAND...: wait for a process; a signal that comes before it is known is passed on, too.
stay() {
    "$@" &
    child=$!
    [ -z "$ended" ] || kill -TERM "$child" 2>/dev/null
    while kill -0 "$child" 2>/dev/null; do wait "$child"; done
    child=''
}
while [ -z "$ended" ]; do
    began=$(date +%s)
    stay "$folder/agent"
    [ -z "$ended" ] || break
    echo "$began" >>"${folder%/*}/ended"
    if [ $(($(date +%s) - began)) -ge 60 ]; then pause=1; fi
    stay sleep "$pause"
    pause=$((pause * 2))
    [ "$pause" -le 30 ] || pause=30
done
