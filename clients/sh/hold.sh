#!/bin/sh
# Runs a command while it holds a lock of `spindle agent`:
#
#   hold.sh 'locks?name=nightly&wait=0' ./nightly --all
#
# The first argument is the request, as in docs/agent.md. The exit code is the command's, 75 if the lock was not acquired, or 76
# if it was lost or it is not known whether it was released.

if [ $# -lt 2 ]; then
  echo "usage: hold.sh 'locks?name=NAME' COMMAND [ARGUMENT...]" >&2
  exit 64
fi
request=$1
shift
socket=${SPINDLE_AGENT:-/run/spindle/agent.sock}

# The answer of an agent that has too many holds says after how many seconds to ask again.
wait=$(printf %s "$request" | sed -n 's/.*[?&]wait=\([^&]*\).*/\1/p')
ends=$(($(date +%s) + $(printf %s "$wait" | sed 's/\.[0-9]*//g; s/[0-9]*ms//; s/h/*3600+/; s/m/*60+/; s/s/+/')0))

lines='' dir=''
trap 'kill -KILL "${lines:-$!}" 2>/dev/null; rm -rf "$dir"' EXIT # set before curl starts, because curl alone would keep waiting for the lock
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
dir=$(mktemp -d) || exit 1
exec 4<&0
while :; do
  mkfifo "$dir/lines" || exit 1
  # A signal may go to the whole process group. curl ignores it, because curl must keep the lock until the command has ended.
  (trap '' HUP INT TERM; exec curl -sSN -D "$dir/head" --unix-socket "$socket" -X POST "http://agent/v1/$request") >"$dir/lines" &
  lines=$!
  exec 3<"$dir/lines"
  rm "$dir/lines"
  hold='' held='' said=''
  while [ -z "$held" ] && IFS= read -r line <&3; do
    case $line in
    *'"event":"hello"'*) hold=${line#*'"hold":"'} && hold=${hold%%'"'*} ;;
    *'"event":"held"'*) held=yes ;;
    ?*) said=$line ;;
    esac
  done
  [ -z "$held" ] || break
  after=$(tr -d '\r' <"$dir/head" | sed -n 's/^[Rr]etry-[Aa]fter: *//p')
  left=$((ends - $(date +%s)))
  if [ -z "$after" ] || { [ -n "$wait" ] && [ "$left" -lt "$after" ]; }; then
    echo "hold.sh: not acquired: $said" >&2
    exit 75
  fi
  sleep "$after" &
  lines=$!
  wait "$lines"
  [ -z "$wait" ] || request=$(printf %s "$request" | sed "s/\([?&]wait=\)[^&]*/\1$((left - after))s/")
done
rm -r "$dir"

# From now on, a signal is for the command, and the lock is released when the command has ended. The signal may come before $! is
# known.
command='' asked=''
trap 'asked=yes; kill -TERM "$command" 2>/dev/null' HUP INT TERM

# The command inherits descriptor 3. Even if this script is killed, curl can therefore write its lines, and keeps the lock, until
# the command has ended.
"$@" <&4 4<&- &
command=$!
{
  trap '' HUP INT TERM
  while IFS= read -r line <&3; do
    if ! kill -0 "$command" || grep -qs '^State:.Z' "/proc/$command/status"; then
      exec kill -KILL "$lines" # this script was killed, and the command has ended
    fi
    case $line in
    *'"event":"stop"'*) kill -TERM "$command" ;; # the lock is held until it is released
    *'"event":"lost"'*) kill -KILL "$command" ;;
    esac
  done
  kill -TERM "$command" # the agent or curl has ended: the lock expires, or is released
  sleep 1
  kill -KILL "$command"
} <&4 4<&- >/dev/null 2>&1 &
watcher=$!
[ -z "$asked" ] || kill -TERM "$command"

while
  wait "$command"
  status=$?
  kill -0 "$command" 2>/dev/null # a signal has interrupted the wait
do :; done
kill -KILL "$watcher" 2>/dev/null

# The id of a hold is a secret: it must not be in the list of processes.
released=$(printf 'url = "http://agent/v1/holds/%s/release"\n' "$hold" |
  curl -sS --max-time 30 --unix-socket "$socket" -X POST -K - -o /dev/null -w '%{http_code}')
if [ "$released" != 200 ]; then
  echo "hold.sh: the lock was lost, or will expire by itself" >&2
  status=76
fi
exit "$status"
