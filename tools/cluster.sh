#!/usr/bin/env bash
# Three Quire servers, a Redis cluster of three masters that they share, and nginx in front, all on loopback and without
# containers. docs/operations.md explains the parts. The packages: tools/deps.sh build clients
#
# usage: tools/cluster.sh [start|stop|status] [-m MODEL] [-n SERVERS] [-d FOLDER] [-b BINARY] [-- OPTIONS of serve]
#   start    start everything, wait until it is ready, print the addresses and return. What runs already is left alone,
#            so this also brings back what was killed (then the other options are those of the first start)
#   stop     stop everything and remove the folder, unless it was given with -d
#   status   what runs; the exit code is 1 if something does not
#   nothing  start, wait for Ctrl-C (or SIGTERM), stop
#
# Each part has a folder with its log, its process id and its configuration: FOLDER/quire1, FOLDER/redis1, FOLDER/nginx.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
command=run given='' servers=3 extra=()
model=$root/models/quire-demo-llama-q8_0.gguf quire=$root/build/release/src/cli/quire
redis_nodes=3 fresh='' known=''

fail() { echo "cluster.sh: $*" >&2; exit 1; }
case ${1:-} in start | stop | status) command=$1; shift ;; esac
while [ $# -gt 0 ]; do
  case $1 in
    -m | -n | -d | -b)
      [ $# -ge 2 ] || fail "$1 needs a value"
      case $1 in -m) model=$2 ;; -n) servers=$2 ;; -d) given=$2 ;; -b) quire=$2 ;; esac
      shift 2 ;;
    --) shift; extra=("$@"); break ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
[[ $servers =~ ^[1-9][0-9]?$ ]] || fail "-n: '$servers' is not a number from 1 to 99"
if [ -n "$given" ]; then
  dir=$(realpath -m "$given")
else
  dir=$(realpath -m "${TMPDIR:-/tmp}")/quire-cluster-$(id -u)
fi

# Every user may write to /tmp. What is in the folder is executed here (settings, configurations) and names the
# processes to kill, so it must be the user's own. stat looks at a link itself: another user's is refused too.
is_own() { [ "$(stat -c %u "$dir" 2>/dev/null)" = "$(id -u)" ]; }
if is_own; then
  # At the level of the script: in a function, what settings declares would be local.
  if [ "$command" = start ] && [ -O "$dir/settings" ]; then
    # shellcheck source=/dev/null
    . "$dir/settings"
    known=1
  fi
elif [ -e "$dir" ] || [ -L "$dir" ]; then
  fail "$dir belongs to another user"
fi

