#!/usr/bin/env bash
# What the pages name is there: files, functions, types, tests, and code that is quoted. Pages are README.md,
# CONTRIBUTING.md and docs/*.md. What is checked in them:
#
#   `src/engine/engine.cpp: Engine::step`    the file exists and defines this function. Name can be
#                                              Class::function  outside its class, or within it in a header
#                                              function         at the level of the file
#                                              Type             class, struct or enum
#                                              kConstant
#                                              Suite.Name       a test: TEST, TEST_F or TEST_P
#   `src/engine/engine.h`                    the file or folder exists
#   [text](../src/engine/engine.h)           the same, from the page's own folder
#   <!-- from src/model/architecture.cpp -->
#   ```cpp ... ```                           the lines stand in the file as they stand here, one after the other
#
# docs/walk.md and docs/adding-a-model.md must name functions at all: a page without any passes nothing.
# usage: tests/docs_names_test.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
source_dir=${1:?usage: tests/docs_names_test.sh SOURCE_DIR}

# defines FILE NAME: whether the file has the definition. A declaration alone is not enough.
defines() {
  case $2 in
    k[A-Z]*) grep -qE "\\b$2(\\[[^]]*\\])? *(=|\\{)" "$1" ;;
    *.*) tr '\n' ' ' <"$1" | grep -qE "\\bTEST(_F|_P)?\\( *${2%%.*}, *${2#*.} *\\)" ;;
    *) awk -v name="$2" '
      # A definition has its body before its first semicolon, what stands in parentheses aside. It may go over lines.
      function has_body(text,    body, end) {
        while (gsub(/\([^()]*\)/, "", text)) {}
        body = index(text, "{"); end = index(text, ";")
        if (body == 0 && end == 0) return -1
        return body > 0 && (end == 0 || body < end)
      }
      function look(line) {
        pending = pending line " "
        verdict = has_body(pending)
        if (verdict == -1) return
        if (verdict == 1) found = 1
        pending = ""
      }
      BEGIN {
        parts = split(name, part, "::"); last = part[parts]; owner = parts > 1 ? part[parts - 1] : ""
        call = "(^|[^A-Za-z0-9_~:])" name "\\("
        inner = "(^|[^A-Za-z0-9_~:.>])" last "\\("
        type = "^ *(template <.*> *)?(class|struct|enum|enum class|enum struct) " (owner == "" ? last : owner) "( final)?( :[^;]*)? *\\{"
      }
      /^ *\/\// { next }
      { sub(/ \/\/.*/, "") }
      $0 ~ type { if (owner == "") found = 1; else { inside = 1; next } }
      inside && /^};/ { inside = 0; pending = "" }
      pending != "" { look($0); next }
      { head = $0; sub(/\{.*/, "", head) }  # what is called in a body on the same line does not count
      !inside && /^[A-Za-z]/ && head ~ call { look($0); next }
      inside && /^  [A-Za-z]/ && head ~ inner { look($0); next }
      END { exit !found }' "$1" ;;
  esac
}

