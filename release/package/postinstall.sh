#!/bin/sh
set -e
# The account of spindle-agent.service. Systems without systemd don't need it.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers spindle.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
