#!/bin/sh
set -e
# Debian's packages get "remove", RPM's packages 0. During an upgrade the agent keeps running, because its end would
# release all locks.
case "$1" in
remove | 0) if [ -d /run/systemd/system ]; then systemctl disable --now spindle-agent.service; fi ;;
esac
