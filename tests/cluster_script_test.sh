#!/usr/bin/env bash
# tools/cluster.sh with programs that only wait in place of Redis, nginx and Quire: whose folder it trusts, what it
# remembers, what it writes. tests/tiers/cluster.py runs it with the real ones.
# usage: tests/cluster_script_test.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
source_dir=${1:?usage: tests/cluster_script_test.sh SOURCE_DIR}
work=$(mktemp -d)
export TMPDIR="$work/a \"folder\""  # where the cluster's own folder is
folder=$TMPDIR/quire-cluster-$(id -u)
finish() {
  if [ -O "$folder" ]; then "$work/tools/cluster.sh" stop >/dev/null 2>&1 || true; fi
  rm -rf "$work"
}
trap finish EXIT
failed=0
wrong() { echo "cluster_script_test: $*" >&2; failed=1; }
cluster() { "$work/tools/cluster.sh" "$@" >"$work/out" 2>&1; }  # a copy: no model and no program lie beside it

mkdir -p "$work/bin" "$work/tools" "$work/here" "$TMPDIR"
cp "$source_dir/tools/cluster.sh" "$work/tools"
program() { cat >"$1" && chmod +x "$1"; }
program "$work/bin/redis-server" <<<$'#!/bin/sh\nexec sleep 60'
program "$work/bin/nginx" <<<$'#!/bin/sh\nexec sleep 60'
program "$work/bin/redis-cli" <<<$'#!/bin/sh\necho PONG cluster_state:ok'
program "$work/bin/curl" <<<$'#!/bin/sh\nexit 0'
program "$work/here/quire" <<<$'#!/bin/sh\necho "$@" >&2\necho "quire: listening on http://127.0.0.1:1234/"\nexec sleep 60'
: >"$work/here/model.gguf"
export PATH=$work/bin:$PATH

# --- a folder of another user is not touched, and nothing in it is executed
if [ "$(id -u)" -eq 0 ]; then
  mkdir "$folder"
  echo "touch '$work/executed'" >"$folder/settings"
  chown -R 65534 "$folder"
  for way in start status stop; do
    cluster $way -m "$work/here/model.gguf" -b "$work/here/quire" && wrong "$way: succeeded in a folder of another user"
    grep -q 'belongs to another user' "$work/out" || wrong "$way in a folder of another user: $(cat "$work/out")"
  done
  mv "$folder" "$work/theirs"
  ln -s "$work/theirs" "$folder"
  chown -h 65534 "$folder"
  chown 0 "$work/theirs"
  cluster start -m "$work/here/model.gguf" -b "$work/here/quire" && wrong "start: followed a link of another user"
  rm "$folder"
  [ ! -e "$work/executed" ] || wrong "settings of another user were executed"
else
  cluster start -d / && wrong "start: succeeded in a folder of another user"
  grep -q 'belongs to another user' "$work/out" || wrong "start -d /: $(cat "$work/out")"
fi

# --- the first start
cd "$work/here"
cluster start -n 2 -m model.gguf -b ./quire -- --alias "two words" || wrong "start: $(cat "$work/out")"
[ "$(stat -c %a "$folder")" = 700 ] || wrong "others can enter the folder"
path=${folder//\"/\\\"}
grep -qxF "dir \"$path/redis1\"" "$folder/redis1/redis.conf" || wrong "redis.conf: $(grep ^dir "$folder/redis1/redis.conf")"
for line in 'pid .*/nginx.pid' 'error_log .*/error.log' ' client_body_temp_path .*/body' ' proxy_temp_path .*/proxy' \
  ' fastcgi_temp_path .*/fastcgi' ' uwsgi_temp_path .*/uwsgi' ' scgi_temp_path .*/scgi'; do
  grep -E "^ *${line# }" "$folder/nginx/nginx.conf" | grep -qF " \"$path/nginx/" || wrong "nginx.conf: no $line in quotes"
done

# --- a later start, from another folder and without options: those of the first
kill -KILL "$(cut -d' ' -f1 "$folder/quire2/pid")"
cd /
cluster start || wrong "the second start: $(cat "$work/out")"
cluster status || wrong "after the second start: $(cat "$work/out")"
[ "$(grep -c -- "-m $work/here/model.gguf .*--alias two words" "$folder/quire2/log")" -eq 2 ] ||
  wrong "the second start had other options: $(cat "$folder/quire2/log")"

cluster stop || wrong "stop: $(cat "$work/out")"
[ ! -e "$folder" ] || wrong "the folder is still there"
exit $failed