# --- processes. FOLDER/NAME/pid has the process id and when it began, so that no other process is taken for it.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
pid_of() {  # NAME: sets pid; fails if it does not run
  local since
  [ -s "$dir/$1/pid" ] || return 1
  read -r pid since <"$dir/$1/pid"
  [ -n "$since" ] && [ "$(began "$pid")" = "$since" ] && [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -c1)" != Z ]
}
# launch NAME COMMAND...: in a session of its own, so that Ctrl-C reaches this script alone, which then stops it.
launch() {
  local name=$1
  shift
  : >"$dir/$name/out"
  setsid "$@" >>"$dir/$name/out" 2>>"$dir/$name/log" </dev/null &
  echo "$! $(began $!)" >"$dir/$name/pid"
}
names() {
  [ ! -d "$dir" ] || (cd "$dir" && for each in nginx quire* redis*; do [ ! -s "$each/pid" ] || echo "$each"; done)
}
stop_all() {
  local name wait
  for name in $(names); do
    # One that was paused does not see SIGTERM.
    ! pid_of "$name" || { kill -CONT "$pid"; kill -TERM "$pid"; } 2>/dev/null || true
  done
  for name in $(names); do
    for ((wait = 0; wait < 150; ++wait)); do pid_of "$name" || break; sleep 0.1; done
    ! pid_of "$name" || kill -KILL "$pid" 2>/dev/null || true
  done
  if [ -z "$given" ]; then rm -rf "$dir"; else rm -f "$dir"/*/pid; fi
}
wait_for() {  # NAME COMMAND...: until the command succeeds
  local name=$1 i
  shift
  for ((i = 0; i < 1200; ++i)); do
    if "$@" >/dev/null 2>&1; then return; fi
    pid_of "$name" || break
    sleep 0.1
  done
  echo "cluster.sh: $name does not become ready: $*" >&2
  tail -n 20 "$dir/$name/log" "$dir/$name/out" >&2 || true
  exit 1
}

# --- ports. Below the range from which the kernel takes ports for connections; Redis' bus is 10000 above its port.
next=$((12000 + (RANDOM * 7 + $$) % 9000))
used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() {
  while used "$next" || used $((next + 10000)); do next=$((next + 1)); done
  port=$next
  next=$((next + 1))
}
port_of() { cat "$dir/$1/port"; }

# --- the parts
# A path in a configuration of Redis or nginx; it may have spaces.
quoted() {
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}
prepare_redis() {
  local i
  for ((i = 1; i <= redis_nodes; ++i)); do
    mkdir "$dir/redis$i"
    free_port
    echo "$port" >"$dir/redis$i/port"
    cat >"$dir/redis$i/redis.conf" <<CONF
bind 127.0.0.1
port $port
dir $(quoted "$dir/redis$i")
cluster-enabled yes
cluster-node-timeout 2000
cluster-require-full-coverage no
# A cache: what was not used for longest goes first, and nothing is written to a disk.
maxmemory 512mb
maxmemory-policy allkeys-lru
save ""
appendonly no
CONF
  done
}
start_redis() {
  local i nodes=()
  for ((i = 1; i <= redis_nodes; ++i)); do
    pid_of "redis$i" || launch "redis$i" redis-server "$dir/redis$i/redis.conf"
    nodes+=("127.0.0.1:$(port_of "redis$i")")
  done
  for ((i = 1; i <= redis_nodes; ++i)); do
    wait_for "redis$i" sh -c "redis-cli -p $(port_of "redis$i") ping | grep -q PONG"
  done
  if [ ! -e "$dir/redis1/created" ]; then
    redis-cli --cluster create "${nodes[@]}" --cluster-replicas 0 --cluster-yes >"$dir/redis1/create.log" 2>&1 ||
      { cat "$dir/redis1/create.log" >&2; fail "the Redis cluster could not be created"; }
    : >"$dir/redis1/created"
  fi
  for ((i = 1; i <= redis_nodes; ++i)); do
    wait_for "redis$i" sh -c "redis-cli -p $(port_of "redis$i") cluster info | grep -q cluster_state:ok"
  done
  local IFS=,
  shared="redis://${nodes[*]}"
}
start_quire() {
  local i
  for ((i = 1; i <= servers; ++i)); do
    pid_of "quire$i" || {
      mkdir -p "$dir/quire$i"
      # The server takes a free port the first time, and the same one after that: nginx knows it.
      launch "quire$i" "$quire" serve -m "$model" --host 127.0.0.1 --port "$(port_of "quire$i" 2>/dev/null || echo 0)" \
        --shared-cache "$shared" "${extra[@]}"
    }
  done
  for ((i = 1; i <= servers; ++i)); do
    wait_for "quire$i" grep -q '^quire: listening on' "$dir/quire$i/out"
    sed -n 's|^quire: listening on http://127.0.0.1:\([0-9]*\)/$|\1|p' "$dir/quire$i/out" >"$dir/quire$i/port"
  done
}
prepare_nginx() {
  local i
  mkdir "$dir/nginx"
  free_port
  echo "$port" >"$dir/nginx/port"
  {
    # Workers of nginx that was started by root could not read a folder of root.
    [ "$(id -u)" -ne 0 ] || echo "user root;"
    cat <<CONF
worker_processes 1;
daemon off;
pid $(quoted "$dir/nginx/nginx.pid");
error_log $(quoted "$dir/nginx/error.log");
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $(quoted "$dir/nginx/body");
    proxy_temp_path $(quoted "$dir/nginx/proxy");
    fastcgi_temp_path $(quoted "$dir/nginx/fastcgi");
    uwsgi_temp_path $(quoted "$dir/nginx/uwsgi");
    scgi_temp_path $(quoted "$dir/nginx/scgi");

    # Where a request goes: by the header, else anywhere.
    map \$http_x_quire_route \$quire_route {
        "" \$request_id;
        default \$http_x_quire_route;
    }
    upstream quire {
        hash \$quire_route consistent;
CONF
    for ((i = 1; i <= servers; ++i)); do
      echo "        server 127.0.0.1:$(port_of "quire$i") max_fails=1 fail_timeout=5s;"
    done
    cat <<CONF
        keepalive 64;
    }
    server {
        listen 127.0.0.1:$port;
        client_max_body_size 8m;
        client_body_buffer_size 1m;
        location / {
            proxy_pass http://quire;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host \$http_host;
            proxy_buffering off;
            proxy_connect_timeout 2s;
            proxy_read_timeout 660s;
            # A server that died, or stops, before the first byte of an answer: another one is asked. POST too.
            proxy_next_upstream error timeout http_503 non_idempotent;
            proxy_next_upstream_tries 3;
        }
    }
}
CONF
  } >"$dir/nginx/nginx.conf"
}
start_nginx() {
  [ -e "$dir/nginx/nginx.conf" ] || prepare_nginx
  pid_of nginx || launch nginx nginx -p "$dir/nginx" -e "$dir/nginx/error.log" -c "$dir/nginx/nginx.conf"
  wait_for nginx curl -fs "http://127.0.0.1:$(port_of nginx)/health"
}

status() {
  local name all=0
  [ -n "$(names)" ] || fail "there is no cluster in $dir"
  for name in $(names); do
    if pid_of "$name"; then state="runs, process $pid"; else state="does not run"; all=1; fi
    printf '%-8s 127.0.0.1:%-6s %s\n' "$name" "$(port_of "$name" 2>/dev/null)" "$state"
  done
  return $all
}

start() {
  local tool
  for tool in redis-server redis-cli nginx curl setsid; do
    command -v $tool >/dev/null || PATH=$PATH:/usr/sbin command -v $tool >/dev/null ||
      fail "$tool is not installed (tools/deps.sh clients)"
  done
  PATH=$PATH:/usr/sbin
  [ -x "$quire" ] || fail "$quire is not there: ninja -C build/release quire, or -b"
  [ -r "$model" ] || fail "-m: $model cannot be read"
  # What cannot be started as a whole is not left half started.
  trap '[ $? -eq 0 ] || [ -z "$fresh" ] || stop_all' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if [ -z "$known" ]; then
    if is_own; then
      [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty, and is not the folder of a cluster"
      chmod 700 "$dir"
    else
      mkdir -p "$(dirname "$dir")"
      mkdir -m 700 "$dir"  # without -p: fails if another user has made it since
    fi
    fresh=1
    prepare_redis
    # A later start may come from another folder.
    [[ $model = /* ]] || model=$PWD/$model
    [[ $quire = /* ]] || quire=$PWD/$quire
    declare -p model servers quire extra >"$dir/settings"
  fi
  start_redis
  start_quire
  start_nginx
  echo "nginx    http://127.0.0.1:$(port_of nginx)/"
  for ((i = 1; i <= servers; ++i)); do echo "quire$i   http://127.0.0.1:$(port_of "quire$i")/"; done
  echo "redis    $shared"
  echo "folder   $dir"
}

case $command in
  start) start ;;
  stop) [ -n "$(names)" ] || fail "there is no cluster in $dir"; stop_all ;;
  status) status ;;
  run)
    [ ! -e "$dir/settings" ] || fail "there is a cluster in $dir already: stop it first"
    start
    trap 'trap "" INT TERM; stop_all; exit 0' EXIT
    trap 'exit 0' INT TERM
    echo "Ctrl-C stops all of them"
    while :; do sleep 1 & wait $!; done ;;
esac
