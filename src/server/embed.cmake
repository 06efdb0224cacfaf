# Writes a C++ source that contains the given files: cmake -DOUTPUT=x.cpp "-DFILES=a;b" -P embed.cmake
# Each file becomes an entry of quire::server::web_files(), with its path and a hash of its bytes (see web_files.h).
set(arrays "")
set(entries "")
set(number 0)
foreach(path ${FILES})
  get_filename_component(name ${path} NAME)
  file(READ ${path} hex HEX)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  # Short lines, so that tools can show them.
  string(REPEAT "0x..," 20 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "const unsigned char file${number}[] = {\n${bytes}0};\n")
  string(APPEND entries "    {\"/${name}\", {reinterpret_cast<const char*>(file${number}), sizeof(file${number}) - 1}, \"${hash}\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT}
     "#include \"quire/server/web_files.h\"\n\nnamespace quire::server {\nnamespace {\n${arrays}\n"
     "const WebFile files[] = {\n${entries}};\n}  // namespace\n\n"
     "std::span<const WebFile> web_files() { return files; }\n\n}  // namespace quire::server\n")
