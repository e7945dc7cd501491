#!/usr/bin/env bash
# timed.sh NAME COMMAND...: run a command, print how long it took, and keep that for `make sizes`.
name=$1; shift
"$@"; status=$?
mkdir -p build/seconds
echo "$SECONDS" > "build/seconds/${name//\//-}"
echo "$name took $((SECONDS / 60)) min $((SECONDS % 60)) s"
exit $status
