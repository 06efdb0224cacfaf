#!/usr/bin/env bash
# Draws which modules of src/ include which, as a matrix. A row is a module, a column a module that it includes: `h` if a
# header of the row includes it, `s` if only its sources do, `.` if neither. The modules are in an order in which each
# includes only those before it, so every mark is left of the diagonal `o`. Tests, benchmarks, fuzzers and test helpers do
# not count.
# usage: tools/include_graph.sh                 prints it
#        tools/include_graph.sh --write PAGE    puts it into the page, between the two lines that say where
#        tools/include_graph.sh --check PAGE    fails if the page shows another one
#        tools/include_graph.sh --edges         one line per pair: MODULE INCLUDED h|s
# It reads the src/ below $QUIRE_SOURCE_DIR, or that of its own repository.
set -euo pipefail
root=${QUIRE_SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
begin='<!-- include graph: begin (tools/include_graph.sh --write docs/design.md) -->'
end='<!-- include graph: end -->'

edges() {
  cd "$root/src"
  find . -mindepth 2 \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' \) |
    { grep -vE '_(test|bench|fuzz)\.cpp$|_testing\.h$' || true; } | sort |
    xargs grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]quire/[a-z0-9_]+/' |
    awk '{
      split($0, part, ":"); split(part[1], path, "/"); from = path[2]
      match($0, /quire\/[a-z0-9_]+\//); to = substr($0, RSTART + 6, RLENGTH - 7)
      if (from == to) next
      kind = part[1] ~ /\.h$/ ? "h" : "s"
      if (seen[from " " to] != "h") seen[from " " to] = kind
    } END { for (pair in seen) print pair, seen[pair] }' | sort
}

# A module is added when all modules that it includes have been added; of several, the first by name. If some are left,
# they form a circle.
matrix() {
  { find "$root/src" -mindepth 2 -maxdepth 2 -name CMakeLists.txt -printf 'module %h\n' | sed 's|^module .*/|module |' | sort; edges; } | awk '
    $1 == "module" { modules[++count] = $2; next }
    { mark[$1, $2] = $3; from[++pairs] = $1; to[pairs] = $2 }
    END {
      while (placed < count) {
        next_one = ""
        for (i = 1; i <= count && next_one == ""; ++i) {
          if (modules[i] in at) continue
          ready = 1
          for (p = 1; p <= pairs; ++p) if (from[p] == modules[i] && !(to[p] in at)) ready = 0
          if (ready) next_one = modules[i]
        }
        if (next_one == "") {
          circle = ""
          for (i = 1; i <= count; ++i) if (!(modules[i] in at)) circle = circle " " modules[i]
          print "these modules include each other in a circle, or stand on one:" circle > "/dev/stderr"
          exit 1
        }
        order[++placed] = next_one
        at[next_one] = placed
        if (length(next_one) > width) width = length(next_one)
      }
      line = sprintf("%-*s", width, "")
      for (i = 1; i <= count; ++i) line = line "  " order[i]
      print line
      for (i = 1; i <= count; ++i) {
        line = sprintf("%-*s", width, order[i])
        for (j = 1; j <= i; ++j) {
          cell = i == j ? "o" : ((order[i], order[j]) in mark) ? mark[order[i], order[j]] : "."
          line = line sprintf("  %*s", int((length(order[j]) + 1) / 2), cell)
          if (j < i) line = line sprintf("%*s", length(order[j]) - int((length(order[j]) + 1) / 2), "")
        }
        print line
      }
    }'
}

# The page with the matrix between the two lines.
page_with_matrix() {  # PAGE MATRIX
  [ "$(grep -cFx -- "$begin" "$1")" = 1 ] && [ "$(grep -cFx -- "$end" "$1")" = 1 ] ||
    { echo "include_graph.sh: $1 must have the lines '$begin' and '$end' once each" >&2; return 1; }
  awk -v begin="$begin" -v end="$end" -v matrix="$2" '
    $0 == begin { print; print ""; print "```"; print matrix; print "```"; print ""; inside = 1 }
    $0 == end { inside = 0 }
    !inside && $0 != begin { print }' "$1"
}

case ${1:-} in
  "") matrix ;;
  --edges) edges ;;
  --write | --check)
    page=${2:?usage: tools/include_graph.sh $1 PAGE}
    now=$(matrix)
    wanted=$(mktemp)
    trap 'rm -f "$wanted"' EXIT
    page_with_matrix "$page" "$now" >"$wanted"
    if [ "$1" = --write ]; then
      cat "$wanted" >"$page"
    elif ! diff -u "$page" "$wanted"; then
      echo "$page shows other includes than the sources have: tools/include_graph.sh --write docs/design.md" >&2
      exit 1
    fi
    ;;
  *) echo "include_graph.sh: unknown option '$1'" >&2; exit 2 ;;
esac
