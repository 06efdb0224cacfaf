// The files of the page, embedded at build time: every .html, .css and .js file of src/server/web except the tests. Any
// thread may call.
#pragma once

#include <span>
#include <string_view>

namespace quire::server {

struct WebFile {
  std::string_view path;  // "/index.html"
  std::string_view content;
  std::string_view hash;  // of the content, in hexadecimal
};

std::span<const WebFile> web_files();

}  // namespace quire::server