# check ROOT PAGE...: says what is wrong, one line each, and gives 1 if anything is.
check() {
  local root=$1 page wrong=0 text at file name block whole
  say() { echo "$page: $1" >&2; wrong=1; }
  for page in "${@:2}"; do
    # Code in fences is not text: `...` in it means nothing. Lines are joined, since a name may be broken at its space.
    text=$(awk '/^ *```/ { code = !code; next } !code' "$root/$page" | tr '\n' ' ')
    while IFS= read -r at; do
      at=${at#\`}
      at=${at%\`}
      if [[ $at =~ ^([a-z]+/[A-Za-z0-9_./-]+):\ +([A-Za-z_][A-Za-z0-9_:.]*)$ ]]; then
        file=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
        if [ ! -f "$root/$file" ]; then
          say "there is no $file"
        elif ! defines "$root/$file" "$name"; then
          say "$file does not define $name"
        fi
      elif [[ $at =~ ^(src|tests|tools|docs|cmake|examples|testdata|models)/[A-Za-z0-9_./-]+$ ]]; then
        [ -e "$root/$at" ] || say "there is no $at"
      elif [[ $at =~ ^src/[^\ ]+:\  ]]; then
        say "'$at' is not 'file: name'"
      fi
    done < <(grep -oE '`[^`]+`' <<<"$text" || true)
    while IFS= read -r at; do
      at=${at#*\(}
      at=${at%\)}
      at=${at%%#*}
      [ -z "$at" ] || [ -e "$root/$(dirname "$page")/$at" ] || say "there is no $at"
    done < <(grep -oE '\]\([^)]+\)' <<<"$text" | grep -vE '\((https?|mailto):' || true)
    while IFS= read -r file; do
      [ -f "$root/$file" ] || { say "there is no $file"; continue; }
      whole=$(<"$root/$file")
      # All blocks from this file, each ended by a line of its own.
      block=
      while IFS= read -r at; do
        if [ "$at" != $'\x01' ]; then
          block+=$at$'\n'
        else
          [[ $'\n'$whole$'\n' == *$'\n'"$block"* ]] || say "this is not in $file: ${block%%$'\n'*}"
          block=
        fi
      done < <(awk -v from="<!-- from $file -->" '
        $0 == from { wanted = 1; next }
        /^```/ && inside { print "\001"; inside = 0; next }
        /^```/ && wanted { inside = 1; wanted = 0; next }
        inside { print; next }
        /[^ ]/ { wanted = 0 }' "$root/$page")
    done < <(sed -nE 's|^<!-- from (.*) -->$|\1|p' "$root/$page" | sort -u)
  done
  return $wrong
}

# --- what it finds, on a small tree

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src" "$work/docs"
cat >"$work/src/a.h" <<'END'
// A comment that says Thing::spoken() { }
class Thing final : public Other {
 public:
  void declared(int x = {});
  int inline_one() const { return other(); }
};
enum class Colour : int { Red };
void helper(int);
END
cat >"$work/src/a.cpp" <<'END'
constexpr int kMost[] = {1};
void Thing::declared(int x) { helper(x); }
std::vector<int> Thing::over_lines(int a,
                                   int b) const {
  return called(a);
}
TEST(Things, AreThere) {}
END
good='`src/a.cpp: Thing::declared` `src/a.cpp:
Thing::over_lines` `src/a.h: Thing::inline_one` `src/a.h: Thing` `src/a.h: Colour` `src/a.cpp: kMost`
`src/a.cpp: Things.AreThere` `src/a.h` [a](../src/a.cpp#x) [b](https://example.com/none)
<!-- from src/a.cpp -->
```cpp
                                   int b) const {
  return called(a);
```
```
`src/none.h`
```'
printf '%s\n' "$good" >"$work/docs/good.md"
check "$work" docs/good.md || { echo "FAILED: a page that is right is refused" >&2; exit 1; }
refused() {  # TEXT WHAT
  printf '%s\n' "$good" "$1" >"$work/docs/bad.md"
  if check "$work" docs/bad.md 2>"$work/said"; then
    echo "FAILED: $2 is not noticed: $1" >&2
    exit 1
  fi
}
refused '`src/none.cpp: Thing::declared`' "a file that is gone"
refused '`src/a.cpp: Thing::gone`' "a function that is gone"
refused '`src/a.h: Thing::declared`' "a declaration without a body"
refused '`src/a.h: helper`' "a declaration without a body"
refused '`src/a.h: Thing::spoken`' "a comment"
refused '`src/a.h: Thing::other`' "a call"
refused '`src/a.cpp: called`' "a call"
refused '`src/a.cpp: declared`' "a function without its class"
refused '`src/a.cpp: Thing`' "a type that is elsewhere"
refused '`src/a.cpp: kLeast`' "a constant that is gone"
refused '`src/a.cpp: Things.AreGone`' "a test that is gone"
refused '`src/a.cpp: some words`' "something that is no name"
refused '`src/gone.h`' "a file that is gone"
refused '[a](../src/gone.h)' "a link to nowhere"
refused $'<!-- from src/a.cpp -->\n```cpp\nconstexpr int kMost[] = {2};\n```' "code that has changed"
refused $'<!-- from src/gone.cpp -->\n```cpp\n```' "code of a file that is gone"

# --- the pages

cd "$source_dir"
for page in docs/walk.md docs/adding-a-model.md; do
  named=$(tr '\n' ' ' <"$page" | { grep -oE '`src/[^` ]+: [^`]+`' || true; } | wc -l)
  [ "$named" -ge 10 ] || { echo "FAILED: $page names only $named functions" >&2; exit 1; }
done
check . README.md CONTRIBUTING.md docs/*.md || { echo "FAILED: the pages name what is not there" >&2; exit 1; }
echo "all files and functions that the pages name are there"
