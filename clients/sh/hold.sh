#!/bin/sh
# Runs a command while it holds a lock of `spindle agent`:
#
#   hold.sh 'locks?name=nightly&wait=0' ./nightly --all
#
# The first argument is the request, as in docs/agent.md. The exit code is the command's, 75 if the lock was not acquired, or 76
# if it was lost or the agent did not answer the release.

if [ $# -lt 2 ]; then
  echo "usage: hold.sh 'locks?name=NAME' COMMAND [ARGUMENT...]" >&2
  exit 64
fi
request=$1
shift
socket=${SPINDLE_AGENT:-/run/spindle/agent.sock}

lines='' dir=''
trap 'kill "${lines:-$!}" 2>/dev/null; rm -rf "$dir"' EXIT # before curl starts: alone, it would go on to wait for the lock
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
dir=$(mktemp -d) && mkfifo "$dir/lines" || exit 1
curl -sSN --unix-socket "$socket" -X POST "http://agent/v1/$request" >"$dir/lines" &
lines=$!
exec 3<"$dir/lines" 4<&0
rm -r "$dir"

hold='' held='' said=''
while [ -z "$held" ] && IFS= read -r line <&3; do
  case $line in
  *'"event":"hello"'*) hold=${line#*'"hold":"'} && hold=${hold%%'"'*} ;;
  *'"event":"held"'*) held=yes ;;
  ?*) said=$line ;;
  esac
done
if [ -z "$held" ]; then
  echo "hold.sh: not acquired: $said" >&2
  exit 75
fi

# The command inherits descriptor 3. Even if this script is killed, curl can therefore write its lines, and keeps the lock, until
# the command has ended.
"$@" <&4 4<&- &
command=$!
{
  while IFS= read -r line <&3; do
    if ! kill -0 "$command" || grep -qs '^State:.Z' "/proc/$command/status"; then
      exec kill "$lines" # this script was killed, and the command has ended
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
trap 'kill -TERM "$command"' HUP INT TERM # and release the lock when it has ended

while
  wait "$command"
  status=$?
  kill -0 "$command" 2>/dev/null # a signal has interrupted the wait
do :; done
kill "$watcher" 2>/dev/null

# The id of a hold is a secret: it must not be in the list of processes.
printf 'url = "http://agent/v1/holds/%s/release"\n' "$hold" |
  curl -sSf --max-time 30 --unix-socket "$socket" -X POST -K - >/dev/null || {
  echo "hold.sh: the lock was lost, or expires by itself" >&2
  status=76
}
exit "$status"
